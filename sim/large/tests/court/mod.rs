//! Properties of every report, whichever process crashes.

use std::collections::{BTreeMap, BTreeSet};

use onepipe_endpoint::Service;
use onepipe_sim_large::{Setup, Story};

/// Verifies a report. Returns the first violation, if any.
pub fn judge(setup: &Setup, story: &Story) -> Option<String> {
    order(story).or_else(|| fates(setup, story)).or_else(|| memory(setup, story))
}

/// All processes deliver in one order, and nothing twice.
fn order(story: &Story) -> Option<String> {
    let mut timestamps = BTreeMap::new();
    for (process, log) in story.delivered.iter().enumerate() {
        let mut last = BTreeMap::new();
        for seen in log {
            let key = (seen.timestamp, seen.from, seen.index);
            let before = last.insert(seen.service == Service::Reliable, key);
            if before.is_some_and(|before| before >= key) {
                return Some(format!("{process} delivers {seen:?} behind {before:?}"));
            }
            if let Some(scattering) = seen.scattering {
                let one = *timestamps.entry(scattering).or_insert(seen.timestamp);
                if one != seen.timestamp {
                    return Some(format!("{scattering} has two timestamps"));
                }
            }
        }
    }
    None
}

/// All correct receivers of a scattering deliver it, or none does and its sender is notified.
fn fates(setup: &Setup, story: &Story) -> Option<String> {
    let lives = |process: u32| story.is_drained[process as usize].is_some();
    for (number, scattering) in setup.scatterings.iter().enumerate() {
        let receivers: Vec<u32> =
            scattering.to.iter().chain(&scattering.small_to).copied().collect();
        let has = |to: u32| {
            let log = &story.delivered[to as usize];
            log.iter().filter(|seen| seen.scattering == Some(number)).count()
        };
        let parts = |to: u32| receivers.iter().filter(|receiver| **receiver == to).count();
        let correct: BTreeSet<u32> =
            receivers.iter().copied().filter(|receiver| lives(*receiver)).collect();
        let done: Vec<u32> = correct.iter().copied().filter(|to| has(*to) == parts(*to)).collect();
        let is_half = correct.iter().any(|to| has(*to) != 0 && has(*to) != parts(*to));
        let is_atomic = done.is_empty() || done.len() == correct.len();
        if scattering.service == Service::Reliable && (is_half || !is_atomic) {
            return Some(format!("{number} was delivered by {done:?} of {correct:?}"));
        }
        if !lives(scattering.from) || !story.is_accepted[number] {
            continue;
        }
        let told: Vec<u16> = story.failed[scattering.from as usize]
            .iter()
            .filter(|(failed, _)| *failed == number)
            .map(|(_, failed)| failed.index)
            .collect();
        for (index, to) in receivers.iter().enumerate().filter(|(_, to)| lives(**to)) {
            let log = &story.delivered[*to as usize];
            let is_delivered = log
                .iter()
                .any(|seen| seen.scattering == Some(number) && usize::from(seen.index) == index);
            let times = told.iter().filter(|told| usize::from(**told) == index).count();
            if is_delivered == (times > 0) || times > 1 {
                let fate = if is_delivered { "delivered" } else { "not delivered" };
                return Some(format!("{number}/{index} is {fate} at {to}, told {times} times"));
            }
        }
    }
    None
}

/// No process exceeds its receive buffer, and nothing is left at the end.
fn memory(setup: &Setup, story: &Story) -> Option<String> {
    for process in 0..setup.processes as usize {
        let most = story.bytes_held_max[process];
        if most > setup.received_bytes_max {
            return Some(format!("{process} held {most} bytes"));
        }
        if story.bytes_held[process].is_some_and(|held| held > 0) {
            return Some(format!("{process} still holds {:?} bytes", story.bytes_held[process]));
        }
        if story.is_drained[process] == Some(false) {
            return Some(format!("{process} has messages without a fate"));
        }
    }
    None
}
