//! Throughput of an arbiter's tasks on one core of this machine.

use anyhow::{Context, Result};
use onepipe_bench_micro::{
    ArbiterOptions, CommOptions, Report, arbiter_alloc, arbiter_comm, arbiter_path,
};

use crate::values::Values;

/// Bits of a packet as in the paper: 1,500 bytes.
const PACKET_BITS: f64 = 12_000.0;
/// Packets per run: enough for a tenth of a second.
const PACKETS: u64 = 4_000_000;

/// Allocates timeslots to `nodes` endpoints at a load in thousandths. Returns `slot_us`, the time
/// per timeslot; `tbps`, the traffic that is allocated in that time; and `ratio`, the speed
/// relative to a simple allocator.
pub(crate) fn timeslots(nodes: u32, load_permille: u32) -> Result<Values> {
    let options = options(nodes, load_permille);
    values_of(&arbiter_alloc(&options, |_| {})?, &options)
}

/// Selects paths for `nodes` endpoints in racks of 32 with four paths. Returns the same values as
/// [`timeslots`].
pub(crate) fn paths(nodes: u32, load_permille: u32) -> Result<Values> {
    let options = options(nodes, load_permille);
    values_of(&arbiter_path(&options, |_| {})?, &options)
}

/// Serves `nodes` endpoints over UDP with one core for communication. Returns `gbps`, the traffic
/// whose requests and grants it can handle; `slot_ns`, the CPU time per timeslot; `turn_us`, the
/// median time between two polls of the socket, the longest that a received packet waits; and
/// `ratio`, the speed relative to a thread that receives and sends as many bare datagrams.
pub(crate) fn communication(nodes: u32) -> Result<Values> {
    let options = CommOptions { nodes: vec![nodes], workers: 1, ..CommOptions::default() };
    let report = arbiter_comm(&options, |_| {})?;
    let case = report.results.first().context("the benchmark returned no result")?;
    let turn = case.details.iter().find(|detail| detail.name == "turn p50");
    let turn_us = turn.context("the benchmark did not measure turns")?.value;
    let gbps = PACKET_BITS / case.value;
    let values =
        [("slot_ns", case.value), ("gbps", gbps), ("turn_us", turn_us), ("ratio", case.ratio)];
    Ok(values.map(|(name, value)| (name.to_owned(), value)).into())
}

fn options(nodes: u32, load_permille: u32) -> ArbiterOptions {
    let loads = vec![f64::from(load_permille) / 1e3];
    let defaults = ArbiterOptions::default();
    ArbiterOptions { nodes: vec![nodes], loads, packets: PACKETS, traces: 0, ..defaults }
}

fn values_of(report: &Report, options: &ArbiterOptions) -> Result<Values> {
    let case = report.results.first().context("the benchmark returned no result")?;
    let packets = f64::from(options.nodes[0]) * options.loads[0];
    let tbps = packets * PACKET_BITS / case.value / 1e6;
    let values = [("slot_us", case.value), ("tbps", tbps), ("ratio", case.ratio)];
    Ok(values.map(|(name, value)| (name.to_owned(), value)).into())
}
