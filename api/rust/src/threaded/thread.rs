//! The thread that drives a pipe.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use onepipe_base::ScatteringId;
use onepipe_endpoint::{Outcome, SendError, SendFailed};
use onepipe_transport_clock::sharpen_timers;
use onepipe_transport_driver::Progress;
use onepipe_wire::Service;

use super::parcel::{Chute, Parcel};
use super::shared::{OnEvent, OnProcessFailed, Shared, lock, rest};
use super::sheet::Press;
use crate::Idle;
use crate::departure::Departure;
use crate::engine::{Engine, Fabric};
use crate::node::{Node, Told};

/// Parcels taken between two turns: receiving must have its turn too.
const PARCELS_A_TURN: usize = 256;
/// While it is busy, counters are published every so many turns.
const PUBLISH_TURNS: u32 = 64;

/// Everything that the thread owns.
pub(crate) struct Thread<T> {
    pub(crate) engine: Engine<T>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) chute: Chute,
    pub(crate) press: Press,
    pub(crate) idle: Idle,
    pub(crate) leave_timeout: Duration,
}

/// What becomes of events.
struct Outlet {
    press: Press,
    on_event: Option<OnEvent>,
    on_process_failed: Option<OnProcessFailed>,
    shared: Arc<Shared>,
}

impl Outlet {
    #[inline]
    fn take(&mut self, node: &mut Node, told: Told) {
        match told {
            Told::ProcessFailed(failed) => {
                if let Some(on_process_failed) = &mut self.on_process_failed {
                    on_process_failed(failed);
                }
                // Not when it is read: who does not read must not hold others up.
                node.on_failure_handled();
            }
            Told::Excluded(_) => self.shared.is_excluded.store(true, Ordering::Relaxed),
            _ => {}
        }
        match &mut self.on_event {
            None => self.press.take(node, told),
            Some(on_event) => node.show(told, on_event),
        }
    }
}

/// Tells the caller that this thread has ended, however it ended.
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl<T: Fabric> Thread<T> {
    /// Drives until the caller leaves.
    pub(crate) fn run(self) {
        sharpen_timers();
        let Self { mut engine, shared, mut chute, press, idle, leave_timeout } = self;
        let _ending = Ending(Arc::clone(&shared));
        let shares = Arc::clone(&shared);
        let mut outlet = Outlet { press, on_event: None, on_process_failed: None, shared: shares };
        // Scatterings taken so far: best effort, reliable.
        let mut taken = [0; 2];
        // The parcel that the endpoint has no room for.
        let mut kept: Option<Parcel> = None;
        let turns_awake = idle.turns_awake();
        let mut idle_turns = 0;
        let mut unpublished = 0;
        let mut departure: Option<Departure> = None;
        loop {
            let accepted =
                take_parcels(&mut engine, &mut outlet, &mut chute, &mut kept, &mut taken);
            let progress = engine.turn(|node, told| outlet.take(node, told));
            let caught_up = outlet.press.catch_up(engine.node_mut());
            shared.publish_barrier(engine.barrier());
            // Before anything is handed over that tells of it.
            if engine.take_change() {
                shared.publish_peers(engine.peers());
            }

            let is_commanded = shared.is_commanded.load(Ordering::Relaxed);
            if is_commanded && shared.is_commanded.swap(false, Ordering::Acquire) {
                if let Some(on_event) = lock(&shared.on_event).take() {
                    outlet.on_event = Some(on_event);
                }
                if let Some(on_process_failed) = lock(&shared.on_process_failed).take() {
                    outlet.on_process_failed = Some(on_process_failed);
                }
                if shared.is_leaving.load(Ordering::Acquire) && departure.is_none() {
                    departure = Some(Departure::begin(&engine, leave_timeout));
                }
            }
            if let Some(departure) = departure {
                let has_more = kept.is_some() || !chute.parcels.is_empty();
                if let Some(is_drained) = departure.step(&mut engine, has_more) {
                    shared.is_drained.store(is_drained, Ordering::Release);
                    break;
                }
            }

            let is_idle = accepted == 0 && !caught_up && progress.is_idle();
            idle_turns = if is_idle { idle_turns + 1 } else { 0 };
            if outlet.press.hand_over(is_idle) {
                shared.news.wake();
            }
            unpublished += 1;
            if idle_turns == 1 || unpublished >= PUBLISH_TURNS {
                unpublished = 0;
                shared.publish_stats(engine.stats());
            }
            if !is_idle {
                // Something was done: the idle strategy starts from its first step.
                engine.rest(Progress { events: 1, ..progress });
            } else if departure.is_some_and(|departure| departure.is_near(&engine)) {
                std::thread::yield_now();
            } else if turns_awake.is_some_and(|turns| idle_turns > turns) {
                // A parcel that the endpoint has no room for waits for frames, as the endpoint
                // does.
                let can_take = kept.is_none();
                sleep(&mut engine, &shared, &chute, can_take, &outlet.press, progress);
            } else {
                engine.rest(progress);
            }
        }
        shared.publish_stats(engine.stats());
        outlet.press.close(engine.node_mut());
    }
}

/// Rests in a way that may block: says so, then looks once more for what nobody would ring for.
fn sleep<T: Fabric>(
    engine: &mut Engine<T>,
    shared: &Shared,
    chute: &Chute,
    can_take: bool,
    press: &Press,
    progress: Progress,
) {
    let (lacks_sheets, has_blank) = press.lacks_sheets();
    let depth = if lacks_sheets { rest::ASLEEP_WITHOUT_SHEETS } else { rest::ASLEEP };
    shared.rest.store(depth, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    let has_work = (can_take && !chute.parcels.is_empty())
        || shared.is_commanded.load(Ordering::Relaxed)
        || (lacks_sheets && (has_blank || press.lacks_sheets().1));
    if !has_work {
        engine.rest(progress);
    }
    shared.rest.store(rest::AWAKE, Ordering::Relaxed);
}

/// Gives the endpoint what the caller has submitted, as far as it has room. Answers how many
/// scatterings it took.
fn take_parcels<T: Fabric>(
    engine: &mut Engine<T>,
    outlet: &mut Outlet,
    chute: &mut Chute,
    kept: &mut Option<Parcel>,
    taken: &mut [u64; 2],
) -> usize {
    let (mut count, mut bytes) = (0, 0);
    while count < PARCELS_A_TURN {
        let Some(parcel) = kept.take().or_else(|| chute.parcels.pop().ok()) else { break };
        let node = engine.node_mut();
        let is_reliable = parcel.service == Service::Reliable;
        let accepted = parcel.unpack(|messages| node.scatter(parcel.service, messages));
        let id = ScatteringId(taken[usize::from(is_reliable)]);
        match accepted {
            Err(SendError::BufferFull { .. }) => {
                *kept = Some(parcel);
                break;
            }
            // It was accepted before this was known.
            Err(SendError::Excluded) => refuse(engine.node_mut(), outlet, &parcel, id),
            // Everything else was checked before it was handed over.
            accepted => debug_assert!(accepted.is_ok(), "checked before: {accepted:?}"),
        }
        taken[usize::from(is_reliable)] += 1;
        count += 1;
        bytes += parcel.charge();
        chute.give_back(parcel);
    }
    if count > 0 {
        let shared = &outlet.shared;
        shared.accepted_bytes.fetch_add(bytes, Ordering::Release);
        shared.room.wake();
    }
    count
}

/// Reports the messages of a scattering that will never leave.
#[cold]
fn refuse(node: &mut Node, outlet: &mut Outlet, parcel: &Parcel, scattering: ScatteringId) {
    for (index, to) in parcel.destinations().enumerate() {
        let failed = SendFailed {
            service: parcel.service,
            scattering,
            index: index as u16,
            to,
            timestamp: None,
            outcome: Outcome::Lost,
        };
        outlet.take(node, Told::SendFailed(failed));
    }
}
