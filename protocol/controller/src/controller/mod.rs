//! The composer: takes frames, time and what the store answers, and asks the stages.

mod decide;
mod handle;
mod plan;
#[cfg(test)]
mod random;
mod send;
mod view;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{Instance, Machine, Mono, Now, Port, ProcessId, Psn, Transmit, Verdict};

use crate::broadcast::Broadcast;
use crate::decisions::DecisionLog;
use crate::graph::Graph;
use crate::persist_queue::PersistQueue;
use crate::ping::Pings;
use crate::recovery::RecoveryReplies;
use crate::send_queue::SendQueue;
use crate::suspects::Suspects;
use crate::{
    Config, ConfigError, Epoch, Event, Links, PersistError, Record, RecordId, Severed, Stats,
};

/// One replica of the controllers.
///
/// It listens from its start on. Its world campaigns in the store for it, and tells it when it is
/// active ([`Controller::activate`]); only then does it decide and speak. What it wants recorded it
/// says in [`Controller::poll_persist`], to be drained whenever `poll_transmit` is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Controller {
    config: Config,
    active: Option<Epoch>,
    graph: Graph,
    decisions: DecisionLog,
    suspects: Suspects,
    persist_queue: PersistQueue,
    broadcast: Broadcast,
    pings: Pings,
    recovery_replies: RecoveryReplies,
    send_queue: SendQueue,
    own_links: OwnLinks,

    /// When the graph is to be looked at even if nothing changes.
    evaluate_at: Option<Mono>,
    /// When it has changed first since the last look, if it has.
    changed: Option<Mono>,
    /// When that will have settled.
    quiet_at: Option<Mono>,
    /// When it has looked, as long as it was not called since.
    evaluated_at: Option<Mono>,
    /// What may be resumed without any failure, as of the last look.
    severable: Vec<Severed>,
    /// Whether links wait for everybody to have been told the news anew.
    needs_renotify: bool,
    /// Whose neighbours are to freeze their links.
    freeze: Vec<Instance>,
    /// Lives on their way into the store as failed: since when suspected, when decided.
    deciding: BTreeMap<Instance, (Mono, Mono)>,
    /// When the first of the open failures was decided.
    open_since: Option<Mono>,
    /// Who has joined under another reign may not have been told what had failed before: everybody
    /// is told anew.
    must_notify_all: bool,
    /// Everybody has completed all that is open.
    is_notice_complete: bool,
    /// How many announcements had come in when the last complete round of news began.
    covered_announcements: u64,
    /// Members that the store is to know, and those on their way into it.
    unrecorded: BTreeSet<Instance>,
    recording: BTreeSet<Instance>,
    /// Which batches of recalls wait for the store.
    recalls: BTreeMap<RecordId, (ProcessId, Psn)>,
    /// Which news nobody answered the last time.
    unanswered_kind: Option<onepipe_wire::FloodKind>,
    duplicates: usize,
    /// Most of the fabric has no path to this replica, but lives.
    is_minority: bool,
    is_store_down: bool,

    events: VecDeque<Event>,
    stats: Stats,
}

/// The controller's own links.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct OwnLinks {
    /// Who is there, as far as it has said.
    peers: BTreeMap<Port, Instance>,
    /// When anything was heard.
    last_seen: Option<Mono>,
    /// Since when something was heard all the time.
    receiving_since: Mono,
    is_isolated: bool,
    /// When to say hello next; `None` before the first call.
    hello_at: Option<Mono>,
    /// The links that are still to be greeted this time.
    hello_ports: core::ops::Range<u16>,
}

/// While changes go on they are looked at after so many times `quiet_ns` at the latest.
const QUIET_PERIODS_MAX: u64 = 8;

/// Events that nobody fetches are lost from here on.
const EVENTS_MAX: usize = 4_096;

impl Controller {
    /// A replica that listens, and knows nothing yet.
    ///
    /// # Errors
    /// When the configuration does not make sense.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            active: None,
            graph: Graph::new(config.own(), config.controllers),
            decisions: DecisionLog::default(),
            suspects: Suspects::default(),
            persist_queue: PersistQueue::default(),
            broadcast: Broadcast::new(&config),
            pings: Pings::default(),
            recovery_replies: RecoveryReplies::default(),
            send_queue: SendQueue::default(),
            own_links: OwnLinks {
                peers: BTreeMap::new(),
                last_seen: None,
                receiving_since: Mono::from_ns(0),
                is_isolated: false,
                hello_at: None,
                hello_ports: 0..0,
            },
            evaluate_at: None,
            changed: None,
            quiet_at: None,
            evaluated_at: None,
            severable: Vec::new(),
            needs_renotify: false,
            freeze: Vec::new(),
            deciding: BTreeMap::new(),
            open_since: None,
            must_notify_all: false,
            is_notice_complete: false,
            covered_announcements: 0,
            unrecorded: BTreeSet::new(),
            recording: BTreeSet::new(),
            recalls: BTreeMap::new(),
            unanswered_kind: None,
            duplicates: 0,
            is_minority: false,
            is_store_down: false,
            events: VecDeque::new(),
            stats: Stats::default(),
            config,
        })
    }

    /// It is the active replica of `epoch` from now on; `records` is the whole log, loaded after
    /// the campaign was won. A replica that is active already begins anew.
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
        self.active = Some(epoch);
        self.broadcast.start_epoch(epoch);
        self.open_since = (self.decisions.open().len() > 0).then_some(now.mono);
        let instances: Vec<Instance> = self.graph.iter().map(|(instance, _)| instance).collect();
        for instance in instances {
            // What another replica has decided about links is not known, or in the ledger.
            self.graph.update_frozen(instance, |entry| {
                (entry.is_resolved, entry.is_notified) = (false, false);
            });
            let Some(node) = self.graph.get_mut(instance) else { continue };
            node.is_recorded &= members.contains_key(&instance);
            if node.has_joined && !node.is_recorded && node.generation.is_some() {
                self.unrecorded.insert(instance);
            }
        }
        self.must_notify_all =
            !self.decisions.recent_failures(now.mono, self.config.notice_retention_ns).is_empty();
        self.notify(Event::Active(epoch));
        self.schedule_evaluation(now.mono);
        self.advance(now);
    }

    /// It is not active any more: it listens.
    pub fn depose(&mut self, now: Now) {
        if makes(Mistake::RefusalIgnored) {
            return;
        }
        if let Some(epoch) = self.active.take() {
            self.reset_epoch_state();
            self.notify(Event::Deposed(epoch));
            self.schedule_evaluation(now.mono);
        }
    }

    fn reset_epoch_state(&mut self) {
        self.active = None;
        self.persist_queue.clear();
        self.suspects.clear();
        self.pings.clear();
        self.recovery_replies.clear();
        self.send_queue.clear();
        self.broadcast.abandon();
        self.broadcast.pending_joiners.clear();
        self.severable.clear();
        self.freeze.clear();
        self.deciding.clear();
        self.unrecorded.clear();
        self.recording.clear();
        self.recalls.clear();
        self.needs_renotify = false;
        self.is_notice_complete = false;
        self.is_store_down = false;
        self.covered_announcements = 0;
        self.unanswered_kind = None;
    }

    /// A record that the store is to append in the present epoch, each one once until it is
    /// answered.
    pub fn poll_persist(&mut self) -> Option<(RecordId, Record)> {
        self.persist_queue.poll()
    }

    /// What has become of a record. What is refused as failed is offered again.
    pub fn handle_persisted(&mut self, now: Now, id: RecordId, result: Result<(), PersistError>) {
        match result {
            Ok(()) => {
                if let Some(record) = self.persist_queue.on_written(id) {
                    self.is_store_down = false;
                    self.on_written(now, id, &record);
                }
            }
            Err(PersistError::Deposed) if makes(Mistake::RefusalIgnored) => {
                if let Some(record) = self.persist_queue.on_written(id) {
                    self.on_written(now, id, &record);
                }
            }
            // What a former reign has asked for says nothing about this one.
            Err(PersistError::Deposed) if self.persist_queue.is_offered(id) => self.depose(now),
            Err(PersistError::Deposed) => {}
            Err(PersistError::Failed) => {
                if self.persist_queue.on_refused(now, id, self.config.store_retry_ns) {
                    self.stats.store_failures += 1;
                    if !core::mem::replace(&mut self.is_store_down, true) {
                        self.notify(Event::StoreFailed);
                    }
                }
            }
        }
        self.advance(now);
    }

    /// Process `port` of a mesh was heard without a frame (shared memory).
    pub fn handle_liveness(&mut self, now: Now, port: Port) {
        if let Links::Mesh(count) = self.config.links
            && port.0 < count
        {
            self.on_received(now.mono);
            self.on_alive(now.mono, ProcessId(port.0.into()));
        }
    }

    /// Nothing more comes from process `port` of a mesh, as the world knows for certain: its link
    /// is down at once, and waits for no timeout. Whatever is heard of it later brings it back.
    pub fn handle_link_down(&mut self, port: Port) {
        let Links::Mesh(count) = self.config.links else { return };
        let address = onepipe_base::Address::Process(ProcessId(port.0.into()));
        self.own_links.peers.remove(&port);
        if let Some(instance) = self.graph.newest(address).filter(|_| port.0 < count) {
            self.graph.clear_last_seen(instance);
            self.evaluate_at = Some(Mono::from_ns(0));
        }
    }

    /// Whether it decides and speaks.
    pub fn is_active(&self) -> bool {
        self.active.is_some()
    }

    /// How many lives had a path to it at the last look.
    pub fn connected(&self) -> usize {
        self.graph.adjacency().correct_count()
    }

    /// Cheap hint: `poll_transmit` may yield something before the next timeout.
    pub fn wants_transmit(&self) -> bool {
        let is_speaking = self.broadcast.wants_transmit() || !self.send_queue.is_empty();
        !self.own_links.hello_ports.is_empty() || (self.active.is_some() && is_speaking)
    }

    /// What it was set up with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    fn notify(&mut self, event: Event) {
        if self.events.len() < EVENTS_MAX {
            self.events.push_back(event);
        } else {
            self.stats.events_lost += 1;
        }
    }

    /// Something has changed that may mean a failure, or the end of one. What comes soon after it
    /// is looked at together with it.
    fn schedule_evaluation(&mut self, now: Mono) {
        let changed = *self.changed.get_or_insert(now);
        let latest = changed.after_ns(self.config.quiet_ns.saturating_mul(QUIET_PERIODS_MAX));
        self.quiet_at = Some(now.after_ns(self.config.quiet_ns).min(latest));
    }

    /// What follows from whatever was just handled.
    fn advance(&mut self, now: Now) {
        // What came in while it looked is yet to be read, and is to be looked at with the rest.
        if self.evaluated_at.take_if(|evaluated_at| *evaluated_at < now.mono).is_some()
            && self.quiet_at.is_some()
        {
            self.schedule_evaluation(now.mono);
        }
        let due = Mono::earlier(self.evaluate_at, self.quiet_at);
        if due.is_some_and(|at| at <= now.mono) {
            self.evaluate(now);
        }
        if self.active.is_some() {
            self.record_members();
            self.plan(now);
        }
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
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        let Some(hello_at) = self.own_links.hello_at else { return Some(Mono::from_ns(0)) };
        let mut due = Mono::earlier(Some(hello_at), self.evaluate_at);
        due = Mono::earlier(due, self.quiet_at);
        if self.active.is_some() {
            due = Mono::earlier(due, self.broadcast.due());
            due = Mono::earlier(due, self.pings.due());
            due = Mono::earlier(due, self.persist_queue.due());
            due = Mono::earlier(due, self.isolated_at());
        }
        due
    }
}
