//! An endpoint with its driver on a fabric: one turn, whoever takes it.

use onepipe_base::{ProcessId, Timestamp};
use onepipe_endpoint::Config;
use onepipe_transport_clock::SystemClock;
use onepipe_transport_driver::{self as driver, Doorbell, Driver, Progress, Transport};
use onepipe_transport_shm::Shm;
use onepipe_transport_udp::{UdpLink, UdpOverlay};

use crate::end::End;
use crate::node::{Node, Told};
use crate::peers::Peers;
use crate::{FabricStats, Idle, Stats};

/// After this many turns at the latest it is noticed who has gone: that nobody waits for the dead
/// matters within a link's time-out, not within a turn.
const WATCH_TURNS: u64 = 64;
/// What a process has published before it went is taken in before nobody waits for it: at the
/// latest after this many turns, each of which takes a batch from everybody's ring in turn.
const DRAIN_TURNS: u64 = 1024;

/// A transport, and what it knows beyond frames.
pub(crate) trait Fabric: Transport + Send + 'static {
    /// Who is alive, as far as anybody here can know.
    fn peers(&self, peers: &mut Peers);
    /// How many processes were found dead so far.
    fn deaths(&self) -> u64;
    fn counters(&self) -> FabricStats;
}

impl Fabric for Shm {
    fn peers(&self, peers: &mut Peers) {
        Shm::peers(self).for_each(|process| peers.insert(process));
    }

    fn deaths(&self) -> u64 {
        self.stats().deaths
    }

    fn counters(&self) -> FabricStats {
        FabricStats::SharedMemory(*self.stats())
    }
}

impl Fabric for UdpLink {
    /// The switch knows, this process does not.
    fn peers(&self, _: &mut Peers) {}

    fn deaths(&self) -> u64 {
        0
    }

    fn counters(&self) -> FabricStats {
        FabricStats::Udp(*self.stats())
    }
}

impl Fabric for UdpOverlay {
    /// It knows those that it talks to, and not whether they live.
    fn peers(&self, _: &mut Peers) {}

    fn deaths(&self) -> u64 {
        0
    }

    fn counters(&self) -> FabricStats {
        FabricStats::Overlay { socket: *self.stats(), ways: *self.overlay_stats() }
    }
}

/// A driven endpoint.
#[derive(Debug)]
pub(crate) struct Engine<T> {
    driver: Driver<Node, T, SystemClock>,
    peers: Peers,
    /// The same, being gathered.
    present: Peers,
    has_changed: bool,
    deaths: u64,
    turns: u64,
    /// Gone, but something of theirs may still be under way.
    going: Vec<Going>,
}

#[derive(Debug)]
struct Going {
    process: ProcessId,
    has_died: bool,
    /// The turn after which it is not waited for.
    last_turn: u64,
}

impl<T: Fabric> Engine<T> {
    pub(crate) fn new(end: End, fabric: T, clock: SystemClock, idle: Idle) -> Self {
        let peers = Peers::none(end.endpoint().config().processes_max);
        let config = driver::Config { idle: idle.strategy(), ..driver::Config::default() };
        let driver = Driver::new(Node::new(end), fabric, clock, config);
        let present = peers.clone();
        let (has_changed, going) = (false, Vec::new());
        Self { driver, peers, present, has_changed, deaths: 0, turns: 0, going }
    }

    /// One turn of the driver. Never blocks.
    #[inline]
    pub(crate) fn turn(&mut self, on_event: impl FnMut(&mut Node, Told)) -> Progress {
        let progress = self.driver.turn(on_event);
        self.turns += 1;
        if progress.is_idle() || self.turns.is_multiple_of(WATCH_TURNS) {
            self.watch();
        }
        if !self.going.is_empty() {
            self.part(progress.frames_received == 0);
        }
        progress
    }

    /// Notes who has gone.
    fn watch(&mut self) {
        self.present.clear();
        self.driver.transport().peers(&mut self.present);
        if let Some(controllers) = self.config().controllers {
            let all = controllers.first.0..controllers.first.0 + controllers.count;
            all.for_each(|process| self.present.remove(ProcessId(process)));
        }
        let deaths = self.driver.transport().deaths();
        let has_died = deaths > self.deaths;
        self.deaths = deaths;
        if self.present == self.peers {
            return;
        }
        for process in self.peers.iter().filter(|process| !self.present.contains(*process)) {
            self.going.push(Going { process, has_died, last_turn: self.turns + DRAIN_TURNS });
        }
        std::mem::swap(&mut self.peers, &mut self.present);
        self.has_changed = true;
    }

    /// Takes leave of those who have gone, of whom nothing is left: `is_drained`, or long enough
    /// ago.
    #[cold]
    fn part(&mut self, is_drained: bool) {
        let (node, peers, turns) = (self.driver.machine_mut(), &self.peers, self.turns);
        self.going.retain(|going| {
            let stays = !is_drained && turns < going.last_turn;
            if !stays {
                let is_back = peers.contains(going.process);
                node.part(going.process, going.has_died, is_back);
            }
            stays
        });
    }

    pub(crate) fn rest(&mut self, progress: Progress) {
        self.driver.rest(progress);
    }

    #[inline]
    pub(crate) fn node(&self) -> &Node {
        self.driver.machine()
    }

    #[inline]
    pub(crate) fn node_mut(&mut self) -> &mut Node {
        self.driver.machine_mut()
    }

    pub(crate) fn doorbell(&self) -> Doorbell {
        self.driver.doorbell()
    }

    pub(crate) fn config(&self) -> &Config {
        self.node().endpoint().config()
    }

    pub(crate) fn process(&self) -> ProcessId {
        self.config().process
    }

    pub(crate) fn barrier(&self) -> Option<Timestamp> {
        self.node().endpoint().barrier()
    }

    /// Whether somebody has come or gone since this was last asked.
    #[inline]
    pub(crate) fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    pub(crate) fn peers(&self) -> &Peers {
        &self.peers
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats {
            endpoint: *self.node().endpoint().stats(),
            duty: *self.driver.duty(),
            fabric: self.driver.transport().counters(),
        }
    }
}
