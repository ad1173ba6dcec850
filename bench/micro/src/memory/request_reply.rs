//! The yardstick: requests that the application of the server receives, executes and replies to.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use onepipe::{Event, Message, Pipe, ProcessId};

use super::job::{Job, Kind, Outcome};
use super::workload::{OWNER, TIMEOUT, memory_len, offset, outcome};
use crate::light::monotonic_ns;
use crate::stopwatch::Stopwatch;

/// Length of the number of a request and of the offset, at the front of a request.
const HEADER_LEN: usize = 16;
/// A request without a reply is sent again after this time, in ns.
const REPEAT_NS: u64 = 100_000_000;

/// Receives requests, executes them and replies, until `is_released`.
pub(super) fn serve(pipe: &mut Pipe, job: &Job, is_released: &AtomicBool) -> Result<()> {
    let mut memory = vec![0u8; memory_len(job)];
    let mut reply = Vec::new();
    while !is_released.load(Ordering::Relaxed) {
        let Some(event) = pipe.recv_timeout(Duration::from_millis(100)) else { continue };
        let Event::Message(request) = event else { continue };
        let (header, body) =
            request.payload.split_at_checked(HEADER_LEN).context("a request has a header")?;
        let offset = usize::try_from(word(&header[8..]))?;
        let len = if job.kind == Kind::FetchAdd { 8 } else { job.bytes };
        let cell = memory.get_mut(offset..offset + len).context("an offset within the memory")?;
        reply.clear();
        reply.extend_from_slice(&header[..8]);
        match job.kind {
            Kind::Read => reply.extend_from_slice(cell),
            Kind::Write => cell.copy_from_slice(body),
            Kind::FetchAdd => {
                reply.extend_from_slice(cell);
                let sum = word(cell).wrapping_add(word(body));
                cell.copy_from_slice(&sum.to_le_bytes());
            }
        }
        pipe.scatter(&[Message { to: request.from, payload: &reply }]).context("replying")?;
    }
    Ok(())
}

/// Sends requests and receives replies until the time is over.
pub(super) fn request(pipe: &mut Pipe, job: &Job) -> Result<Outcome> {
    let body = match job.kind {
        Kind::Read => vec![],
        Kind::Write => vec![7; job.bytes],
        Kind::FetchAdd => 1u64.to_le_bytes().to_vec(),
    };
    let mut stopwatch = Stopwatch::start(job.seconds)?;
    // When each request was submitted, and when it was last sent.
    let mut in_flight: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    let mut repeated = 0;
    loop {
        while stopwatch.is_running() && in_flight.len() < job.window as usize {
            let number = stopwatch.submitted();
            let now_ns = stopwatch.submit();
            send(pipe, job, number, &body)?;
            in_flight.insert(number, (now_ns, now_ns));
        }
        if in_flight.is_empty() {
            break;
        }
        match pipe.recv_timeout(Duration::from_nanos(REPEAT_NS)) {
            Some(Event::Message(reply)) => {
                ensure!(reply.payload.len() >= 8, "a reply has a number");
                // A repeated request may have two replies.
                if let Some((began_ns, _)) = in_flight.remove(&word(&reply.payload)) {
                    stopwatch.complete(began_ns)?;
                }
            }
            Some(Event::LinkLost(link)) => bail!("the server has ended: {link:?}"),
            Some(_) | None => {
                let now_ns = monotonic_ns();
                for (number, (began_ns, sent_ns)) in &mut in_flight {
                    let timeout_ns = TIMEOUT.as_nanos() as u64;
                    ensure!(now_ns - *began_ns < timeout_ns, "the server does not reply");
                    if now_ns - *sent_ns >= REPEAT_NS {
                        send(pipe, job, *number, &body)?;
                        (*sent_ns, repeated) = (now_ns, repeated + 1);
                    }
                }
            }
        }
    }
    Ok(outcome(stopwatch, repeated))
}

fn send(pipe: &mut Pipe, job: &Job, number: u64, body: &[u8]) -> Result<()> {
    let mut request = Vec::with_capacity(HEADER_LEN + body.len());
    request.extend_from_slice(&number.to_le_bytes());
    request.extend_from_slice(&offset(job, number).to_le_bytes());
    request.extend_from_slice(body);
    let message = [Message { to: ProcessId(OWNER.0), payload: &request }];
    match job.kind.writes() {
        true => pipe.scatter_reliably(&message),
        false => pipe.scatter(&message),
    }
    .context("sending a request")?;
    Ok(())
}

/// Returns the word at the front of some bytes.
fn word(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}
