//! The yardstick: members that send bare datagrams to a relay, which sends each of them to all.
//! Everything blocks.

use std::net::UdpSocket;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::job::{Job, Outcome, PAUSE_NS, Sample, counts, monotonic_ns};

/// Interval at which a member announces itself before the measurement, in ns.
const HELLO_INTERVAL_NS: u64 = 50_000_000;

/// Runs the relay until all messages have been sent.
pub(super) fn relay(job: &Job) -> Result<Outcome> {
    let bind = job.switch.as_deref().context("the relay has an address")?;
    let socket = UdpSocket::bind(bind).context("binding the relay")?;
    socket.set_nonblocking(true)?;
    let (mut members, mut outcome) = (Vec::new(), Outcome::default());
    let mut buffer = vec![0; 65_536];
    let (mut sample, mut is_measured, mut datagrams) = (None, false, 0u64);
    while monotonic_ns() < job.end_ns() {
        wait(&socket, job.end_ns())?;
        let now_ns = monotonic_ns();
        if now_ns >= job.window_ns[0] && sample.is_none() {
            (sample, datagrams) = (Some(Sample::take()), 0);
        }
        if now_ns >= job.window_ns[1]
            && !is_measured
            && let Some(sample) = sample
        {
            sample.finish(&mut outcome);
            (outcome.datagrams, is_measured) = (datagrams, true);
        }
        while let Ok((len, from)) = socket.recv_from(&mut buffer) {
            datagrams += 1;
            if !members.contains(&from) {
                members.push(from);
            }
            for member in &members {
                socket.send_to(&buffer[..len], member).context("relaying")?;
                datagrams += 1;
            }
        }
    }
    Ok(outcome)
}

/// Runs a bare member.
pub(super) fn member(job: &Job) -> Result<Outcome> {
    let relay = job.switch.as_deref().context("the relay has an address")?;
    let socket = UdpSocket::bind("127.0.0.1:0").context("binding a member")?;
    socket.connect(relay)?;
    socket.set_nonblocking(true)?;
    let mut member = Bare {
        job,
        socket,
        buffer: vec![0; 65_536],
        steady: Histogram::new(3)?,
        woken: Histogram::new(3)?,
    };
    let [begin_ns, end_ns] = job.window_ns;
    while monotonic_ns() + 2 * HELLO_INTERVAL_NS < begin_ns {
        member.send(0);
        member.receive_until(monotonic_ns() + HELLO_INTERVAL_NS)?;
    }
    member.receive_until(begin_ns)?;
    let (sample, mut outcome) = (Sample::take(), Outcome::default());
    if job.rate > 0.0 {
        let phase = f64::from(job.process) / f64::from(job.processes);
        for number in 0.. {
            let due_ns = begin_ns + ((f64::from(number) + phase) * 1e9 / job.rate) as u64;
            if due_ns >= end_ns {
                break;
            }
            member.receive_until(due_ns)?;
            member.send(due_ns);
        }
    }
    member.receive_until(end_ns)?;
    sample.finish(&mut outcome);
    for wake in 0..u64::from(job.wakes) {
        if job.process == 0 {
            member.receive_until(end_ns + (wake + 1) * PAUSE_NS)?;
            member.send(monotonic_ns());
        }
    }
    member.receive_until(job.end_ns())?;
    outcome.latencies = counts(&member.steady);
    outcome.wake_latencies = counts(&member.woken);
    Ok(outcome)
}

struct Bare<'j> {
    job: &'j Job,
    socket: UdpSocket,
    buffer: Vec<u8>,
    steady: Histogram<u64>,
    woken: Histogram<u64>,
}

impl Bare<'_> {
    /// Sends a message that was due at `due_ns`. A relay that is not there yet refuses it.
    fn send(&mut self, due_ns: u64) {
        let len = self.job.bytes.max(8);
        self.buffer[..8].copy_from_slice(&due_ns.to_le_bytes());
        let _ = self.socket.send(&self.buffer[..len]);
    }

    fn receive_until(&mut self, until_ns: u64) -> Result<()> {
        while monotonic_ns() < until_ns {
            wait(&self.socket, until_ns)?;
            while let Ok(len) = self.socket.recv(&mut self.buffer) {
                let word = self.buffer[..len].first_chunk().context("a datagram has 8 bytes")?;
                let due_ns = u64::from_le_bytes(*word);
                let latency_ns = monotonic_ns().saturating_sub(due_ns);
                let [begin_ns, end_ns] = self.job.window_ns;
                match due_ns {
                    0 => {}
                    _ if (begin_ns..end_ns).contains(&due_ns) => self.steady.record(latency_ns)?,
                    _ => self.woken.record(latency_ns)?,
                }
            }
        }
        Ok(())
    }
}

/// Waits until `socket` is readable or the monotonic clock reads `until_ns`.
fn wait(socket: &UdpSocket, until_ns: u64) -> Result<()> {
    let left_ns = until_ns.saturating_sub(monotonic_ns());
    let timeout = Timespec {
        tv_sec: (left_ns / 1_000_000_000) as _,
        tv_nsec: (left_ns % 1_000_000_000) as _,
    };
    let mut sockets = [PollFd::new(socket, PollFlags::IN)];
    match poll(&mut sockets, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error).context("waiting for datagrams"),
    }
}
