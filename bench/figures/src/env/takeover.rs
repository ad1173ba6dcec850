//! Takeover from a primary to a secondary arbiter on Fastpass's rack.

use anyhow::{Result, ensure};
use onepipe_sim_arbiter::{Arbitration, OfferedLoad, Setup, SimEnv};
use onepipe_sim_network::{Fault, LinkFaults, Loss, NodeId};
use serde::{Deserialize, Serialize};

use crate::values::Values;

/// Hosts of the arbiters.
const PRIMARY: u32 = 31;
const SECONDARY: u32 = 30;
/// Time until all endpoints have sent requests and timeslots are granted.
const BEFORE_NS: u64 = 2_000_000;
/// Time of the fault and of its effects.
const AFTER_NS: u64 = 5_000_000;
/// Time until the remaining frames have been sent.
const QUIET_NS: u64 = 10_000_000;
/// Loss rate of the primary's packets over a lossy link. Ten consecutive watchdogs are lost in one
/// of five milliseconds.
const LOST_PPM: u32 = 850_000;
/// Sampling interval.
const LOOK_NS: u64 = 5_000;

/// The fault of the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PrimaryFault {
    /// The primary crashes.
    Crash,
    /// The primary runs, but for three milliseconds most of its grants and watchdogs are lost.
    LossyLink,
}

/// Parameters of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Takeover {
    /// The fault.
    pub fault: PrimaryFault,
    /// Timeslots with a frame, in thousandths.
    pub load_permille: u32,
    /// Number of trials, each at another time and with other traffic.
    pub times: u32,
}

impl Takeover {
    /// Runs the trials. Returns `pause_us`, the median of the longest time in which no endpoint
    /// sent in a timeslot, and `pause_max_us`; and over all trials `takeovers`, `granted`, the
    /// pairs that were granted a timeslot, and `contradictions` between them: timeslots granted to
    /// a sender or a receiver twice, by one arbiter or two.
    ///
    /// # Errors
    /// If no arbiter takes over in any trial, or packets are left.
    pub fn run(&self) -> Result<Values> {
        let (mut pauses, mut takeovers) = (Vec::new(), 0);
        let (mut granted, mut contradictions) = (0, 0);
        for seed in 1..=u64::from(self.times) {
            let mut env = self.env(seed);
            env.run_for_ns(BEFORE_NS);
            self.inject(&mut env, seed * 17_000);
            let (mut longest, mut pause) = (0, 0);
            for _ in 0..AFTER_NS / LOOK_NS {
                let before = env.slots_sent();
                env.run_for_ns(LOOK_NS);
                pause = if env.slots_sent() == before { pause + LOOK_NS } else { 0 };
                longest = longest.max(pause);
            }
            env.run_for_ns(QUIET_NS);
            takeovers += env.arbiter(SECONDARY).map_or(0, |one| one.stats().takeovers);
            let (waiting, sent, _) = env.raw_frames();
            ensure!(
                waiting == 0 && sent > 0,
                "{waiting} frames are left, {sent} sent, seed {seed}"
            );
            pauses.push(longest as f64 / 1e3);
            granted += env.grant_checker().granted();
            contradictions += env.grant_checker().violations.len();
        }
        ensure!(takeovers > 0, "no arbiter took over in any trial");
        pauses.sort_by(f64::total_cmp);
        let values = [
            ("pause_us", pauses.get(pauses.len() / 2)),
            ("pause_max_us", pauses.last()),
            ("takeovers", Some(&(takeovers as f64))),
            ("granted", Some(&(granted as f64))),
            ("contradictions", Some(&(contradictions as f64))),
        ];
        let known = values.into_iter().filter_map(|(name, value)| Some((name.to_owned(), *value?)));
        Ok(known.collect())
    }

    fn env(&self, seed: u64) -> SimEnv {
        let until_ns = BEFORE_NS + AFTER_NS;
        let offer = Some(OfferedLoad { until_ns, ..OfferedLoad::to_all(self.load_permille) });
        let arbitration = Arbitration { arbiters: 2, endpoints: SECONDARY, ..Arbitration::of(32) };
        let (arbitration, checks_grants) = (Some(arbitration), true);
        SimEnv::new(&Setup { offer, arbitration, checks_grants, seed, ..Setup::rack() })
    }

    fn inject(&self, env: &mut SimEnv, in_ns: u64) {
        match self.fault {
            PrimaryFault::Crash => env.schedule(in_ns, Fault::Crash(NodeId(PRIMARY))),
            PrimaryFault::LossyLink => {
                let link = env.card_link(PRIMARY);
                let loss = LinkFaults { loss: Loss::uniform(LOST_PPM), ..LinkFaults::default() };
                env.schedule(in_ns, Fault::SetLinkFaults(link, loss));
                env.schedule(in_ns + 3_000_000, Fault::SetLinkFaults(link, LinkFaults::default()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secondary_takes_over_without_conflicting_grants() {
        for fault in [PrimaryFault::Crash, PrimaryFault::LossyLink] {
            let values =
                Takeover { fault, load_permille: 300, times: 4 }.run().expect("it goes on");
            assert_eq!(values["contradictions"], 0.0, "{fault:?}");
            assert!(values["granted"] > 20_000.0, "{values:?}");
            assert!(values["pause_us"] <= values["pause_max_us"], "{values:?}");
            let is_dead = fault == PrimaryFault::Crash;
            assert!(!is_dead || values["takeovers"] == 4.0, "{values:?}");
            assert!(!is_dead || (900.0..1_500.0).contains(&values["pause_max_us"]), "{values:?}");
        }
    }
}
