//! What one core of this machine does of an arbiter's work.

use anyhow::{Context, Result};
use onepipe_bench_micro::{
    ArbiterOptions, CommOptions, Report, arbiter_alloc, arbiter_comm, arbiter_path,
};

use crate::experiment::Values;

/// Bits of a packet, as the paper counts them: 1,500 bytes.
const PACKET_BITS: f64 = 12_000.0;
/// Packets of a run: a tenth of a second and more.
const PACKETS: u64 = 4_000_000;

/// Gives timeslots to so many endpoints, at a load in thousandths. Answers `slot_us`; `tbps`, the
/// traffic that is given its timeslots in that time; and `ratio`, how many times as fast that is as
/// a plain allocator.
pub(crate) fn timeslots(nodes: u32, load_permille: u32) -> Result<Values> {
    let options = options(nodes, load_permille);
    of(&arbiter_alloc(&options, |_| {})?, &options)
}

/// Chooses paths for them, in racks of 32 with four paths. Answers the same.
pub(crate) fn paths(nodes: u32, load_permille: u32) -> Result<Values> {
    let options = options(nodes, load_permille);
    of(&arbiter_path(&options, |_| {})?, &options)
}

/// Serves them over UDP with a core for communication alone. Answers `gbps`, the traffic of which
/// it can take the requests and tell the timeslots; `slot_ns`, what one costs it; `turn_us`, how
/// long what has come waits to be seen at most, in half of the turns; and `ratio`, how many times
/// as fast that is as a thread that takes and sends as many bare datagrams.
pub(crate) fn communication(nodes: u32) -> Result<Values> {
    let options = CommOptions { nodes: vec![nodes], workers: 1, ..CommOptions::default() };
    let report = arbiter_comm(&options, |_| {})?;
    let case = report.results.first().context("nothing was measured")?;
    let turn = case.details.iter().find(|detail| detail.name == "turn p50");
    let turn_us = turn.context("turns were not measured")?.value;
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

fn of(report: &Report, options: &ArbiterOptions) -> Result<Values> {
    let case = report.results.first().context("nothing was measured")?;
    let packets = f64::from(options.nodes[0]) * options.loads[0];
    let tbps = packets * PACKET_BITS / case.value / 1e6;
    let values = [("slot_us", case.value), ("tbps", tbps), ("ratio", case.ratio)];
    Ok(values.map(|(name, value)| (name.to_owned(), value)).into())
}
