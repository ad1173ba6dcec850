//! Transactions pipelined to Redis over one Unix socket.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::closed_loop::{histogram, trial};
use super::cpu_time;
use super::rounds::Trial;

/// How long a reply may take.
const LIMIT: Duration = Duration::from_secs(30);

/// Keeps `in_flight` transactions in flight on one connection, for a fifth of `seconds` unmeasured,
/// then for `seconds`. `next` returns the bytes of a transaction and its expected reply. The CPU
/// time is that of the server, which `server_cpu_seconds` returns, and of this process.
pub(super) fn drive(
    socket: &Path,
    in_flight: usize,
    seconds: f64,
    mut next: impl FnMut() -> (Vec<u8>, Vec<u8>),
    server_cpu_seconds: impl Fn() -> Result<f64>,
) -> Result<Trial> {
    let cpu_seconds = || Ok::<_, anyhow::Error>(server_cpu_seconds()? + cpu_time::own_seconds());
    let stream = UnixStream::connect(socket);
    let mut stream = stream.with_context(|| format!("connecting to {}", socket.display()))?;
    stream.set_read_timeout(Some(LIMIT))?;
    let mut latencies = histogram();
    let mut open: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let (mut sent, mut received, mut bytes) = (Vec::new(), VecDeque::new(), vec![0; 1 << 18]);
    let measured_from = Instant::now() + Duration::from_secs_f64(seconds / 5.0);
    let until = measured_from + Duration::from_secs_f64(seconds);
    let mut began = None;
    loop {
        let now = Instant::now();
        if now >= measured_from && began.is_none() {
            began = Some((now, cpu_seconds()?));
        }
        if now >= until {
            let (from, before) = began.context("the measurement has begun")?;
            return trial(&latencies, (now - from).as_secs_f64(), cpu_seconds()? - before);
        }
        sent.clear();
        while open.len() < in_flight {
            let (transaction, reply) = next();
            sent.extend_from_slice(&transaction);
            open.push_back((now, reply));
        }
        stream.write_all(&sent)?;
        let len = stream.read(&mut bytes)?;
        ensure!(len > 0, "Redis closed the connection");
        received.extend(&bytes[..len]);
        let at = Instant::now();
        while let Some((began_at, expected)) = open.front()
            && received.len() >= expected.len()
        {
            let is_expected = received.iter().zip(expected).all(|(one, other)| one == other);
            ensure!(is_expected, "Redis replied {:?}", text(&received));
            received.drain(..expected.len());
            if began.is_some() {
                latencies.saturating_record((at - *began_at).as_nanos() as u64);
            }
            open.pop_front();
        }
        // A refusal is shorter than the expected reply, which would never be complete.
        let refusal = received.iter().position(|byte| *byte == b'-');
        ensure!(refusal != Some(0), "Redis replied {:?}", text(&received));
    }
}

fn text(received: &VecDeque<u8>) -> String {
    let first: Vec<u8> = received.iter().copied().take(200).collect();
    String::from_utf8_lossy(&first).into_owned()
}
