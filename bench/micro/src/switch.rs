//! `bench switch`: the switch machine on one core: the cost of its beacons, and its forwarding rate
//! (1Pipe, figure 13a).

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use onepipe_base::{
    Address, Incarnation, Instance, Machine, Mono, Now, Port, ProcessId, Promises, Psn, SwitchId,
    Timestamp, Verdict,
};
use onepipe_switch::{Config, Form, Switch};
use onepipe_topology::{ForwardingTable, Route};
use onepipe_wire::{HEADER_LEN, Header, Opcode, seal, seal_with_hops};

use crate::{Better, Harness, Progress, Report};

/// Options of [`switch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchOptions {
    /// Number of runs of each side. Default 5.
    pub runs: usize,
    /// Ports of the switch. Default 32 (1Pipe section 7.2).
    pub ports: u16,
    /// Beacon intervals in ns. Default 1, 3, 10 and 100 us.
    pub intervals_ns: Vec<u64>,
    /// Beacon intervals per run. Default 20,000.
    pub rounds: usize,
}

impl Default for SwitchOptions {
    fn default() -> Self {
        let intervals_ns = vec![1_000, 3_000, 10_000, 100_000];
        Self { runs: 5, ports: 32, intervals_ns, rounds: 20_000 }
    }
}

const ABOUT: &str = "the switch machine on one core, without a transport: cores that beacons of all \
                     ports in and out take, and frames that pass; yardstick: copying the frames, and \
                     the minimum of a table";

/// Measures the cores that a switch's beacons need, and the rate of forwarded frames.
///
/// # Errors
/// Returns an error when the machine misbehaves.
pub fn switch(options: &SwitchOptions, progress: impl FnMut(Progress<'_>)) -> Result<Report> {
    let mut harness = Harness::new("switch", ABOUT).with_runs(options.runs).with_progress(progress);
    let (ports, rounds) = (options.ports, options.rounds);
    for &interval_ns in &options.intervals_ns {
        let case = format!("beacons ports={ports} interval_us={}", interval_ns as f64 / 1e3);
        harness.measure(
            &case,
            "cores",
            Better::Lower,
            || beacon_cores(ports, interval_ns, rounds),
            || Ok(copying_cores(ports, interval_ns, rounds)),
        )?;
    }
    for (form, name) in [(Form::Chip, "chip"), (Form::OffChip, "off-chip")] {
        let case = format!("frames ports={ports} form={name}");
        harness.measure(
            &case,
            "frames/s",
            Better::Higher,
            || forwarding_rate(ports, form, rounds),
            || Ok(copying_rate(rounds)),
        )?;
    }
    Ok(harness.finish())
}

type FrameBytes = [u8; HEADER_LEN];
/// Frames that are prepared at a time, outside of the measured time.
const ROUNDS_AT_ONCE: usize = 64;
const START_NS: u64 = 1 << 50;

fn now_at(ns: u64) -> Now {
    Now { mono: Mono::from_ns(ns), sync: Timestamp::from_ns(ns) }
}

fn machine(ports: u16, form: Form, beacon_interval_ns: u64) -> Result<Switch> {
    let route = Route::ForwardingTable(ForwardingTable::new(u32::from(ports), false));
    let link_timeout_ns = 10 * beacon_interval_ns;
    let start_wait_ns = 0;
    let config = Config::new(ports, 0, route);
    Ok(Switch::new(Config { form, beacon_interval_ns, link_timeout_ns, start_wait_ns, ..config })?)
}

fn beacon(port: u16, promise_ns: u64) -> FrameBytes {
    let mut bytes = [0; HEADER_LEN];
    let address = Address::Switch(SwitchId(1 + u32::from(port)));
    let instance = Instance { address, incarnation: Incarnation(1) };
    let promises = Promises::both(Timestamp::from_ns(promise_ns));
    seal_with_hops(&mut bytes, Header::hop_only(Opcode::Beacon, instance, None, promises), 0, 0);
    bytes
}

/// Returns the cores that the beacons of `ports` links in and out need, one each per interval,
/// measured over `rounds` intervals. The neighbours' beacons arrive one after the other, and the
/// machine is drained after each, as the driver rules require.
///
/// # Errors
/// Returns an error when the machine does not pass each round on to all ports.
pub fn beacon_cores(ports: u16, interval_ns: u64, rounds: usize) -> Result<f64> {
    let mut switch = machine(ports, Form::OffChip, interval_ns)?;
    let (mut slot, mut sent, mut spent) = ([0; 256], 0, Duration::ZERO);
    let mut round = 0;
    while round < rounds {
        let count = ROUNDS_AT_ONCE.min(rounds - round);
        let instant = |index: usize| START_NS + (round + index) as u64 * interval_ns;
        let mut frames: Vec<Vec<FrameBytes>> = (0..count)
            .map(|index| (0..ports).map(|port| beacon(port, instant(index))).collect())
            .collect();
        let began = Instant::now();
        for (index, frames) in frames.iter_mut().enumerate() {
            // Beacons take half an interval to arrive.
            let now = now_at(instant(index) + interval_ns / 2);
            while switch.poll_timeout().is_some_and(|due| due <= now.mono) {
                switch.handle_timeout(now);
            }
            for (port, frame) in (0..ports).zip(frames) {
                switch.handle_frame(now, Port(port), frame);
                while switch.poll_transmit(now, &mut slot).is_some() {
                    sent += 1;
                }
            }
        }
        spent += began.elapsed();
        round += count;
    }
    black_box(&slot);
    let all = rounds * usize::from(ports);
    ensure!((all..all + all / 4).contains(&sent), "{sent} beacons were sent in place of {all}");
    Ok(spent.as_secs_f64() * 1e9 / (rounds as f64 * interval_ns as f64))
}

/// Returns the cores that copying the same frames and searching the minimum of a table need.
fn copying_cores(ports: u16, interval_ns: u64, rounds: usize) -> f64 {
    let frames: Vec<FrameBytes> = (0..ports).map(|port| beacon(port, START_NS)).collect();
    let mut table = vec![0u64; frames.len()];
    let mut slot = [0; HEADER_LEN];
    let began = Instant::now();
    for round in 0..rounds as u64 {
        for (held, frame) in table.iter_mut().zip(&frames) {
            slot = *black_box(frame);
            *held = round + u64::from(slot[7]);
        }
        let lowest = table.iter().min().copied().unwrap_or(0);
        for _ in 0..ports {
            slot[..8].copy_from_slice(&lowest.to_le_bytes());
            black_box(&mut slot);
        }
    }
    began.elapsed().as_secs_f64() * 1e9 / (rounds as f64 * interval_ns as f64)
}

/// Returns the rate of frames forwarded by the machine, each from one port to the next.
fn forwarding_rate(ports: u16, form: Form, rounds: usize) -> Result<f64> {
    let mut switch = machine(ports, form, 3_000)?;
    let frame = |opcode, from: u16, ns| {
        let mut bytes = [0; HEADER_LEN];
        let to = ProcessId(u32::from((from + 1) % ports));
        let header = Header::new(opcode, ProcessId(from.into()), to, Incarnation(1));
        let promises = Promises::both(Timestamp::from_ns(ns));
        seal(&mut bytes, header.stamped(promises.barrier, promises, Psn::FIRST), 0);
        bytes
    };
    for port in 0..ports {
        switch.handle_frame(now_at(START_NS), Port(port), &mut frame(Opcode::Join, port, START_NS));
    }
    let (mut forwarded, mut spent) = (0, Duration::ZERO);
    for round in (0..rounds).step_by(ROUNDS_AT_ONCE) {
        let ns = START_NS + round as u64;
        let all = (0..ports).cycle().take(ROUNDS_AT_ONCE * usize::from(ports));
        let mut frames: Vec<(u16, FrameBytes)> =
            all.map(|port| (port, frame(Opcode::Data, port, ns))).collect();
        let began = Instant::now();
        for (port, bytes) in &mut frames {
            let verdict = switch.handle_frame(now_at(ns), Port(*port), bytes);
            forwarded += u64::from(matches!(verdict, Verdict::Forward(_)));
        }
        spent += began.elapsed();
    }
    let all = rounds.div_ceil(ROUNDS_AT_ONCE) * ROUNDS_AT_ONCE * usize::from(ports);
    ensure!(forwarded == all as u64, "{forwarded} of {all} frames forwarded");
    Ok(forwarded as f64 / spent.as_secs_f64())
}

fn copying_rate(rounds: usize) -> f64 {
    let from = vec![[7u8; HEADER_LEN]; 1_024];
    let mut to = from.clone();
    let began = Instant::now();
    for _ in 0..rounds {
        for (to, from) in to.iter_mut().zip(&from) {
            *to = *black_box(from);
        }
        black_box(&mut to);
    }
    (rounds * from.len()) as f64 / began.elapsed().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_beacon_interval_takes_fewer_cores() {
        let intervals_ns = vec![1_000, 100_000];
        let options = SwitchOptions { runs: 3, ports: 8, intervals_ns, rounds: 2_000 };
        let report = switch(&options, |_| {}).expect("benchmark runs");
        assert_eq!(report.results.len(), 4);
        assert!(report.results[0].value > 10.0 * report.results[1].value, "{report}");
    }
}
