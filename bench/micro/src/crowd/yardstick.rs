//! The least that moving 64 octets from core to core can cost.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::work::stay_on;

type Message = [u64; 8];

/// Messages of 64 octets a second through a bare ring between two pinned threads, moved in chunks
/// of 32.
pub(crate) fn ring_rate(seconds: f64) -> Result<f64> {
    let (mut producer, mut consumer) = rtrb::RingBuffer::<Message>::new(4096);
    let stop = Duration::from_secs_f64(seconds);
    let sender = thread::spawn(move || {
        stay_on(Some(0));
        let (start, mut number) = (Instant::now(), 0u64);
        while number % 8192 != 0 || start.elapsed() < stop {
            if let Ok(chunk) = producer.write_chunk_uninit(32) {
                number += chunk.fill_from_iter((number..).map(|n| [n; 8])) as u64;
            }
        }
        number
    });
    let receiver = thread::spawn(move || {
        stay_on(Some(1));
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

/// The median time from core to core of one message of 64 octets over two bare rings, in ns: half
/// the round trip.
pub(crate) fn ring_round_trip_ns(rounds: u64) -> Result<f64> {
    let (mut ping, mut take_ping) = rtrb::RingBuffer::<Message>::new(64);
    let (mut pong, mut take_pong) = rtrb::RingBuffer::<Message>::new(64);
    let answerer = thread::spawn(move || {
        stay_on(Some(1));
        while !take_ping.is_abandoned() {
            if let Ok(message) = take_ping.pop() {
                let _ = pong.push(message);
            }
        }
    });
    let asker = thread::spawn(move || {
        stay_on(Some(0));
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
    let median = asker.join().expect("the asker does not panic");
    answerer.join().expect("the answerer does not panic");
    Ok(median)
}
