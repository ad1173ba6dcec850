//! Baselines: the least cost of moving 64 bytes between two cores.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use onepipe_base::{Mono, Now, Port, Timestamp, Transmit};
use onepipe_transport_driver::Transport;
use onepipe_transport_udp::{BatchSocket, Config, UdpLink};

use super::worker::pin_to_core;

type Message = [u64; 8];

/// Runs `work` on `core`, in a thread of its own: the processes that the caller starts later
/// inherit its affinity.
fn on_core<T: Send>(core: usize, work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let thread = scope.spawn(move || {
            pin_to_core(Some(core));
            work()
        });
        thread.join().expect("a yardstick does not panic")
    })
}

/// Returns the rate of 64-byte messages through a bare ring between two pinned threads, moved in
/// chunks of 32.
pub(crate) fn ring_rate(seconds: f64) -> Result<f64> {
    let (mut producer, mut consumer) = rtrb::RingBuffer::<Message>::new(4096);
    let stop = Duration::from_secs_f64(seconds);
    let sender = thread::spawn(move || {
        pin_to_core(Some(0));
        let (start, mut number) = (Instant::now(), 0u64);
        while number % 8192 != 0 || start.elapsed() < stop {
            if let Ok(chunk) = producer.write_chunk_uninit(32) {
                number += chunk.fill_from_iter((number..).map(|n| [n; 8])) as u64;
            }
        }
        number
    });
    let receiver = thread::spawn(move || {
        pin_to_core(Some(1));
        let (mut expected, mut start) = (0u64, None);
        while !(consumer.is_abandoned() && consumer.is_empty()) {
            let Ok(chunk) = consumer.read_chunk(consumer.slots().min(32)) else { continue };
            for message in chunk {
                start.get_or_insert_with(Instant::now);
                ensure!(message == [expected; 8], "the ring lost {expected}");
                expected += 1;
            }
        }
        let elapsed = start.map_or(0.0, |start| start.elapsed().as_secs_f64());
        Ok((expected, elapsed))
    });
    let sent = sender.join().expect("the sender does not panic");
    let (received, elapsed) = receiver.join().expect("the receiver does not panic")?;
    ensure!(sent == received, "the ring lost {} messages", sent - received);
    Ok(received as f64 / elapsed)
}

/// Returns the median one-way time of a 64-byte message between two cores over two bare rings, in
/// ns: half the round trip.
pub(crate) fn ring_one_way_ns(rounds: u64) -> Result<f64> {
    let (mut ping, mut take_ping) = rtrb::RingBuffer::<Message>::new(64);
    let (mut pong, mut take_pong) = rtrb::RingBuffer::<Message>::new(64);
    let ponger = thread::spawn(move || {
        pin_to_core(Some(1));
        while !take_ping.is_abandoned() {
            if let Ok(message) = take_ping.pop() {
                let _ = pong.push(message);
            }
        }
    });
    let pinger = thread::spawn(move || {
        pin_to_core(Some(0));
        let mut times = Vec::with_capacity(rounds as usize);
        for number in 0..rounds {
            let start = Instant::now();
            let _ = ping.push([number; 8]);
            while take_pong.pop().is_err() {}
            times.push(start.elapsed().as_nanos() as f64 / 2.0);
        }
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    let median = pinger.join().expect("the pinger does not panic");
    ponger.join().expect("the ponger does not panic");
    Ok(median)
}

/// Returns the rate of 64-byte segments over loopback with GSO and GRO, from one pinned thread to
/// another: bare datagrams.
pub(crate) fn datagram_rate(seconds: f64) -> Result<f64> {
    let config = Config { bind: Some("127.0.0.1:0".parse()?), ..Config::default() };
    let mut batch_socket = BatchSocket::bind(&config, 1)?;
    let mut link = UdpLink::connect(batch_socket.local_addr()?, &Config::default())?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            pin_to_core(Some(1));
            let (mut frames, mut start, mut last) = (0u64, None, Instant::now());
            while !stop.load(Ordering::Relaxed) {
                for batch in 0..batch_socket.receive() {
                    frames += batch_socket.frames(batch).count() as u64;
                }
                if frames > 0 {
                    start.get_or_insert_with(Instant::now);
                    last = Instant::now();
                }
            }
            start.map_or(0.0, |start| frames as f64 / (last - start).as_secs_f64())
        });
        on_core(0, || send_datagrams(&mut link, seconds));
        stop.store(true, Ordering::Relaxed);
        let rate = receiver.join().expect("the receiver does not panic");
        ensure!(rate > 0.0, "no datagram arrived");
        Ok(rate)
    })
}

fn send_datagrams(link: &mut UdpLink, seconds: f64) {
    let now = Now { mono: Mono::from_ns(0), sync: Timestamp::from_ns(0) };
    let start = Instant::now();
    while start.elapsed().as_secs_f64() < seconds {
        if !link.can_begin_burst(now) {
            continue;
        }
        for _ in 0..1024 {
            let Some(slot) = link.slot() else { break };
            slot[..64].fill(7);
            link.send(Transmit { port: Port(0), bytes: 64 });
        }
        link.end_burst(None);
    }
}

/// Returns the median one-way time of a 64-byte datagram between two threads over loopback, in ns:
/// half the round trip. `is_spinning` selects polling the sockets or blocking.
pub(crate) fn datagram_one_way_ns(rounds: usize, is_spinning: bool) -> Result<f64> {
    let (pinger, ponger) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    pinger.connect(ponger.local_addr()?)?;
    ponger.connect(pinger.local_addr()?)?;
    for socket in [&pinger, &ponger] {
        socket.set_nonblocking(is_spinning)?;
        socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    }
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            pin_to_core(Some(1));
            let mut bytes = [0; 64];
            while !stop.load(Ordering::Relaxed) {
                if ponger.recv(&mut bytes).is_ok() {
                    let _ = ponger.send(&bytes);
                }
            }
        });
        let times = on_core(0, || ping(&pinger, rounds));
        stop.store(true, Ordering::Relaxed);
        // Wakes a responder that blocks.
        pinger.send(&[0; 64])?;
        let mut times = times?;
        times.sort_by(f64::total_cmp);
        Ok(times[times.len() / 2])
    })
}

/// Returns half of each round trip to the peer, in ns.
fn ping(pinger: &UdpSocket, rounds: usize) -> Result<Vec<f64>> {
    let mut times = Vec::with_capacity(rounds);
    let mut bytes = [0; 64];
    for _ in 0..rounds {
        let start = Instant::now();
        pinger.send(&bytes)?;
        while pinger.recv(&mut bytes).is_err() {}
        times.push(start.elapsed().as_nanos() as f64 / 2.0);
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;
    use onepipe_transport_clock::cores;

    #[test]
    fn yardsticks_leave_the_caller_unpinned() {
        let before = cores().expect("the kernel reports the affinity mask");
        datagram_rate(0.01).expect("loopback carries datagrams");
        datagram_one_way_ns(10, true).expect("loopback carries datagrams");
        ring_rate(0.01).expect("a ring carries entries");
        ring_one_way_ns(10).expect("a ring carries entries");
        assert_eq!(cores().expect("the kernel reports the affinity mask"), before);
    }
}
