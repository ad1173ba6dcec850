//! A driven endpoint on a fabric, independent of the thread that drives it.

use std::io;
use std::sync::Arc;

use onepipe_base::{Machine, Mono, ProcessId, Timestamp};
use onepipe_endpoint::{Config, Links};
use onepipe_transport_clock::{Clock, SystemClock};
use onepipe_transport_driver::{
    self as driver, Driver, IdleAction, Idleness, Progress, SharedWait, Wait,
};
use onepipe_transport_shm::{SegmentLost, Shm};
use onepipe_transport_udp::{Refusal, Roster, UdpLink, UdpOverlay};

use crate::memory::{MemoryOptions, MemoryService};
use crate::node::{Node, NodeEvent};
use crate::pipe_endpoint::PipeEndpoint;
use crate::process_set::ProcessSet;
use crate::{FabricStats, Idle, Stats};

/// Maximum number of turns between checks for departed processes, which must be noticed within the
/// link timeout, not within a turn.
const REFRESH_EVERY: u64 = 64;
/// Maximum number of turns to drain what a departed process has published before its link is taken
/// down; each turn takes a batch from every ring in turn.
const DRAIN_TURN_MAX: u64 = 1024;

/// A transport with its knowledge of other processes.
pub(crate) trait Fabric: SharedWait + Send + 'static {
    /// Inserts the live processes, as far as known.
    fn peers(&self, peers: &mut ProcessSet);
    /// A number that rises whenever [`Fabric::peers`] may have changed; `None`: unknown.
    fn peer_changes(&self) -> Option<u64> {
        None
    }
    /// Number of processes found dead so far.
    fn deaths(&self) -> u64;
    /// Why the switch does not admit this process at present.
    fn refusal(&self) -> Option<Refusal> {
        None
    }
    /// Why this process can reach no other one any more, if its memory is lost.
    fn loss(&self) -> Option<SegmentLost> {
        None
    }
    fn counters(&self) -> FabricStats;
}

impl Fabric for Shm {
    fn peers(&self, peers: &mut ProcessSet) {
        Shm::peers(self).for_each(|process| peers.insert(process));
    }

    fn deaths(&self) -> u64 {
        self.stats().deaths
    }

    fn loss(&self) -> Option<SegmentLost> {
        Self::loss(self)
    }

    fn counters(&self) -> FabricStats {
        FabricStats::SharedMemory(*self.stats())
    }
}

impl Fabric for UdpLink {
    /// As the switch knows them.
    fn peers(&self, peers: &mut ProcessSet) {
        self.roster().into_iter().flat_map(Roster::members).for_each(|one| peers.insert(one));
    }

    fn peer_changes(&self) -> Option<u64> {
        Some(self.roster().map_or(0, Roster::changes))
    }

    fn deaths(&self) -> u64 {
        0
    }

    fn refusal(&self) -> Option<Refusal> {
        Self::refusal(self)
    }

    fn counters(&self) -> FabricStats {
        FabricStats::Udp(*self.stats())
    }
}

impl Fabric for UdpOverlay {
    /// As the aggregator knows them.
    fn peers(&self, peers: &mut ProcessSet) {
        self.roster().into_iter().flat_map(Roster::members).for_each(|one| peers.insert(one));
    }

    fn peer_changes(&self) -> Option<u64> {
        Some(self.roster().map_or(0, Roster::changes))
    }

    fn deaths(&self) -> u64 {
        0
    }

    fn refusal(&self) -> Option<Refusal> {
        Self::refusal(self)
    }

    fn counters(&self) -> FabricStats {
        FabricStats::Overlay { socket: *self.stats(), routes: *self.overlay_stats() }
    }
}

/// The engine over each kind of fabric, with a clock of the fabric.
#[derive(Debug)]
pub(crate) enum FabricEngine {
    SharedMemory(Box<Engine<Shm>>, SystemClock),
    Udp(Box<Engine<UdpLink>>, SystemClock),
    Overlay(Box<Engine<UdpOverlay>>, SystemClock),
}

impl FabricEngine {
    /// A clock of the fabric.
    pub(crate) fn clock(&mut self) -> &mut SystemClock {
        match self {
            Self::SharedMemory(_, clock) | Self::Udp(_, clock) | Self::Overlay(_, clock) => clock,
        }
    }
}

/// Evaluates an expression with the engine of a [`FabricEngine`], whatever its fabric.
macro_rules! with_engine {
    ($fabric_engine:expr, $engine:ident => $body:expr) => {
        match $fabric_engine {
            $crate::engine::FabricEngine::SharedMemory($engine, _) => $body,
            $crate::engine::FabricEngine::Udp($engine, _) => $body,
            $crate::engine::FabricEngine::Overlay($engine, _) => $body,
        }
    };
}
pub(crate) use with_engine;

/// A driven endpoint.
#[derive(Debug)]
pub(crate) struct Engine<T> {
    driver: Driver<Node, T, SystemClock>,
    peers: ProcessSet,
    /// Work space for the next value of `peers`.
    scratch: ProcessSet,
    deaths: u64,
    /// The last refusal of the switch that was reported.
    refusal: Option<Refusal>,
    /// [`Fabric::peer_changes`] when the processes were last read.
    peer_changes: Option<u64>,
    turn_count: u64,
    /// Departed processes whose frames may still be in flight.
    departed: Vec<DepartedPeer>,
}

#[derive(Debug)]
struct DepartedPeer {
    process: ProcessId,
    has_died: bool,
    /// The turn after which its link is taken down.
    last_turn: u64,
}

impl<T: Fabric> Engine<T> {
    pub(crate) fn new(
        pipe_endpoint: PipeEndpoint,
        fabric: T,
        mut clock: SystemClock,
        idle: Idle,
        memory: MemoryOptions,
    ) -> Self {
        let endpoint_config = pipe_endpoint.endpoint().config();
        let peers = ProcessSet::empty(endpoint_config.processes_max);
        let config = driver::Config { idle: idle.strategy(), ..driver::Config::default() }
            .warning_before(endpoint_config.link_timeout_ns);
        let session = clock.read().sync.as_ns();
        let memory = MemoryService::new(memory, session, pipe_endpoint.message_len_max());
        let driver = Driver::new(Node::new(pipe_endpoint, memory), fabric, clock, config);
        let scratch = peers.clone();
        let departed = Vec::new();
        Self {
            driver,
            peers,
            scratch,
            deaths: 0,
            refusal: None,
            peer_changes: None,
            turn_count: 0,
            departed,
        }
    }

    /// Takes one turn of the driver. Never blocks.
    #[inline]
    pub(crate) fn turn(&mut self, on_event: impl FnMut(&mut Node, NodeEvent)) -> Progress {
        let progress = self.driver.turn(on_event);
        self.turn_count += 1;
        if progress.is_idle() || self.turn_count.is_multiple_of(REFRESH_EVERY) {
            self.refresh_peers();
        }
        if !self.departed.is_empty() {
            self.unlink_departed(progress.frames_received == 0);
        }
        progress
    }

    /// Why this process can reach no other one any more, if its memory is lost.
    pub(crate) fn loss(&self) -> Option<SegmentLost> {
        self.driver.transport().loss()
    }

    /// Detects departed processes, a switch that refuses this one, and lost memory.
    fn refresh_peers(&mut self) {
        if self.loss().is_some() {
            self.driver.machine_mut().on_segment_lost();
        }
        let refusal = self.driver.transport().refusal();
        if let (Some(refusal), true) = (refusal, refusal != self.refusal) {
            self.driver.machine_mut().on_refused(refusal);
        }
        self.refusal = refusal;
        let changes = self.driver.transport().peer_changes();
        if changes.is_some() && changes == self.peer_changes {
            return;
        }
        self.peer_changes = changes;
        self.scratch.clear();
        self.driver.transport().peers(&mut self.scratch);
        if let Some(controllers) = self.config().controllers {
            let all = controllers.first.0..controllers.first.0 + controllers.count;
            all.for_each(|process| self.scratch.remove(ProcessId(process)));
        }
        let deaths = self.driver.transport().deaths();
        let has_died = deaths > self.deaths;
        self.deaths = deaths;
        if self.scratch == self.peers {
            return;
        }
        // Only in shared memory each process has a link of its own.
        let is_mesh = self.config().links == Links::Mesh;
        let is_gone = |process: &ProcessId| is_mesh && !self.scratch.contains(*process);
        for process in self.peers.iter().filter(is_gone) {
            self.departed.push(DepartedPeer {
                process,
                has_died,
                last_turn: self.turn_count + DRAIN_TURN_MAX,
            });
        }
        let is_new = |process: &ProcessId| !self.peers.contains(*process);
        for process in self.scratch.iter().filter(is_new) {
            self.driver.machine_mut().on_peer_joined(process);
        }
        std::mem::swap(&mut self.peers, &mut self.scratch);
    }

    /// Takes down the links of departed processes whose frames are all received, either
    /// `is_drained` or long enough ago.
    #[cold]
    fn unlink_departed(&mut self, is_drained: bool) {
        let (node, peers, turn_count) = (self.driver.machine_mut(), &self.peers, self.turn_count);
        self.departed.retain(|departed| {
            let stays = !is_drained && turn_count < departed.last_turn;
            if !stays {
                let is_back = peers.contains(departed.process);
                node.unlink_departed(departed.process, departed.has_died, is_back);
            }
            stays
        });
    }

    pub(crate) fn rest(&mut self, progress: Progress) {
        self.driver.rest(progress);
    }

    /// Returns how to idle after a turn that did `progress`.
    pub(crate) fn idle_action(&mut self, progress: Progress) -> IdleAction {
        self.driver.idle_action(progress)
    }

    /// Returns what a turn that did `progress` means for idling.
    pub(crate) fn idleness(&self, progress: Progress) -> Idleness {
        self.driver.idleness(progress)
    }

    pub(crate) fn idle(&mut self, action: IdleAction) {
        self.driver.idle(action);
    }

    /// Blocks until there is something to do, for at most `max_ns`.
    pub(crate) fn block_for(&mut self, max_ns: u64) {
        self.driver.block_for(max_ns);
    }

    /// See [`Driver::begin_wait`].
    pub(crate) fn begin_wait(&mut self) -> Option<u64> {
        self.driver.begin_wait()
    }

    /// See [`Driver::end_wait`].
    pub(crate) fn end_wait(&mut self) {
        self.driver.end_wait();
    }

    /// The transport, to wait for it together with others.
    pub(crate) fn transport(&self) -> &T {
        self.driver.transport()
    }

    /// The handle to wait with between [`Engine::begin_wait`] and [`Engine::end_wait`].
    pub(crate) fn wait_handle(&self) -> io::Result<Arc<dyn Wait>> {
        self.driver.transport().wait_handle()
    }

    /// The time of the last turn; `None` before the first one.
    #[inline]
    pub(crate) fn last_turn(&self) -> Option<Mono> {
        self.driver.last_now().map(|now| now.mono)
    }

    /// When the endpoint must take a turn at the latest.
    pub(crate) fn deadline(&self) -> Option<Mono> {
        self.node().poll_timeout()
    }

    #[inline]
    pub(crate) fn node(&self) -> &Node {
        self.driver.machine()
    }

    #[inline]
    pub(crate) fn node_mut(&mut self) -> &mut Node {
        self.driver.machine_mut()
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

    pub(crate) fn peers(&self) -> &ProcessSet {
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
