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
use crate::determine::Suspects;
use crate::forward::Pings;
use crate::graph::Graph;
use crate::journal::Journal;
use crate::ledger::Ledger;
use crate::outbox::Outbox;
use crate::recovery::Answers;
use crate::{Config, ConfigError, Epoch, Event, Links, Record, RecordId, Refused, Severed, Stats};

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
    ledger: Ledger,
    suspects: Suspects,
    journal: Journal,
    broadcast: Broadcast,
    pings: Pings,
    answers: Answers,
    outbox: Outbox,
    attached: Attached,

    /// When the graph is to be looked at even if nothing changes.
    look_at: Option<Mono>,
    /// When it has changed first since the last look, if it has.
    changed: Option<Mono>,
    /// When that will have settled.
    settled_at: Option<Mono>,
    /// When it has looked, as long as it was not called since.
    looked: Option<Mono>,
    /// What may be resumed without any failure, as of the last look.
    severable: Vec<Severed>,
    /// Whether links wait for everybody to have been told the news anew.
    wants_refresh: bool,
    /// Whose neighbours are to freeze their links.
    freeze: Vec<Instance>,
    /// Lives on their way into the store as failed: since when suspected, when decided.
    deciding: BTreeMap<Instance, (Mono, Mono)>,
    /// When the first of the open failures was decided.
    open_since: Option<Mono>,
    /// Who has joined under another reign may not have been told what had failed before: everybody
    /// is told anew.
    owes_news: bool,
    /// Everybody has completed all that is open.
    is_noticed: bool,
    /// How many announcements had come in when the last complete round of news began.
    covered: u64,
    /// Members that the store is to know, and those on their way into it.
    unrecorded: BTreeSet<Instance>,
    recording: BTreeSet<Instance>,
    /// Which batches of recalls wait for the store.
    recalls: BTreeMap<RecordId, (ProcessId, Psn)>,
    /// Which news nobody answered the last time.
    stuck: Option<onepipe_wire::FloodKind>,
    doubles: usize,
    /// Most of the fabric has no path to this replica, but lives.
    is_outvoted: bool,
    is_store_down: bool,

    events: VecDeque<Event>,
    stats: Stats,
}

/// The controller's own links.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Attached {
    /// Who is there, as far as it has said.
    ends: BTreeMap<Port, Instance>,
    /// When anything was heard.
    heard: Option<Mono>,
    /// Since when something was heard all the time.
    listening: Mono,
    is_isolated: bool,
    /// When to say hello next; `None` before the first call.
    hello_at: Option<Mono>,
    /// The links that are still to be greeted this time.
    greet: core::ops::Range<u16>,
}

/// While changes go on they are looked at after so many times `settle_ns` at the latest.
const SETTLING_MAX: u64 = 8;

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
            ledger: Ledger::default(),
            suspects: Suspects::default(),
            journal: Journal::default(),
            broadcast: Broadcast::new(&config),
            pings: Pings::default(),
            answers: Answers::default(),
            outbox: Outbox::default(),
            attached: Attached {
                ends: BTreeMap::new(),
                heard: None,
                listening: Mono::from_ns(0),
                is_isolated: false,
                hello_at: None,
                greet: 0..0,
            },
            look_at: None,
            changed: None,
            settled_at: None,
            looked: None,
            severable: Vec::new(),
            wants_refresh: false,
            freeze: Vec::new(),
            deciding: BTreeMap::new(),
            open_since: None,
            owes_news: false,
            is_noticed: false,
            covered: 0,
            unrecorded: BTreeSet::new(),
            recording: BTreeSet::new(),
            recalls: BTreeMap::new(),
            stuck: None,
            doubles: 0,
            is_outvoted: false,
            is_store_down: false,
            events: VecDeque::new(),
            stats: Stats::default(),
            config,
        })
    }

    /// It is the active replica of `epoch` from now on; `records` is the whole log, loaded after
    /// the campaign was won. A replica that is active already begins anew.
    pub fn activate(&mut self, now: Now, epoch: Epoch, records: &[Record]) {
        self.forget_reign();
        let (ledger, members) = Ledger::load(now.mono, records);
        self.ledger = ledger;
        let gone: Vec<Instance> = (self.graph.iter().map(|(instance, _)| instance))
            .filter(|instance| self.ledger.is_resolved(*instance))
            .collect();
        gone.into_iter().for_each(|instance| self.graph.remove(instance));
        for member in members.values() {
            self.graph.load(member);
        }
        self.graph.doubt_all();
        self.graph.on_takeover();
        self.active = Some(epoch);
        self.broadcast.begin_epoch(epoch);
        self.open_since = (self.ledger.open().len() > 0).then_some(now.mono);
        let instances: Vec<Instance> = self.graph.iter().map(|(instance, _)| instance).collect();
        for instance in instances {
            // What another replica has decided about links is not known, or in the ledger.
            self.graph.each_frozen(instance, |entry| {
                (entry.is_resolved, entry.is_told) = (false, false);
            });
            let Some(node) = self.graph.get_mut(instance) else { continue };
            node.is_recorded &= members.contains_key(&instance);
            if node.has_joined && !node.is_recorded && node.generation.is_some() {
                self.unrecorded.insert(instance);
            }
        }
        self.owes_news = !self.ledger.news(now.mono, self.config.memory_ns).is_empty();
        self.notify(Event::Active(epoch));
        self.want_look(now.mono);
        self.go_on(now);
    }

    /// It is not active any more: it listens.
    pub fn depose(&mut self, now: Now) {
        if makes(Mistake::RefusalIgnored) {
            return;
        }
        if let Some(epoch) = self.active.take() {
            self.forget_reign();
            self.notify(Event::Deposed(epoch));
            self.want_look(now.mono);
        }
    }

    fn forget_reign(&mut self) {
        self.active = None;
        self.journal.clear();
        self.suspects.clear();
        self.pings.clear();
        self.answers.clear();
        self.outbox.clear();
        self.broadcast.abandon();
        self.broadcast.late.clear();
        self.severable.clear();
        self.freeze.clear();
        self.deciding.clear();
        self.unrecorded.clear();
        self.recording.clear();
        self.recalls.clear();
        self.wants_refresh = false;
        self.is_noticed = false;
        self.is_store_down = false;
        self.covered = 0;
        self.stuck = None;
    }

    /// A record that the store is to append in the present epoch, each one once until it is
    /// answered.
    pub fn poll_persist(&mut self) -> Option<(RecordId, Record)> {
        self.journal.poll()
    }

    /// What has become of a record. What is refused as failed is offered again.
    pub fn handle_persisted(&mut self, now: Now, id: RecordId, result: Result<(), Refused>) {
        match result {
            Ok(()) => {
                if let Some(record) = self.journal.written(id) {
                    self.is_store_down = false;
                    self.on_written(now, id, &record);
                }
            }
            Err(Refused::Deposed) if makes(Mistake::RefusalIgnored) => {
                if let Some(record) = self.journal.written(id) {
                    self.on_written(now, id, &record);
                }
            }
            // What a former reign has asked for says nothing about this one.
            Err(Refused::Deposed) if self.journal.is_offered(id) => self.depose(now),
            Err(Refused::Deposed) => {}
            Err(Refused::Failed) => {
                if self.journal.refused(now, id, self.config.store_retry_ns) {
                    self.stats.store_failures += 1;
                    if !core::mem::replace(&mut self.is_store_down, true) {
                        self.notify(Event::StoreFailed);
                    }
                }
            }
        }
        self.go_on(now);
    }

    /// Process `port` of a mesh was heard without a frame (shared memory).
    pub fn hear(&mut self, now: Now, port: Port) {
        if let Links::Mesh(count) = self.config.links
            && port.0 < count
        {
            self.listen(now.mono);
            self.on_sign_of_life(now.mono, ProcessId(port.0.into()));
        }
    }

    /// Nothing more comes from process `port` of a mesh, as the world knows for certain: its link
    /// is down at once, and waits for no timeout. Whatever is heard of it later brings it back.
    pub fn unlink(&mut self, port: Port) {
        let Links::Mesh(count) = self.config.links else { return };
        let address = onepipe_base::Address::Process(ProcessId(port.0.into()));
        self.attached.ends.remove(&port);
        if let Some(instance) = self.graph.newest(address).filter(|_| port.0 < count) {
            self.graph.unhear(instance);
            self.look_at = Some(Mono::from_ns(0));
        }
    }

    /// Whether it decides and speaks.
    pub fn is_active(&self) -> bool {
        self.active.is_some()
    }

    /// How many lives had a path to it at the last look.
    pub fn connected(&self) -> usize {
        self.graph.net().correct()
    }

    /// Cheap hint: `poll_transmit` may yield something before the next timeout.
    pub fn wants_transmit(&self) -> bool {
        let is_speaking = self.broadcast.wants_transmit() || !self.outbox.is_empty();
        !self.attached.greet.is_empty() || (self.active.is_some() && is_speaking)
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
    fn want_look(&mut self, now: Mono) {
        let changed = *self.changed.get_or_insert(now);
        let latest = changed.after_ns(self.config.settle_ns.saturating_mul(SETTLING_MAX));
        self.settled_at = Some(now.after_ns(self.config.settle_ns).min(latest));
    }

    /// What follows from whatever was just handled.
    fn go_on(&mut self, now: Now) {
        // What came in while it looked is yet to be read, and is to be looked at with the rest.
        if self.looked.take_if(|looked| *looked < now.mono).is_some() && self.settled_at.is_some() {
            self.want_look(now.mono);
        }
        let due = Mono::earlier(self.look_at, self.settled_at);
        if due.is_some_and(|at| at <= now.mono) {
            self.look(now);
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
        self.go_on(now);
        verdict
    }

    fn handle_timeout(&mut self, now: Now) {
        self.on_timeout(now);
        self.go_on(now);
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        self.send(now, slot)
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        let Some(hello_at) = self.attached.hello_at else { return Some(Mono::from_ns(0)) };
        let mut due = Mono::earlier(Some(hello_at), self.look_at);
        due = Mono::earlier(due, self.settled_at);
        if self.active.is_some() {
            due = Mono::earlier(due, self.broadcast.due());
            due = Mono::earlier(due, self.pings.due());
            due = Mono::earlier(due, self.journal.due());
            due = Mono::earlier(due, self.isolated_at());
        }
        due
    }
}
