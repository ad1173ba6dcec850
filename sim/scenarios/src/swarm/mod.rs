//! Random scenarios: a seed determines the shape, clocks, load, controllers, and faults with their
//! rates. In a first phase faults are injected and no invariant may be violated; then all faults
//! are healed, and every process must recover except, for some seeds, one that was removed.

mod calm;
mod draw;
mod fault;
mod give_up;
mod shrink;
mod stop;

use onepipe_endpoint::SendError;
use onepipe_sim_engine::{NANOSECOND, Random};
use onepipe_sim_network::Placement;

use crate::{Fabric, Plan, Report};

pub use fault::FaultEvent;
pub use shrink::RunOutcome;

/// Time in which messages must get their outcome after healing, in us: a sender gives a receiver up
/// after eight probes, with doubling timeouts from 200 us on.
const DRAIN_US: u64 = 200_000;
/// Frames of the first message to a receiver: connect, grant, message and acknowledgement, for each
/// of two services.
const FRAMES_PER_PAIR: u64 = 8;

/// The scenario of a seed.
#[derive(Clone, Debug)]
pub struct Swarm {
    /// Fabric and load.
    pub plan: Plan,
    /// Length of the phase in which faults are injected, in us.
    pub fault_phase_us: u64,
    /// Faults: us after the start of the load, and fault.
    pub timeline: Vec<(u64, FaultEvent)>,
    /// Process that is removed when everything else is healed; the others must make progress.
    pub removed: Option<u32>,
    /// Whether controllers may be alone in a rack or on a host. Otherwise the last process shares
    /// it, and no fault removes that process and leaves them.
    pub isolates_controllers: bool,
    /// Whether switches pause or restart, and processes restart alone: no process that runs may
    /// lose its incarnation.
    pub is_calm: bool,
    /// Time after which every reliable scattering must have ended, in us, whether there are
    /// controllers or not.
    pub ends_after_us: Option<u64>,
}

impl Swarm {
    /// Draws the scenario of `seed`.
    pub fn draw(seed: u64) -> Self {
        let mut swarm = Self::draw_unbundled(seed);
        draw::ack_bundles(&mut swarm.plan, seed);
        swarm
    }

    /// Draws the scenario of `seed` without bundles of acknowledgements: regression tests keep the
    /// scenarios that they had before those.
    pub fn draw_unbundled(seed: u64) -> Self {
        let mut swarm = Self::draw_base(seed);
        draw::returning_leavers(&mut swarm, seed);
        stop::draw(&mut swarm, seed);
        give_up::draw(&mut swarm, seed);
        swarm
    }

    /// Draws the scenario of `seed` without processes that stop or return and without time limits
    /// of reliable scatterings: regression tests keep the scenarios that they had before those.
    pub fn draw_base(seed: u64) -> Self {
        let mut swarm =
            Self::draw_as(seed, draw::placement(seed), draw::isolates_controllers(seed));
        calm::draw(&mut swarm, seed);
        swarm
    }

    /// Draws the scenario of `seed` and makes it one in which switches pause or restart and nothing
    /// dies. `None` without controllers.
    pub fn draw_calm(seed: u64) -> Option<Self> {
        let mut swarm =
            Self::draw_as(seed, draw::placement(seed), draw::isolates_controllers(seed));
        swarm.plan.control_plane.as_ref()?;
        calm::calm(&mut swarm, &mut Random::named(seed, "calm", 1));
        Some(swarm)
    }

    /// Draws the scenario of `seed` with this placement, and never isolates controllers.
    pub fn draw_with(seed: u64, placement: Placement) -> Self {
        Self::draw_as(seed, placement, false)
    }

    fn draw_as(seed: u64, placement: Placement, isolates_controllers: bool) -> Self {
        let mut random = Random::named(seed, "swarm", 0);
        let (plan, fault_phase_us) = draw::plan(seed, &mut random, placement, isolates_controllers);
        let mut timeline = Vec::new();
        for _ in 0..random.between(2, 5) {
            draw::fault(&mut random, plan.control_plane.is_some(), fault_phase_us, &mut timeline);
        }
        if plan.control_plane.is_some() {
            timeline.extend(draw::old_store(seed, fault_phase_us));
        }
        timeline.sort_by_key(|(at_us, _)| *at_us);
        // An independent random stream, so that the other draws of a seed do not change.
        let removed = draw::removed(&plan, &mut Random::named(seed, "missing", 0));
        Self {
            plan,
            fault_phase_us,
            timeline,
            removed,
            isolates_controllers,
            is_calm: false,
            ends_after_us: None,
        }
    }

    /// Returns the kind of each fault of the scenario.
    pub fn fault_names(&self) -> impl Iterator<Item = &'static str> + '_ {
        let names = self.timeline.iter().filter_map(|(_, fault)| fault.name());
        names.chain(self.removed.map(|_| "process removed"))
    }

    /// Runs the scenario and returns its report.
    pub fn run(&self) -> Report {
        self.execute().finish()
    }

    /// Runs the scenario up to the point at which [`Fabric::finish`] is due.
    pub fn execute(&self) -> Fabric {
        let mut plan = self.plan.clone();
        if self.is_calm {
            plan.network.steps_max = calm::steps_max(self);
        }
        let mut fabric = Fabric::new(plan);
        fabric.network().run_for(self.plan.load_starts_ns * NANOSECOND);
        if self.is_calm {
            fabric.protect_living();
        }
        if self.is_calm || !self.timeline.iter().any(|(_, fault)| fault.may_lose_leaves()) {
            fabric.protect_leavers();
        }
        if let Some(us) = self.ends_after_us.filter(|_| self.plan.control_plane.is_none()) {
            fabric.expect_no_controllers(us);
        }
        let mut now_us = 0;
        for (at_us, fault) in &self.timeline {
            fabric.run_us(at_us - now_us);
            now_us = *at_us;
            let ends_process = matches!(fault, FaultEvent::CrashProcess(_) | FaultEvent::Leave(_));
            let is_pause = self.is_calm && !ends_process;
            if is_pause || self.isolates_controllers || !fault.hits_last_process(&mut fabric) {
                fault.inject(&mut fabric);
            }
        }
        fabric.run_us(self.fault_phase_us.saturating_sub(now_us));
        if self.is_calm {
            fabric.expect_registered();
        }
        fabric.stop_load();
        fabric.heal();
        if let Some(id) = self.removed {
            fabric.remove_process(id);
        }
        fabric.expect_liveness();
        if fabric.is_stuck() {
            return fabric;
        }
        scatter_all_to_all(&mut fabric, self.final_round());
        match self.ends_after_us {
            Some(us) => {
                fabric.run_us(us);
                fabric.expect_ended(0);
            }
            None => {
                fabric.drain_us(DRAIN_US);
            }
        }
        fabric
    }

    /// Returns how the final round is divided: the number of receivers of one batch, and the pause
    /// after each batch in us.
    ///
    /// One batch is enough, unless hosts pay CPU time for each frame, and either no controller
    /// resolves failures or none may occur. Then no link may time out while hosts are busy, because
    /// that would end all reliable promises (docs/design/failure.md, "What happens on a dead
    /// link?"). So each batch must take at most a quarter of a link timeout.
    fn final_round(&self) -> (usize, u64) {
        let cpu = self.plan.network.cpu;
        let pair_ns = FRAMES_PER_PAIR * (cpu.receive_ns + cpu.send_ns);
        let is_resolved = self.plan.control_plane.is_some() && !self.is_calm;
        if is_resolved || pair_ns == 0 {
            return (usize::MAX, 0);
        }
        let receivers = (self.plan.switch.link_timeout_ns / 4 / pair_ns).max(1);
        (receivers as usize, (receivers * pair_ns).div_ceil(1_000))
    }
}

/// Draws and runs the scenario of `seed`.
pub fn swarm(seed: u64) -> Report {
    Swarm::draw(seed).run()
}

/// Checks that the fabric works after healing: every process scatters to all processes, in batches
/// of `receivers` with a pause after each.
fn scatter_all_to_all(fabric: &mut Fabric, (receivers, pause_us): (usize, u64)) {
    let processes = fabric.members();
    let is_present = |to: &u32| !fabric.is_removed(*to);
    let all: Vec<(u32, u32)> = (0..processes).filter(is_present).map(|to| (to, 64)).collect();
    for from in 0..processes {
        for batch in all.chunks(receivers) {
            scatter_to(fabric, from, batch);
            if pause_us > 0 {
                fabric.run_us(pause_us);
            }
        }
    }
}

/// Scatters to `receivers`, given with their payload lengths, by both services.
fn scatter_to(fabric: &mut Fabric, from: u32, receivers: &[(u32, u32)]) {
    for scatter in [Fabric::scatter, Fabric::scatter_reliably] {
        if let Some(Err(error)) = scatter(fabric, from, receivers) {
            // The send buffer may still be full: the load's own messages drain it. A process that
            // is about to rejoin refuses, too.
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
