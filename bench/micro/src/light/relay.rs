//! The yardstick: members that send bare datagrams to a relay, which sends each of them to all.
//! Everything blocks.

use std::net::UdpSocket;

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::job::{Job, Outcome, Sample, monotonic_ns};
use super::schedule::{self, Latencies, Member};

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
    let (payload, buffer) = (vec![0; job.bytes.max(8)], vec![0; 65_536]);
    let mut member = BareMember { socket, payload, buffer, latencies: Latencies::new(job)? };
    let outcome = schedule::run(job, &mut member)?;
    Ok(member.latencies.complete(outcome))
}

struct BareMember {
    socket: UdpSocket,
    payload: Vec<u8>,
    buffer: Vec<u8>,
    latencies: Latencies,
}

impl Member for BareMember {
    fn send(&mut self, due_ns: u64) -> Result<()> {
        self.payload[..8].copy_from_slice(&due_ns.to_le_bytes());
        // A relay that is not there yet refuses it.
        let _ = self.socket.send(&self.payload);
        Ok(())
    }

    fn receive_until(&mut self, until_ns: u64) -> Result<()> {
        while monotonic_ns() < until_ns {
            wait(&self.socket, until_ns)?;
            while let Ok(len) = self.socket.recv(&mut self.buffer) {
                self.latencies.record(&self.buffer[..len])?;
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
