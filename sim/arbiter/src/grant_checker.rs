//! Checks the grants and slot frames that reach endpoints, independently of all machines.

use std::collections::BTreeMap;

use onepipe_base::ProcessId;
use onepipe_wire::{FcpPart, Frame, NO_PATH, Opcode, Slot};

/// The grants of a timeslot.
#[derive(Clone, Debug, Default)]
struct Granted {
    /// Destination of each source, and the arbiter that granted it.
    by_src: BTreeMap<u16, (u16, u32)>,
    by_dst: BTreeMap<u16, u16>,
}

/// All grants that have reached endpoints, by timeslot, and the contradictions between them.
#[derive(Clone, Debug, Default)]
pub struct GrantChecker {
    slots: BTreeMap<u64, Granted>,
    /// Timeslot, source, destination and path of each slot frame, in order of arrival.
    pub sent: Vec<(u32, u16, u16, u8)>,
    /// Descriptions of all contradictions.
    pub violations: Vec<String>,
    granted: u64,
}

impl GrantChecker {
    /// Returns the number of distinct grants: pairs and timeslots.
    pub const fn granted(&self) -> u64 {
        self.granted
    }

    /// Checks a frame that is about to reach an endpoint.
    pub fn observe(&mut self, frame: &[u8]) {
        let Ok(frame) = Frame::parse(frame) else { return };
        let (src, dst) = (frame.header.src(), frame.header.dst());
        match frame.opcode {
            Opcode::Fcp => {
                let Ok(fcp) = onepipe_wire::Fcp::parse(0, frame.payload) else { return };
                for part in fcp.parts() {
                    if let FcpPart::Grants(grants) = part {
                        for grant in grants.grants() {
                            let slot = grants.base() + u64::from(grant.slot);
                            self.on_grant(slot, (dst.0 as u16, grant.dst), src);
                        }
                    }
                }
            }
            Opcode::Slot => {
                if let Ok((slot, _)) = Slot::parse(frame.payload) {
                    self.sent.push((slot.timeslot, src.0 as u16, dst.0 as u16, slot.path));
                }
            }
            _ => {}
        }
    }

    fn on_grant(&mut self, slot: u64, (src, dst): (u16, u16), by: ProcessId) {
        let granted = self.slots.entry(slot).or_default();
        match granted.by_src.get(&src) {
            // Repeated, as in a retransmitted control packet.
            Some(&(before, arbiter)) if (before, arbiter) == (dst, by.0) => return,
            Some(&(before, arbiter)) => self.violations.push(format!(
                "timeslot {slot} of {src} to {before} by {arbiter}, and to {dst} by {}",
                by.0
            )),
            None => {}
        }
        if let Some(before) = granted.by_dst.insert(dst, src).filter(|before| *before != src) {
            self.violations.push(format!("timeslot {slot}: {before} and {src} both to {dst}"));
        }
        granted.by_src.insert(src, (dst, by.0));
        self.granted += 1;
    }

    /// Returns the number of frames by path, from frame number `first` on.
    pub fn by_path(&self, first: usize) -> BTreeMap<u8, usize> {
        let mut counts = BTreeMap::new();
        for (.., path) in self.sent.iter().skip(first).filter(|(.., path)| *path != NO_PATH) {
            *counts.entry(*path).or_insert(0) += 1;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_double_grants_but_not_repeats() {
        let (one, other) = (ProcessId(30), ProcessId(31));
        let mut grant_checker = GrantChecker::default();
        for _ in 0..2 {
            grant_checker.on_grant(7, (0, 1), one);
            grant_checker.on_grant(7, (2, 3), one);
            grant_checker.on_grant(8, (0, 3), other);
        }
        assert_eq!((grant_checker.granted(), grant_checker.violations.len()), (3, 0));
        grant_checker.on_grant(7, (0, 1), other);
        assert_eq!(
            grant_checker.violations.len(),
            1,
            "the same by another: {:?}",
            grant_checker.violations
        );
        grant_checker.on_grant(7, (0, 4), one);
        assert_eq!(
            grant_checker.violations.len(),
            2,
            "one sends to two: {:?}",
            grant_checker.violations
        );
        grant_checker.on_grant(8, (1, 3), other);
        assert_eq!(
            grant_checker.violations.len(),
            3,
            "two send to one: {:?}",
            grant_checker.violations
        );
    }
}
