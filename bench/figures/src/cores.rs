//! What one core of this machine does of an arbiter's work.

use anyhow::{Context, Result};
use onepipe_bench_micro::{ArbiterOptions, Report, arbiter_alloc, arbiter_path};

use crate::experiment::Values;

/// Bits of a packet, as the paper counts them: 1,500 octets.
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

fn options(nodes: u32, load_permille: u32) -> ArbiterOptions {
    let loads = vec![f64::from(load_permille) / 1e3];
    ArbiterOptions { nodes: vec![nodes], loads, packets: PACKETS, ..ArbiterOptions::default() }
}

fn of(report: &Report, options: &ArbiterOptions) -> Result<Values> {
    let case = report.results.first().context("nothing was measured")?;
    let packets = f64::from(options.nodes[0]) * options.loads[0];
    let tbps = packets * PACKET_BITS / case.value / 1e6;
    let values = [("slot_us", case.value), ("tbps", tbps), ("ratio", case.ratio)];
    Ok(values.map(|(name, value)| (name.to_owned(), value)).into())
}
