//! Takeover from a primary to a secondary arbiter on Fastpass's rack.

use anyhow::{Result, ensure};
use onepipe_sim_arbiter::{Arbitration, OfferedLoad, Setup, SimEnv};
use onepipe_sim_network::{Fault, LinkFaults, Loss, NodeId};
use serde::{Deserialize, Serialize};

use crate::values::Values;

/// Host of the primary.
const PRIMARY: u32 = 31;
/// Host of the secondary.
const SECONDARY: u32 = 30;
/// Time until all endpoints have sent requests and timeslots are granted.
const WARM_UP_NS: u64 = 2_000_000;
/// Time of the fault and of its effects.
const MEASURE_NS: u64 = 5_000_000;
/// Time until the remaining frames have been sent.
const DRAIN_NS: u64 = 10_000_000;
/// Loss rate of the primary's packets on its lossy link. Ten watchdogs in a row, after which the
/// secondary takes over, are lost in about one of five milliseconds.
const LOST_PPM: u32 = 850_000;
/// Sampling interval.
const SAMPLE_NS: u64 = 5_000;

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
    pub trials: u32,
}

impl Takeover {
    /// Runs the trials. The pause of a trial is the longest time in which no endpoint sent in a
    /// timeslot. Returns `pause_us`, the median pause, and `pause_max_us`, the longest; and, summed
    /// over all trials, `takeovers`, `granted` (the number of grants) and `contradictions` (the
    /// timeslots granted to a sender or a receiver twice, by one arbiter or by two).
    ///
    /// # Errors
    /// If no arbiter takes over in any trial, or packets are not sent by the end of a trial.
    pub fn run(&self) -> Result<Values> {
        let (mut pauses, mut takeovers) = (Vec::new(), 0);
        let (mut granted, mut contradictions) = (0, 0);
        for seed in 1..=u64::from(self.trials) {
            let mut env = self.env(seed);
            env.run_for_ns(WARM_UP_NS);
            self.inject(&mut env, seed * 17_000);
            let (mut longest, mut pause) = (0, 0);
            for _ in 0..MEASURE_NS / SAMPLE_NS {
                let before = env.slots_sent();
                env.run_for_ns(SAMPLE_NS);
                pause = if env.slots_sent() == before { pause + SAMPLE_NS } else { 0 };
                longest = longest.max(pause);
            }
            env.run_for_ns(DRAIN_NS);
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
        let values = values.into_iter();
        Ok(values.filter_map(|(name, value)| Some((name.to_owned(), *value?))).collect())
    }

    fn env(&self, seed: u64) -> SimEnv {
        let until_ns = WARM_UP_NS + MEASURE_NS;
        let offer = Some(OfferedLoad { until_ns, ..OfferedLoad::to_all(self.load_permille) });
        let arbitration = Arbitration { arbiters: 2, endpoints: SECONDARY, ..Arbitration::of(32) };
        let (arbitration, checks_grants) = (Some(arbitration), true);
        SimEnv::new(&Setup { offer, arbitration, checks_grants, seed, ..Setup::rack() })
    }

    /// Schedules the fault after `delay_ns`.
    fn inject(&self, env: &mut SimEnv, delay_ns: u64) {
        match self.fault {
            PrimaryFault::Crash => env.schedule(delay_ns, Fault::Crash(NodeId(PRIMARY))),
            PrimaryFault::LossyLink => {
                let link = env.card_link(PRIMARY);
                let loss = LinkFaults { loss: Loss::uniform(LOST_PPM), ..LinkFaults::default() };
                env.schedule(delay_ns, Fault::SetLinkFaults(link, loss));
                let healthy = LinkFaults::default();
                env.schedule(delay_ns + 3_000_000, Fault::SetLinkFaults(link, healthy));
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
                Takeover { fault, load_permille: 300, trials: 4 }.run().expect("it goes on");
            assert_eq!(values["contradictions"], 0.0, "{fault:?}");
            assert!(values["granted"] > 20_000.0, "{values:?}");
            assert!(values["pause_us"] <= values["pause_max_us"], "{values:?}");
            let is_dead = fault == PrimaryFault::Crash;
            assert!(!is_dead || values["takeovers"] == 4.0, "{values:?}");
            assert!(!is_dead || (900.0..1_500.0).contains(&values["pause_max_us"]), "{values:?}");
        }
    }
}
