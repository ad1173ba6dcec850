//! The controller machine: passes frames, time, store results and findings between its stages.

mod decide;
mod handle;
mod invariants;
mod plan;
#[cfg(test)]
mod random;
mod send;
mod timers;
mod view;

use alloc::vec::Vec;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{Instance, Machine, Mono, Now, Port, ProcessId, Transmit, Verdict};
use onepipe_reliability::BoundedQueue;
use onepipe_wire::DecisionTip;

use crate::broadcast::Broadcast;
use crate::decisions::DecisionLog;
use crate::evaluation::Evaluation;
use crate::failure_detection::Suspects;
use crate::graph::Graph;
use crate::notification_plan::NotificationPlan;
use crate::own_links::OwnLinks;
use crate::ping::Pings;
use crate::recorder::Recorder;
use crate::recovery::RecoveryReplies;
use crate::send_queue::SendQueue;
use crate::term::Term;
use crate::{Config, ConfigError, Epoch, Event, Links, PersistError, Record, RecordId, Stats};

/// Capacity of the event queue; further events are dropped and counted.
const EVENTS_MAX: usize = 4_096;

/// One replica of the controllers.
///
/// A replica receives from its start on. The caller campaigns in the store and activates the
/// replica ([`Controller::activate`]); only then does it decide and send. Records to be written
/// come from [`Controller::poll_persist`], to be drained whenever `poll_transmit` is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Controller {
    config: Config,
    term: Term,
    graph: Graph,
    decisions: DecisionLog,
    evaluation: Evaluation,
    suspects: Suspects,
    recorder: Recorder,
    plan: NotificationPlan,
    broadcast: Broadcast,
    pings: Pings,
    recovery_replies: RecoveryReplies,
    send_queue: SendQueue,
    own_links: OwnLinks,
    events: BoundedQueue<Event>,
    stats: Stats,
}

impl Controller {
    /// Creates a replica that receives, and knows nothing yet.
    ///
    /// # Errors
    /// When the configuration is invalid.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            term: Term::default(),
            graph: Graph::new(config.own(), config.controllers, config.limits()),
            decisions: DecisionLog::default(),
            evaluation: Evaluation::default(),
            suspects: Suspects::default(),
            recorder: Recorder::default(),
            plan: NotificationPlan::default(),
            broadcast: Broadcast::new(&config),
            pings: Pings::default(),
            recovery_replies: RecoveryReplies::default(),
            send_queue: SendQueue::default(),
            own_links: OwnLinks::new(&config),
            events: BoundedQueue::new(EVENTS_MAX),
            stats: Stats::default(),
            config,
        })
    }

    //= spec/failure.md#R31
    /// Makes this the active replica of `epoch`; `records` is the whole log, loaded after the
    /// campaign was won. A replica that is active already starts from scratch.
    pub fn activate(&mut self, now: Now, epoch: Epoch, records: &[Record]) {
        self.reset_epoch_state();
        let (decisions, members) = DecisionLog::load(now.mono, records);
        self.decisions = decisions;
        let removed: Vec<Instance> = (self.graph.iter().map(|(instance, _)| instance))
            .filter(|instance| self.decisions.is_resolved(*instance))
            .collect();
        removed.into_iter().for_each(|instance| self.graph.remove(instance));
        for member in members.values() {
            self.graph.load(member);
        }
        self.graph.mark_all_dirty();
        self.graph.invalidate_all_links();
        self.term.start(epoch, now.mono.after_ns(self.config.grace_ns));
        if let Some(known) = self.term.outdated_by(&self.decisions)
            && self.refuse_log(now, known)
        {
            return;
        }
        assert!(self.recorder.is_empty(), "a record of the previous epoch");
        self.broadcast.start_epoch(epoch);
        if self.decisions.open().len() > 0 {
            self.plan.add_open(now.mono);
        }
        let instances: Vec<Instance> = self.graph.iter().map(|(instance, _)| instance).collect();
        for instance in instances {
            // Decisions of another replica about links are either in the log or unknown.
            self.graph.update_frozen(instance, |entry| {
                (entry.is_resolved, entry.is_notified) = (false, false);
            });
            let Some(node) = self.graph.get_mut(instance) else { continue };
            node.is_recorded &= members.contains_key(&instance);
            let is_unrecorded = node.has_joined && !node.is_recorded && node.generation.is_some();
            // An instance without a path may have ended, and its failure may be resolved: nothing
            // shows that of a switch, and no node would report the end of such a member again. If
            // it is alive, its next announcement has it recorded.
            if is_unrecorded && self.graph.is_correct(instance) {
                self.recorder.add_member(instance);
            }
        }
        let retention_ns = self.config.notice_retention_ns;
        if !self.decisions.recent_failures(now.mono, retention_ns).is_empty() {
            self.plan.require_notice();
        }
        self.notify(Event::Active(epoch));
        self.schedule_evaluation(now.mono);
        self.advance(now);
    }

    /// Deactivates this replica; it keeps receiving.
    pub fn depose(&mut self, now: Now) {
        if makes(Mistake::RefusalIgnored) {
            return;
        }
        if let Some(epoch) = self.term.epoch() {
            self.reset_epoch_state();
            self.notify(Event::Deposed(epoch));
            self.schedule_evaluation(now.mono);
        }
    }

    //= spec/failure.md#R61
    /// Stops deciding: others know more than the log. Returns whether it does.
    fn refuse_log(&mut self, now: Now, known: DecisionTip) -> bool {
        if makes(Mistake::OldStoreAccepted) || makes(Mistake::RefusalIgnored) {
            return false;
        }
        // The end of a log that is refused is not remembered.
        let Some(epoch) = self.term.end() else { return false };
        self.reset_epoch_state();
        self.notify(Event::StoreOutdated { epoch, known });
        self.schedule_evaluation(now.mono);
        true
    }

    fn reset_epoch_state(&mut self) {
        self.term.remember_own(&self.config, &self.decisions);
        self.term.end();
        self.recorder.clear();
        self.suspects.clear();
        self.pings.clear();
        self.recovery_replies.clear();
        self.send_queue.clear();
        self.broadcast.clear();
        self.evaluation.set_severable(Vec::new());
        self.plan = NotificationPlan::default();
        debug_assert!(!self.wants_transmit() || self.own_links.has_hello(), "only a Hello is sent");
    }

    /// Returns the next record that the store is to append in the current epoch. Each record is
    /// returned once until its result is reported.
    pub fn poll_persist(&mut self) -> Option<(RecordId, Record)> {
        self.recorder.poll()
    }

    /// Handles the store's result for a record. A record that failed is offered again.
    pub fn handle_persisted(&mut self, now: Now, id: RecordId, result: Result<(), PersistError>) {
        match result {
            Ok(()) => {
                if let Some(record) = self.recorder.on_written(id) {
                    self.on_written(now, id, &record);
                }
            }
            // A result from a previous epoch does not concern this one.
            Err(PersistError::Deposed) if self.recorder.queue().is_offered(id) => {
                if makes(Mistake::RefusalIgnored)
                    && let Some(record) = self.recorder.on_written(id)
                {
                    self.on_written(now, id, &record);
                }
                self.depose(now);
                assert!(!self.term.is_active(), "the epoch is over");
            }
            Err(PersistError::Deposed) => {}
            Err(PersistError::Failed) => {
                let is_first = !self.recorder.queue().has_failed();
                if self.recorder.on_failed(now, id, self.config.store_retry_ns) {
                    self.stats.store_failures += 1;
                    if is_first {
                        self.notify(Event::StoreFailed);
                    }
                }
            }
        }
        self.advance(now);
    }

    /// Handles evidence without a frame (shared memory) that process `port` of a mesh is alive.
    pub fn handle_liveness(&mut self, now: Now, port: Port) {
        if let Links::Mesh(count) = self.config.links
            && port.0 < count
        {
            self.on_received(now.mono);
            self.on_alive(now.mono, ProcessId(port.0.into()));
        }
    }

    /// Handles the certain loss of the link to process `port` of a mesh: it is down at once,
    /// without a timeout. A later frame brings it back.
    pub fn handle_link_down(&mut self, port: Port) {
        let Links::Mesh(count) = self.config.links else { return };
        let address = onepipe_base::Address::Process(ProcessId(port.0.into()));
        self.own_links.remove_peer(port);
        if let Some(instance) = self.graph.newest(address).filter(|_| port.0 < count) {
            self.graph.clear_last_seen(instance);
            self.evaluation.schedule(Some(Mono::from_ns(0)));
        }
    }

    /// Whether this replica is active: decides and sends.
    pub fn is_active(&self) -> bool {
        self.term.is_active()
    }

    /// Returns the number of instances that had a path to this replica at the last evaluation.
    pub fn connected(&self) -> usize {
        self.graph.adjacency().correct_count()
    }

    /// Cheap hint: `poll_transmit` may yield something before the next timeout.
    pub fn wants_transmit(&self) -> bool {
        let is_speaking = self.broadcast.wants_transmit() || !self.send_queue.is_empty();
        self.own_links.has_hello() || (self.term.is_active() && is_speaking)
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    fn notify(&mut self, event: Event) {
        if !self.events.push(event) {
            self.stats.events_lost += 1;
        }
    }

    /// Schedules an evaluation after a change of the graph.
    fn schedule_evaluation(&mut self, now: Mono) {
        self.evaluation.on_change(now, self.config.quiet_ns);
        self.own_links.wake(now, &self.config);
    }

    /// Runs what has become due: an evaluation, records, the next notification.
    fn advance(&mut self, now: Now) {
        if self.evaluation.take_overtaken(now.mono) {
            self.schedule_evaluation(now.mono);
        }
        let is_due = self.evaluation.due().is_some_and(|at| at <= now.mono);
        if is_due {
            self.evaluate(now);
        }
        if self.term.is_active() {
            self.recorder.record_members(&mut self.graph);
            self.advance_rounds(now);
        }
        self.debug_check(is_due);
    }
}

impl Machine for Controller {
    type Event = Event;

    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        let verdict = self.on_frame(now, port, frame);
        self.advance(now);
        verdict
    }

    fn handle_timeout(&mut self, now: Now) {
        self.on_timeout(now);
        self.advance(now);
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        self.send(now, slot)
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        let Some(hello_at) = self.hello_at() else { return Some(Mono::from_ns(0)) };
        let mut due = Mono::earlier(Some(hello_at), self.evaluation.due());
        if self.term.is_active() {
            due = Mono::earlier(due, self.broadcast.due());
            due = Mono::earlier(due, self.pings.due());
            due = Mono::earlier(due, self.recorder.queue().due());
            due = Mono::earlier(due, self.own_links.isolated_at(&self.config));
        }
        due
    }
}
