//! A link that drops packets unnoticed: how long the arbiter goes on allocating timeslots over it.

use anyhow::{Result, ensure};
use onepipe_sim_arbiter::{Arbitration, OfferedLoad, Setup, SimEnv};
use onepipe_sim_network::{Fault, LinkFaults, Loss};
use onepipe_topology::Shape;
use serde::{Deserialize, Serialize};

use crate::values::Values;

/// Time until all endpoints have sent requests and timeslots are granted.
const WARM_UP_NS: u64 = 2_000_000;
/// Limit on the time until the link is avoided.
const LIMIT_NS: u64 = 20_000_000;
/// Time without a packet after which the link counts as avoided. At the load of these runs it
/// carries a packet every 2 us.
const AVOIDED_NS: u64 = 1_000_000;
/// Sampling interval.
const SAMPLE_NS: u64 = 5_000;

/// Parameters of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Isolation {
    /// Share of the packets that the link drops, in millionths.
    pub lost_ppm: u32,
    /// Number of trials, each at another time, on another link and with other traffic.
    pub trials: u32,
}

impl Isolation {
    /// Runs the trials: one of four links from a rack to the spines begins to drop packets. Returns
    /// `avoided_us`, the median time until the last packet in a timeslot on that link, and
    /// `avoided_max_us`, the longest.
    ///
    /// # Errors
    /// If a link is not avoided within 20 ms, or a timeslot is granted twice.
    pub fn run(&self) -> Result<Values> {
        let trials = (1..=u64::from(self.trials)).map(|seed| self.trial_us(seed));
        let mut avoided = trials.collect::<Result<Vec<f64>>>()?;
        avoided.sort_by(f64::total_cmp);
        let values =
            [("avoided_us", avoided.get(avoided.len() / 2)), ("avoided_max_us", avoided.last())];
        let values = values.into_iter();
        Ok(values.filter_map(|(name, value)| Some((name.to_owned(), *value?))).collect())
    }

    /// Returns the time until the link is avoided, in us.
    fn trial_us(&self, seed: u64) -> Result<f64> {
        let setup = Setup {
            shape: Shape::leaf_spine(4, 4, 8)?,
            arbitration: Some(Arbitration { endpoints: 24, ..Arbitration::of(32) }),
            offer: Some(OfferedLoad { group_hosts: 8, ..OfferedLoad::to_all(300) }),
            checks_grants: true,
            seed,
            ..Setup::rack()
        };
        let mut env = SimEnv::new(&setup);
        env.run_for_ns(WARM_UP_NS + seed * 17_000);
        let link = env.up_link(0, (seed % 4) as u16);
        let loss = LinkFaults { loss: Loss::uniform(self.lost_ppm), ..LinkFaults::default() };
        env.schedule(0, Fault::SetLinkFaults(link, loss));
        let (mut since_ns, mut last_ns, mut before) = (0, 0, env.slots_on(link));
        while since_ns < last_ns + AVOIDED_NS {
            ensure!(since_ns < LIMIT_NS, "{LIMIT_NS} ns later the link still carries packets");
            env.run_for_ns(SAMPLE_NS);
            since_ns += SAMPLE_NS;
            let now = env.slots_on(link);
            if now != before {
                (before, last_ns) = (now, since_ns);
            }
        }
        let violations = &env.grant_checker().violations;
        ensure!(violations.is_empty(), "seed {seed}: {violations:?}");
        Ok(last_ns as f64 / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lossy_link_is_avoided_sooner_the_more_it_loses() {
        let at = |lost_ppm| Isolation { lost_ppm, trials: 2 }.run().expect("it is avoided");
        let (some, all) = (at(100_000), at(1_000_000));
        assert!(all["avoided_us"] < some["avoided_us"], "{all:?} and {some:?}");
        assert!(all["avoided_us"] <= all["avoided_max_us"], "{all:?}");
        let healthy = Isolation { lost_ppm: 0, trials: 1 }.run();
        assert!(healthy.is_err_and(|error| error.to_string().contains("still carries")));
    }
}
