//! The program of a leader or a follower over its pipe.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use onepipe::{Event, Message, Pipe, ProcessId};
use onepipe_base::Mono;
use onepipe_table::Leader;

use super::job::{Job, LEADER};
use crate::light::monotonic_ns;

/// A message without a reply is sent again after this time, in ns.
pub(super) const REPEAT_NS: u64 = 100_000_000;

/// Inserts and replicates until `is_released`.
pub(super) fn serve(
    pipe: &mut Pipe,
    job: &Job,
    nodes: u64,
    is_released: &AtomicBool,
) -> Result<()> {
    let (layout, me) = (job.layout(), pipe.process());
    let replicas: Vec<ProcessId> = (0..job.replicas).map(ProcessId).collect();
    debug_assert_eq!(replicas[0], LEADER);
    let mut program = Leader::new(layout, (0, nodes), me, &replicas, REPEAT_NS);
    while !is_released.load(Ordering::Relaxed) {
        let event = pipe.recv_timeout(Duration::from_nanos(REPEAT_NS));
        let now = Mono::from_ns(monotonic_ns());
        if let Some(Event::Message(message)) = event {
            pipe.with_region(layout.region(0), |bytes| {
                program.on_message(now, message.from, &message.payload, bytes);
            })
            .context("the region of the shard")?;
        }
        program.handle_timeout(now);
        while let Some((to, payload)) = program.poll_message() {
            pipe.scatter(&[Message { to, payload: &payload }]).context("sending")?;
        }
    }
    Ok(())
}
