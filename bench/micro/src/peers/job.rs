//! Input and output of one Java process: `Job` and `Deliveries` in bench/peers.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// Parameters of one process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job<'j> {
    /// What the process is: a member of a rival, or the media driver of Aeron.
    pub role: &'static str,
    pub process: u32,
    pub processes: u32,
    /// Messages that a member sends per second, each to all members.
    pub rate: f64,
    /// Message size in bytes, at least 8.
    pub bytes: usize,
    /// Begin and end of the measurement on the machine's monotonic clock, in ns.
    pub window_ns: [u64; 2],
    /// Free UDP ports, one for each member.
    pub ports: &'j [u16],
    /// Folder for the files of this run, in shared memory.
    pub folder: &'j Path,
}

impl Job<'_> {
    /// Returns the arguments of the program, in the order of `Job.java`.
    pub(super) fn arguments(&self) -> Result<Vec<String>> {
        let ports: Vec<String> = self.ports.iter().map(u16::to_string).collect();
        let folder = self.folder.to_str().context("the folder of a run has a UTF-8 path")?;
        Ok(vec![
            self.role.to_string(),
            self.process.to_string(),
            self.processes.to_string(),
            self.rate.to_string(),
            self.bytes.to_string(),
            self.window_ns[0].to_string(),
            self.window_ns[1].to_string(),
            ports.join(","),
            folder.to_string(),
        ])
    }
}

/// Result of one process.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct Outcome {
    /// Length of the measurement in s, and the CPU time in it.
    pub seconds: f64,
    pub cpu_seconds: f64,
    /// Latencies in ns from the due time of a message to its delivery. Value and count.
    pub latencies: Vec<(u64, u64)>,
    /// Messages that were due in the measurement and did not arrive; below 0 if some arrived twice.
    pub lost: i64,
    /// Digest of the order of the deliveries.
    pub order_digest: u64,
}

/// Checks that each member delivered messages, none of them twice, and if `is_ordered` that all
/// members delivered the same order.
pub(super) fn check(members: &[Outcome], is_ordered: bool) -> Result<()> {
    for (at, member) in members.iter().enumerate() {
        ensure!(!member.latencies.is_empty(), "member {at} delivered nothing in the measurement");
        ensure!(member.lost >= 0, "member {at} delivered {} messages twice", -member.lost);
        // A member that misses a message has another digest without another order.
        let is_comparable = is_ordered && member.lost == 0 && members[0].lost == 0;
        ensure!(
            !is_comparable || member.order_digest == members[0].order_digest,
            "members 0 and {at} disagree on the order"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(order_digest: u64, lost: i64) -> Outcome {
        Outcome { latencies: vec![(1, 1)], lost, order_digest, ..Outcome::default() }
    }

    #[test]
    fn detects_members_that_disagree_on_order() {
        let members = [outcome(7, 0), outcome(8, 0)];
        check(&members, false).expect("no order was promised");
        let refusal = check(&members, true).expect_err("they differ");
        assert_eq!(refusal.to_string(), "members 0 and 1 disagree on the order");
        check(&[outcome(7, 0), outcome(8, 1)], true).expect("a lost message explains it");
    }

    #[test]
    fn refuses_duplicates_and_missing_deliveries() {
        assert!(check(&[outcome(7, -1)], false).is_err());
        assert!(check(&[Outcome::default()], false).is_err());
    }
}
