//! Properties of every report, whichever process crashes.

use std::collections::{BTreeMap, BTreeSet};

use onepipe_endpoint::Service;
use onepipe_sim_large::{Report, Setup};

/// Verifies a report. Returns the first violation, if any.
pub fn verify(setup: &Setup, report: &Report) -> Option<String> {
    order(report).or_else(|| outcomes(setup, report)).or_else(|| memory(setup, report))
}

/// All processes deliver in one order, and nothing twice.
fn order(report: &Report) -> Option<String> {
    let mut timestamps = BTreeMap::new();
    for (process, log) in report.delivered.iter().enumerate() {
        let mut last = BTreeMap::new();
        for received in log {
            let key = (received.timestamp, received.from, received.index);
            let before = last.insert(received.service == Service::Reliable, key);
            if before.is_some_and(|before| before >= key) {
                return Some(format!("{process} delivers {received:?} behind {before:?}"));
            }
            if let Some(scattering) = received.scattering {
                let one = *timestamps.entry(scattering).or_insert(received.timestamp);
                if one != received.timestamp {
                    return Some(format!("{scattering} has two timestamps"));
                }
            }
        }
    }
    None
}

/// All correct receivers of a scattering deliver it, or none does and its sender is notified.
fn outcomes(setup: &Setup, report: &Report) -> Option<String> {
    let is_alive = |process: u32| report.is_drained[process as usize].is_some();
    for (number, scattering) in setup.scatterings.iter().enumerate() {
        let receivers: Vec<u32> =
            scattering.to.iter().chain(&scattering.small_to).copied().collect();
        let has = |to: u32| {
            let log = &report.delivered[to as usize];
            log.iter().filter(|received| received.scattering == Some(number)).count()
        };
        let parts = |to: u32| receivers.iter().filter(|receiver| **receiver == to).count();
        let correct: BTreeSet<u32> =
            receivers.iter().copied().filter(|receiver| is_alive(*receiver)).collect();
        let done: Vec<u32> = correct.iter().copied().filter(|to| has(*to) == parts(*to)).collect();
        let is_half = correct.iter().any(|to| has(*to) != 0 && has(*to) != parts(*to));
        let is_atomic = done.is_empty() || done.len() == correct.len();
        if scattering.service == Service::Reliable && (is_half || !is_atomic) {
            return Some(format!("{number} was delivered by {done:?} of {correct:?}"));
        }
        if !is_alive(scattering.from) || !report.is_accepted[number] {
            continue;
        }
        let reported: Vec<u16> = report.failed[scattering.from as usize]
            .iter()
            .filter(|(failed, _)| *failed == number)
            .map(|(_, failed)| failed.index)
            .collect();
        for (index, to) in receivers.iter().enumerate().filter(|(_, to)| is_alive(**to)) {
            let log = &report.delivered[*to as usize];
            let is_delivered = log.iter().any(|received| {
                received.scattering == Some(number) && usize::from(received.index) == index
            });
            let times = reported.iter().filter(|reported| usize::from(**reported) == index).count();
            if is_delivered == (times > 0) || times > 1 {
                let outcome = if is_delivered { "delivered" } else { "not delivered" };
                return Some(format!("{number}/{index} is {outcome} at {to}, told {times} times"));
            }
        }
    }
    None
}

/// No process exceeds its receive buffer, and nothing is left at the end.
fn memory(setup: &Setup, report: &Report) -> Option<String> {
    for process in 0..setup.processes as usize {
        let most = report.bytes_held_max[process];
        if most > setup.received_bytes_max {
            return Some(format!("{process} held {most} bytes"));
        }
        if report.bytes_held[process].is_some_and(|held| held > 0) {
            return Some(format!("{process} still holds {:?} bytes", report.bytes_held[process]));
        }
        if report.is_drained[process] == Some(false) {
            return Some(format!("{process} has messages without a fate"));
        }
    }
    None
}
