//! Joining a fabric.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use onepipe_base::{Controllers, ProcessId};
use onepipe_bulk::Link;
use onepipe_endpoint::{Config, Endpoint, Links, ReceiveMode};
use onepipe_large::{Config as LargeConfig, ConfigError as LargeConfigError, LargeEndpoint};
use onepipe_transport_clock::{Clock, SystemClock, start_incarnation};
use onepipe_transport_shm::{self as shm, AttachError, Shm};
use onepipe_transport_udp::{
    self as udp, JoinFailure, JoinerConfig, LocalProcess, Mismatch, UdpLink, UdpOverlay,
};
use onepipe_wire::Terms;

use crate::agreed::{Agreed, EXCLUSION_TIMEOUT_NS, receive_mode_of};
use crate::engine::{Engine, Fabric, FabricEngine};
use crate::memory::MemoryOptions;
use crate::pipe_endpoint::PipeEndpoint;
use crate::{Idle, JoinError};

/// Initial probe timeout of an unacknowledged message, in ns; it doubles up to eight times that.
const PROBE_TIMEOUT_NS: u64 = 1_000_000;
/// Minimum congestion window of one process, in bytes. A software switch or a socket that was off
/// its core for a moment marks whole batches; only DCTCP's own minimum of two frames per round trip
/// would then be left.
const CONGESTION_WINDOW_MIN_BYTES: u32 = 32 << 10;
/// Number of connections with whole initial and minimum windows. All 63 of each of 64 processes
/// overflow the receive buffer of a software switch (16 MiB), as `bench order` shows.
const CONGESTION_FULL_WINDOWS: u32 = 4;
/// Number of unanswered probes after which the outcome of a message is unknown: about a second, and
/// longer where round trips take longer than the probe timeout.
const PROBES_MAX: u32 = 128;
/// For how long the outcomes of best-effort messages are asked for where controllers report the
/// receivers that have failed, in ns.
const UNKNOWN_AFTER_NS: u64 = 60_000_000_000;
/// The same where a receiver behind a switch that has died is not reported.
const UNKNOWN_AFTER_WITHOUT_CONTROLLERS_NS: u64 = 10_000_000_000;
/// For how long a reliable scattering waits for the next incarnation of a process that has just
/// failed. A restart takes a few hundred ms: the start of a program, a join, and the notices of its
/// previous failure.
const REJOIN_WAIT_NS: u64 = 5_000_000_000;
/// Interval of beacons to a switch, in ns: longer for a backing-off process, as a beacon is a
/// system call of about 4 us, shorter for a spinning one, which trades its core for latency.
const BEACON_INTERVAL_NS: u64 = 50_000;
const BEACON_INTERVAL_SPINNING_NS: u64 = 10_000;
/// Interval of heartbeats, in ns: what a process at rest sends to its switch. Beacons follow at
/// [`BEACON_INTERVAL_NS`] only while something is undelivered.
const HEARTBEAT_INTERVAL_NS: u64 = 100_000_000;
/// Interval of realigning the clock with the system's clock, in ns.
pub(crate) const CLOCK_FOLLOW_NS: u64 = 100_000_000;
/// Probes are sent after 1, 2, 4, and then every 8 probe timeouts. The last one must not be earlier
/// than [`EXCLUSION_TIMEOUT_NS`]: the process is then reported to the controllers as failed.
const _: () = {
    let probing_ns = PROBE_TIMEOUT_NS * (1 + 2 + 4 + 8 * (PROBES_MAX as u64 - 3));
    assert!(probing_ns >= EXCLUSION_TIMEOUT_NS);
};

/// Failure timeout of a member of a bulk group, in ns: longer than the link timeout, because a
/// payload that has failed is not retransmitted.
const LARGE_DEAD_AFTER_NS: u64 = 4 * EXCLUSION_TIMEOUT_NS;

/// How long a sender waits for a receiver that does not drain its ring before it drops frames, in
/// ns: below the link timeout, because other processes wait for the sender meanwhile. Both are
/// longer while processes wait for a core.
const HOLD_NS: u64 = 50_000_000;

/// Limit of process ids for which an overlay has memory before it knows the limit.
const OVERLAY_PROCESSES_MAX: u32 = 1024;

/// Changes to a configuration, in the order given.
type ConfigChanges<C> = Vec<Box<dyn FnMut(&mut C) + Send>>;

/// Settings for joining a fabric. Every setting has a default.
pub struct Builder {
    fabric: String,
    process: Option<ProcessId>,
    switch: Option<String>,
    /// `switch` is the address of an aggregator.
    is_overlay: bool,
    pub(crate) idle: Idle,
    pub(crate) leave_timeout: Duration,
    wait: Duration,
    agreed: Agreed,
    has_any_size: bool,
    has_checksums: bool,
    tune: ConfigChanges<Config>,
    tune_any_size: ConfigChanges<LargeConfig>,
    tune_shared_memory: ConfigChanges<shm::Config>,
    tune_udp: ConfigChanges<udp::Config>,
    memory: MemoryOptions,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            fabric: "default".to_owned(),
            process: None,
            switch: None,
            is_overlay: false,
            idle: Idle::default(),
            leave_timeout: Duration::from_secs(2),
            wait: Duration::from_secs(10),
            agreed: Agreed::default(),
            has_any_size: false,
            has_checksums: false,
            tune: Vec::new(),
            tune_any_size: Vec::new(),
            tune_shared_memory: Vec::new(),
            tune_udp: Vec::new(),
            memory: MemoryOptions::default(),
        }
    }

    /// Sets the name of the fabric in this machine's shared memory: 1 to 64 letters, digits, `-`
    /// and `_`. Default `default`. All processes of one user with the same name share the fabric.
    #[must_use]
    pub fn fabric(mut self, name: impl Into<String>) -> Self {
        self.fabric = name.into();
        self
    }

    /// Sets the process id. Default: the lowest free id; over a switch there is no default.
    #[must_use]
    pub fn process(mut self, process: u32) -> Self {
        self.process = Some(ProcessId(process));
        self
    }

    /// Sets the maximum number of processes: ids lie below it. In shared memory the first process
    /// decides (default 64); over a switch the switch does, and another number is
    /// [`JoinError::Mismatch`].
    #[must_use]
    pub fn processes(mut self, processes_max: u32) -> Self {
        self.agreed.given.processes_max = Some(processes_max);
        self
    }

    /// Joins through the software switch at this address (`host:port`) instead of shared memory.
    #[must_use]
    pub fn udp(mut self, switch: impl ToString) -> Self {
        self.switch = Some(switch.to_string());
        self.is_overlay = false;
        self
    }

    /// Joins over any network with the aggregator (`onepipe aggregator`) at this address
    /// (`host:port`): messages go directly from host to host, only promises through the
    /// aggregators. The reliable service is as exact as through a switch; best effort loses what
    /// the network delays.
    #[must_use]
    pub fn overlay(mut self, aggregator: impl ToString) -> Self {
        self.switch = Some(aggregator.to_string());
        self.is_overlay = true;
        self
    }

    /// Sets the process ids of the fabric's controllers (`onepipe controller`): `count` from
    /// `first` on. They decide which processes have failed. Default: those of the switch, or in
    /// shared memory those of the first process; others are [`JoinError::Mismatch`]. Without
    /// controllers a reliable scattering to a process that dies stays unresolved for ever.
    #[must_use]
    pub fn controllers(mut self, first: u32, count: u32) -> Self {
        self.agreed.given.controllers = Some(Controllers { first: ProcessId(first), count });
        self
    }

    /// Sets the link timeout: how long a neighbour may send nothing before it is taken as lost. In
    /// shared memory the first process decides: by default 0.1 s, and 1 s with controllers, where a
    /// timeout excludes a process. Over a switch the switch does. Another one is
    /// [`JoinError::Mismatch`]; [`Builder::tune`] changes that of this process alone.
    #[must_use]
    pub fn link_timeout(mut self, timeout: Duration) -> Self {
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        self.agreed.given.link_timeout_ns = Some(timeout_ns);
        self
    }

    /// Sets whether the two services are received as two streams, each in a total order of its own,
    /// or as one stream that is totally ordered across both. In shared memory the first process
    /// decides (default [`ReceiveMode::Separate`]), and another mode is [`JoinError::Mismatch`].
    /// Over a network each process has its own; default [`ReceiveMode::Separate`].
    #[must_use]
    pub fn receive_mode(mut self, mode: ReceiveMode) -> Self {
        self.agreed.receive_mode = Some(mode);
        self
    }

    /// Sets what to do with the core while idle. Default [`Idle::Backoff`].
    #[must_use]
    pub fn idle(mut self, idle: Idle) -> Self {
        self.idle = idle;
        self
    }

    /// Allows payloads of any size up to [`LargeConfig::object_len_max`]: large ones travel by bulk
    /// multicast over the same links, and take their position in the order when all their receivers
    /// have them, so that they delay no other messages. All processes of a fabric that communicate
    /// must agree. A scattering submitted after a large one may be ordered before it.
    #[must_use]
    pub fn any_size(mut self) -> Self {
        self.has_any_size = true;
        self
    }

    /// As [`Builder::any_size`], and changes the settings of large payloads: for experts. The
    /// endpoint's configuration cannot be changed here.
    #[must_use]
    pub fn tune_any_size(mut self, change: impl FnMut(&mut LargeConfig) + Send + 'static) -> Self {
        self.tune_any_size.push(Box::new(change));
        self.any_size()
    }

    /// Sets whether frames in shared memory bear checksums, which their receivers verify. Default
    /// false: memory of one machine corrupts no frame. The first process of a fabric decides.
    /// Frames over a network always bear them.
    #[must_use]
    pub fn checksums(mut self, has_checksums: bool) -> Self {
        self.has_checksums = has_checksums;
        self
    }

    /// Sets how long joining waits for the switch or the aggregator to answer. Default 10 s: a
    /// machine whose programs start in any order is up by then. Zero: joining does not wait, adopts
    /// nothing and reports no refusal, for a program that drives the switch in the same thread.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Sets how long leaving may wait for the outcomes of sent messages. Default 2 s.
    #[must_use]
    pub fn leave_timeout(mut self, timeout: Duration) -> Self {
        self.leave_timeout = timeout;
        self
    }

    /// Changes the endpoint's configuration: for experts. Process id, number of processes, links,
    /// checksums and incarnation are given by the fabric and cannot be changed.
    #[must_use]
    pub fn tune(mut self, change: impl FnMut(&mut Config) + Send + 'static) -> Self {
        self.tune.push(Box::new(change));
        self
    }

    /// Changes the sizes of the segment, if this process creates it: for experts.
    #[must_use]
    pub fn tune_shared_memory(
        mut self,
        change: impl FnMut(&mut shm::Config) + Send + 'static,
    ) -> Self {
        self.tune_shared_memory.push(Box::new(change));
        self
    }

    /// Changes the settings of the socket: for experts.
    #[must_use]
    pub fn tune_udp(mut self, change: impl FnMut(&mut udp::Config) + Send + 'static) -> Self {
        self.tune_udp.push(Box::new(change));
        self
    }

    /// Changes the settings of registered memory: for experts.
    #[must_use]
    pub fn tune_memory(mut self, change: impl FnOnce(&mut MemoryOptions)) -> Self {
        change(&mut self.memory);
        self
    }

    /// Fixes the process id, for rejoining.
    pub(crate) fn set_process(&mut self, process: ProcessId) {
        self.process = Some(process);
    }

    pub(crate) fn join_fabric(&mut self) -> Result<FabricEngine, JoinError> {
        match self.switch.clone() {
            Some(switch) => self.join_udp(switch),
            None => self.join_shared_memory(),
        }
    }

    fn join_shared_memory(&mut self) -> Result<FabricEngine, JoinError> {
        let mut sizes = shm::Config {
            has_checksums: self.has_checksums,
            hold_ns: HOLD_NS,
            ..self.agreed.of_new_segment()
        };
        self.tune_shared_memory.iter_mut().for_each(|change| change(&mut sizes));
        let shm = Shm::attach(&self.fabric, self.process, &sizes).map_err(|source| {
            let fabric = self.fabric.clone();
            match source {
                AttachError::Taken { process, pid } => {
                    JoinError::Taken { fabric, process: ProcessId(process), pid }
                }
                source => JoinError::SharedMemory { fabric, source },
            }
        })?;
        if let Err(Mismatch { setting, ours, theirs }) = self.agreed.check_segment(shm.config()) {
            return Err(JoinError::Mismatch { setting, ours, theirs });
        }
        let supported = shm.config().frame_len_max;
        let config = Config {
            processes_max: shm.config().processes_max,
            links: Links::Mesh,
            frame_len_max: supported,
            has_checksums: shm.config().has_checksums,
            beacon_interval_ns: 0,
            receive_mode: receive_mode_of(shm.config()),
            ..Config::new(shm.process(), shm.incarnation())
        };
        let controllers = shm.config().controllers;
        let terms = Terms {
            processes_max: config.processes_max,
            controllers,
            link_timeout_ns: shm.config().link_timeout_ns,
            frame_len_max: supported as u32,
            key_epoch: 0,
            version: onepipe_wire::VERSION,
        };
        let clock = shm.clock();
        let engine = self.engine(config, Some(terms), supported, shm, clock.clone())?;
        Ok(FabricEngine::SharedMemory(Box::new(engine), clock))
    }

    fn join_udp(&mut self, switch: String) -> Result<FabricEngine, JoinError> {
        let Some(process) = self.process else { return Err(JoinError::ProcessNeeded { switch }) };
        let address = resolve(&switch)
            .map_err(|source| JoinError::Address { switch: switch.clone(), source })?;
        let mut socket = udp::Config::default();
        self.tune_udp.iter_mut().for_each(|change| change(&mut socket));
        let incarnation = start_incarnation(process.0);
        let refused = |source| JoinError::Socket { switch: switch.clone(), source };
        let beacon_interval_ns = match self.idle {
            Idle::Backoff => BEACON_INTERVAL_NS,
            Idle::Spin | Idle::Yield => BEACON_INTERVAL_SPINNING_NS,
        };
        let mut clock = SystemClock::calibrated().following_system(CLOCK_FOLLOW_NS);
        let failed = |failure| JoinError::of_handshake(process, failure);
        let wait = self.wait;
        let mut supported = socket.frame_len_max;
        let (terms, links) = if self.is_overlay {
            let processes_max = self.agreed.given.processes_max.unwrap_or(OVERLAY_PROCESSES_MAX);
            let own = LocalProcess { process, incarnation, processes_max };
            let links = UdpOverlay::connect(address, own, None, &socket).map_err(refused)?;
            let mut links = links.joining();
            (links.join(wait, || clock.read()).map_err(failed)?, UdpFabric::Overlay(links))
        } else {
            let link = UdpLink::connect(address, &socket).map_err(refused)?;
            let joiner = JoinerConfig::process(process, incarnation);
            let mut link = link.joining(JoinerConfig { wants_members: true, ..joiner });
            (link.join(wait, || clock.read()).map_err(failed)?, UdpFabric::Switch(link))
        };
        if let Some(terms) = &terms {
            self.agreed
                .check(terms)
                .map_err(|mismatch| failed(JoinFailure::mismatch(address, mismatch)))?;
            supported = supported.min(terms.frame_len_max as usize);
        }
        let config = Config {
            processes_max: match &terms {
                Some(terms) => terms.processes_max,
                None => self.agreed.processes_max(),
            },
            links: if self.is_overlay { Links::Overlay } else { Links::Uplink },
            frame_len_max: supported,
            beacon_interval_ns,
            heartbeat_interval_ns: HEARTBEAT_INTERVAL_NS,
            receive_mode: self.agreed.receive_mode(),
            ..Config::new(process, incarnation)
        };
        match links {
            UdpFabric::Overlay(links) => {
                let engine = self.engine(config, terms, supported, links, clock.clone())?;
                Ok(FabricEngine::Overlay(Box::new(engine), clock))
            }
            UdpFabric::Switch(link) => {
                let engine = self.engine(config, terms, supported, link, clock.clone())?;
                Ok(FabricEngine::Udp(Box::new(engine), clock))
            }
        }
    }

    fn engine<T: Fabric>(
        &mut self,
        mut config: Config,
        terms: Option<Terms>,
        supported: usize,
        fabric: T,
        clock: SystemClock,
    ) -> Result<Engine<T>, JoinError> {
        config.controllers = terms.map_or(self.agreed.given.controllers, |terms| terms.controllers);
        config.link_timeout_ns = terms
            .map_or(self.agreed.link_timeout_ns(config.controllers), |terms| terms.link_timeout_ns);
        config.probe_timeout_min_ns = PROBE_TIMEOUT_NS;
        config.probes_max = PROBES_MAX;
        config.rejoin_wait_ns = REJOIN_WAIT_NS;
        // Of the fabric, not of the builder: the terms may name controllers that were not given.
        config.unknown_after_ns = match config.controllers {
            Some(_) => UNKNOWN_AFTER_NS,
            None => UNKNOWN_AFTER_WITHOUT_CONTROLLERS_NS,
        };
        config.give_up_after_ns = config.unknown_after_ns;
        config.congestion_window_min_bytes = CONGESTION_WINDOW_MIN_BYTES;
        config.congestion_full_windows = CONGESTION_FULL_WINDOWS;
        if !T::IS_FIFO {
            // Driver rule D4: loss cannot be inferred from reordering.
            config.reorder_packets = 0;
        }
        let fixed = config.clone();
        self.tune.iter_mut().for_each(|change| change(&mut config));
        let config = Config {
            process: fixed.process,
            incarnation: fixed.incarnation,
            processes_max: fixed.processes_max,
            links: fixed.links,
            has_checksums: fixed.has_checksums,
            ..config
        };
        if config.frame_len_max > supported {
            return Err(JoinError::Frame { requested: config.frame_len_max, supported });
        }
        let process = config.process;
        let pipe_endpoint = match self.has_any_size {
            false => Endpoint::new(config)
                .map(PipeEndpoint::Plain)
                .map_err(|source| JoinError::Config { process, source })?,
            true => self.large_endpoint(config)?,
        };
        Ok(Engine::new(pipe_endpoint, fabric, clock, self.idle, self.memory))
    }
}

impl Builder {
    fn large_endpoint(&mut self, config: Config) -> Result<PipeEndpoint, JoinError> {
        let process = config.process;
        let mut large = LargeConfig {
            // Shared memory applies backpressure; datagrams are lost.
            link: if config.links == Links::Mesh { Link::Reliable } else { Link::Lossy },
            dead_after_ns: LARGE_DEAD_AFTER_NS,
            ..LargeConfig::new(config.clone())
        };
        self.tune_any_size.iter_mut().for_each(|change| change(&mut large));
        large.endpoint = config;
        let refused = |source| match source {
            LargeConfigError::Endpoint(source) => JoinError::Config { process, source },
            source => JoinError::LargeConfig { process, source },
        };
        let large = LargeEndpoint::new(large).map_err(refused)?;
        Ok(PipeEndpoint::AnySize(Box::new(large)))
    }
}

/// The links of a process over UDP.
enum UdpFabric {
    Switch(UdpLink),
    Overlay(UdpOverlay),
}

/// Resolves `switch` to its first address.
pub(crate) fn resolve(switch: &str) -> std::io::Result<SocketAddr> {
    let nothing = || std::io::Error::new(std::io::ErrorKind::NotFound, "the name has no address");
    switch.to_socket_addrs()?.next().ok_or_else(nothing)
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("fabric", &self.fabric)
            .field("process", &self.process)
            .field("switch", &self.switch)
            .field("is_overlay", &self.is_overlay)
            .field("agreed", &self.agreed)
            .field("idle", &self.idle)
            .field("leave_timeout", &self.leave_timeout)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}
