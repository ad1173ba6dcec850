//! Failures of members during a bulk multicast: what the others learn of them.

use anyhow::{Result, ensure};
use onepipe_bulk::Outcome;
use onepipe_sim_bulk::{Setup, SimEnv};
use onepipe_topology::Shape;
use serde::{Deserialize, Serialize};

use crate::values::Values;

/// Number of objects of a transfer.
const OBJECTS: usize = 8;
/// Size of an object in bytes.
const OBJECT_LEN: usize = 1 << 18;
/// Limit on the duration of a run, in ns of virtual time.
const RUN_NS: u64 = 10_000_000_000;

/// Parameters of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disruption {
    /// Number of members, the root included.
    pub members: u32,
    /// Number of moments at which a member crashes, from the beginning of the transfer to as long
    /// again after its end. At each, the root, the first relay and the last member crash in
    /// separate trials.
    pub moments: u32,
}

impl Disruption {
    /// Runs all trials. Returns `aware_percent`, the share of survivors whose group ends; `failed`,
    /// the number of survivors that learn of the failure; `closed`, the number of members whose
    /// group closes successfully; and `wrong`, how many of these do so although a member lacks an
    /// object.
    ///
    /// # Errors
    /// If the undisturbed transfer does not end.
    pub fn run(&self) -> Result<Values> {
        let setup = Setup {
            objects: vec![OBJECT_LEN; OBJECTS],
            ..Setup::new(Shape::testbed(), self.members)
        };
        let undisturbed = SimEnv::new(&setup).run(RUN_NS);
        let Some(last_ns) = undisturbed.last_ns().filter(|_| undisturbed.is_clean) else {
            anyhow::bail!("the undisturbed transfer to {} members does not end", self.members)
        };
        ensure!(self.moments > 0, "a run has at least one moment");
        let (mut aware, mut survivors) = (0_u64, 0_u64);
        let (mut failed, mut closed, mut wrong) = (0_u64, 0_u64, 0_u64);
        for moment in 0..u64::from(self.moments) {
            // The second half of the moments lies after the last delivery.
            let at_ns = 1 + 2 * last_ns * moment / u64::from(self.moments);
            for rank in [0, 1, self.members as usize - 1] {
                let mut env = SimEnv::new(&setup);
                env.crash(rank, at_ns);
                let outcome = env.run(RUN_NS);
                let ended = outcome.ended.iter().enumerate();
                for (_, ended) in ended.filter(|(of, _)| *of != rank) {
                    survivors += 1;
                    aware += u64::from(ended.is_some());
                    failed += u64::from(*ended == Some(Outcome::Failed));
                }
                let closes = outcome.ended.iter().filter(|one| **one == Some(Outcome::Complete));
                let closes = closes.count() as u64;
                let have_all =
                    outcome.delivered[1..].iter().all(|count| *count as usize == OBJECTS);
                closed += closes;
                wrong += if have_all { 0 } else { closes };
            }
        }
        let values = [
            ("aware_percent", 100.0 * aware as f64 / survivors.max(1) as f64),
            ("failed", failed as f64),
            ("closed", closed as f64),
            ("wrong", wrong as f64),
        ];
        Ok(values.map(|(name, value)| (name.to_owned(), value)).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survivors_learn_of_a_failure() {
        let values = Disruption { members: 4, moments: 4 }.run().expect("it ends");
        assert_eq!((values["aware_percent"], values["wrong"]), (100.0, 0.0), "{values:?}");
        assert!(values["failed"] > 0.0 && values["closed"] > 0.0, "{values:?}");
        assert!(Disruption { members: 4, moments: 0 }.run().is_err());
    }
}
