//! A seed decides everything: shape, clocks, load, controllers, faults and their rates. First a
//! phase in which anything may happen and nothing may be wrong, then healing, and everybody must
//! come back but, in some seeds, one who is gone for good.

mod draw;
mod mishap;
mod shrink;

use onepipe_endpoint::SendError;
use onepipe_sim_engine::{NANOSECOND, Random};
use onepipe_sim_network::Placement;

use crate::{Fabric, Plan, Report};

pub use mishap::Mishap;
pub use shrink::Outcome;

/// How long messages may wait for their fate after healing: a receiver that is given up costs eight
/// probes, each twice as long after the last, from 200 us on.
const SETTLE_US: u64 = 200_000;
/// A message to whom nothing was sent before takes a connect, a grant, itself and its
/// acknowledgement; by each of two services.
const FRAMES_A_PAIR: u64 = 8;

/// What a seed stands for.
#[derive(Clone, Debug)]
pub struct Swarm {
    /// The fabric and its load.
    pub plan: Plan,
    /// How long anything may happen, in us.
    pub wild_us: u64,
    /// What befalls it: us after the load has started, and what.
    pub timeline: Vec<(u64, Mishap)>,
    /// A process that ends for good as everything else is healed: the others must get on without.
    pub missing: Option<u32>,
    /// Controllers may be alone in a rack or on a host, and nobody beside them is spared.
    pub is_lonely: bool,
}

impl Swarm {
    /// What `seed` stands for.
    pub fn draw(seed: u64) -> Self {
        Self::draw_as(seed, draw::placement(seed), draw::is_lonely(seed))
    }

    /// The same with the switches' machines there, and some process beside the controllers.
    pub fn draw_with(seed: u64, placement: Placement) -> Self {
        Self::draw_as(seed, placement, false)
    }

    fn draw_as(seed: u64, placement: Placement, is_lonely: bool) -> Self {
        let mut random = Random::named(seed, "swarm", 0);
        let (plan, wild_us) = draw::plan(seed, &mut random, placement, is_lonely);
        let mut timeline = Vec::new();
        for _ in 0..random.between(2, 5) {
            draw::mishap(&mut random, plan.court.is_some(), wild_us, &mut timeline);
        }
        timeline.sort_by_key(|(at_us, _)| *at_us);
        // A stream of chance of its own: so the rest of a seed is what it was without.
        let missing = draw::missing(&plan, &mut Random::named(seed, "missing", 0));
        Self { plan, wild_us, timeline, missing, is_lonely }
    }

    /// Runs it and reports.
    pub fn run(&self) -> Report {
        self.play().finish()
    }

    /// Runs it, up to where [`Fabric::finish`] is due.
    pub fn play(&self) -> Fabric {
        let mut fabric = Fabric::new(self.plan.clone());
        fabric.network().run_for(self.plan.load_starts_ns * NANOSECOND);
        let mut now_us = 0;
        for (at_us, mishap) in &self.timeline {
            fabric.run_us(at_us - now_us);
            now_us = *at_us;
            if self.is_lonely || !mishap.spares(&mut fabric) {
                mishap.befall(&mut fabric);
            }
        }
        fabric.run_us(self.wild_us.saturating_sub(now_us));
        fabric.stop_load();
        fabric.heal();
        if let Some(id) = self.missing {
            fabric.bury(id);
        }
        fabric.expect_liveness();
        if fabric.is_lost() {
            return fabric;
        }
        scatter_to_everybody(&mut fabric, self.turn());
        fabric.settle_us(SETTLE_US);
        fabric
    }

    /// To how many receivers at a time one process scatters in the end, and how long it rests then,
    /// in us. Where hosts pay for each frame and nobody resolves failures, nobody's link may be
    /// taken for dead meanwhile: nothing reliable is promised then (design: failure.md, "What
    /// happens on a dead link?"). So each turn is to take a quarter of a link timeout at most.
    fn turn(&self) -> (usize, u64) {
        let cpu = self.plan.network.cpu;
        let pair_ns = FRAMES_A_PAIR * (cpu.receive_ns + cpu.send_ns);
        if self.plan.court.is_some() || pair_ns == 0 {
            return (usize::MAX, 0);
        }
        let receivers = (self.plan.switch.link_timeout_ns / 4 / pair_ns).max(1);
        (receivers as usize, (receivers * pair_ns).div_ceil(1_000))
    }
}

/// Draws what `seed` stands for and runs it.
pub fn swarm(seed: u64) -> Report {
    Swarm::draw(seed).run()
}

/// After healing the fabric must still work: everybody scatters to everybody, to so many receivers
/// at a time, and rests for so many us then.
fn scatter_to_everybody(fabric: &mut Fabric, (receivers, rest_us): (usize, u64)) {
    let processes = fabric.members();
    let is_there = |to: &u32| !fabric.is_buried(*to);
    let everybody: Vec<(u32, u32)> = (0..processes).filter(is_there).map(|to| (to, 64)).collect();
    for from in 0..processes {
        for some in everybody.chunks(receivers) {
            scatter_to(fabric, from, some);
            if rest_us > 0 {
                fabric.run_us(rest_us);
            }
        }
    }
}

fn scatter_to(fabric: &mut Fabric, from: u32, receivers: &[(u32, u32)]) {
    for scatter in [Fabric::scatter, Fabric::scatter_reliably] {
        if let Some(Err(error)) = scatter(fabric, from, receivers) {
            // A send buffer that is still full is lawful; the load's own messages must clear it.
            // Who is still to come back says no, too.
            debug_assert!(
                matches!(
                    error,
                    SendError::BufferFull { .. } | SendError::Excluded | SendError::Left
                ),
                "{error}"
            );
        }
    }
}
