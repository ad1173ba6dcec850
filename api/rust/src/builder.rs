//! How to become a process of a fabric.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use onepipe_base::{Controllers, ProcessId};
use onepipe_bulk::Link;
use onepipe_endpoint::{Config, Endpoint, Links, ReceiveMode};
use onepipe_large::{Config as LargeConfig, ConfigError as LargeConfigError, LargeEndpoint};
use onepipe_transport_clock::{SystemClock, start_incarnation};
use onepipe_transport_shm::{self as shm, AttachError, Shm};
use onepipe_transport_udp::{self as udp, LocalProcess, UdpLink, UdpOverlay};

use crate::embedded::FabricEngine;
use crate::engine::{Engine, Fabric};
use crate::pipe_endpoint::PipeEndpoint;
use crate::{EmbeddedPipe, Idle, JoinError, Pipe};

/// What a time-out on one shared machine must outlast: a process that is merely put off its core.
/// 30 ms are safe on a machine of two cores (design: platform.md, "timers and noise"); thrice
/// that, for one that is overloaded.
const LINK_TIMEOUT_NS: u64 = 100_000_000;
/// How often an unacknowledged message is asked after at first, and how many times: a second
/// altogether, with the waits growing eightfold.
const PROBE_TIMEOUT_NS: u64 = 1_000_000;
/// The least that may be in flight to one process, in bytes. A software switch and a socket mark
/// whole batches when they were off their core for a moment; two frames a round trip, DCTCP's own
/// floor, would then be all that is left.
const CONGESTION_WINDOW_MIN_BYTES: u32 = 32 << 10;
const PROBES_MAX: u32 = 128;
/// Beacons to a switch: a civil process does not spend its core on them (a beacon is a system call
/// of some 4 us), a spinning one wants its messages delivered soon.
const BEACON_INTERVAL_NS: u64 = 50_000;
const BEACON_INTERVAL_SPINNING_NS: u64 = 10_000;
/// How often the clock is brought back to the machine's own, which others share.
pub(crate) const CLOCK_FOLLOW_NS: u64 = 100_000_000;
/// Where failures are resolved by controllers, silence costs a process its life. The kernel says at
/// once who is dead, in shared memory and, to a switch, of a socket that has gone; so silence alone
/// is believed late: on two overloaded cores a process was off its core for 0.1 s (measured).
const SILENCE_TIMEOUT_NS: u64 = 1_000_000_000;

/// A process that does not answer is asked after 1, 2, 4, and then every 8 of the first pauses, and
/// then the controllers are asked for help: not before silence is believed at all.
const _: () = {
    let probing_ns = PROBE_TIMEOUT_NS * (1 + 2 + 4 + 8 * (PROBES_MAX as u64 - 3));
    assert!(probing_ns >= SILENCE_TIMEOUT_NS);
};

/// A member of a bulk group that answers nothing for so long has failed: as silence is believed,
/// and more, because a payload that has failed is not sent again.
const LARGE_DEAD_AFTER_NS: u64 = 4 * SILENCE_TIMEOUT_NS;

/// How long a sender waits for a receiver that does not empty its ring before it drops frames: as
/// the time-out of a link, but below it, because others wait for the sender meanwhile.
const HOLD_NS: u64 = 50_000_000;

/// Changes to a configuration, in the order given.
type ConfigChanges<C> = Vec<Box<dyn FnMut(&mut C) + Send>>;

/// Says who joins which fabric, and how. Every setting has a default.
pub struct Builder {
    fabric: String,
    process: Option<ProcessId>,
    processes: u32,
    switch: Option<String>,
    /// It is an aggregator.
    is_overlay: bool,
    idle: Idle,
    leave_timeout: Duration,
    controllers: Option<Controllers>,
    receive_mode: ReceiveMode,
    has_any_size: bool,
    tune: ConfigChanges<Config>,
    tune_any_size: ConfigChanges<LargeConfig>,
    tune_shared_memory: ConfigChanges<shm::Config>,
    tune_udp: ConfigChanges<udp::Config>,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            fabric: "default".to_owned(),
            process: None,
            processes: 64,
            switch: None,
            is_overlay: false,
            idle: Idle::default(),
            leave_timeout: Duration::from_secs(2),
            controllers: None,
            receive_mode: ReceiveMode::Separate,
            has_any_size: false,
            tune: Vec::new(),
            tune_any_size: Vec::new(),
            tune_shared_memory: Vec::new(),
            tune_udp: Vec::new(),
        }
    }

    /// The name of the fabric in this machine's shared memory: 1 to 64 letters, digits, `-` and
    /// `_`. Default `default`. All processes of one user that name it meet.
    #[must_use]
    pub fn fabric(mut self, name: impl Into<String>) -> Self {
        self.fabric = name.into();
        self
    }

    /// Which process to be. Default: the lowest id that is free; over a switch there is no
    /// default.
    #[must_use]
    pub fn process(mut self, process: u32) -> Self {
        self.process = Some(ProcessId(process));
        self
    }

    /// How many processes there may be: ids lie below. Default 64. In shared memory whoever comes
    /// first decides; over a switch everybody must say the same as the switch.
    #[must_use]
    pub fn processes(mut self, processes_max: u32) -> Self {
        self.processes = processes_max;
        self
    }

    /// Through the software switch at this address (`host:port`) instead of shared memory.
    #[must_use]
    pub fn udp(mut self, switch: impl ToString) -> Self {
        self.switch = Some(switch.to_string());
        self.is_overlay = false;
        self
    }

    /// Over any network, with the aggregator (`onepipe aggregator`) at this address (`host:port`):
    /// messages go directly from host to host, only promises by way of the aggregators. The
    /// reliable service is as exact as through a switch; best effort loses what the network delays.
    #[must_use]
    pub fn overlay(mut self, aggregator: impl ToString) -> Self {
        self.switch = Some(aggregator.to_string());
        self.is_overlay = true;
        self
    }

    /// The process ids of the fabric's controllers (`onepipe controller`): `count` from `first` on.
    /// They decide who has failed. Default none: then a reliable scattering to a process that dies
    /// stays open for ever. Everybody must say the same.
    #[must_use]
    pub fn controllers(mut self, first: u32, count: u32) -> Self {
        self.controllers = Some(Controllers { first: ProcessId(first), count });
        self
    }

    /// Whether the two services are received as two streams, each in a total order of its own, or
    /// as one that is totally ordered across both. Default [`ReceiveMode::Separate`].
    #[must_use]
    pub fn receive_mode(mut self, mode: ReceiveMode) -> Self {
        self.receive_mode = mode;
        self
    }

    /// What to do when there is nothing to do. Default [`Idle::Backoff`].
    #[must_use]
    pub fn idle(mut self, idle: Idle) -> Self {
        self.idle = idle;
        self
    }

    /// Lets payloads have any size, up to [`LargeConfig::object_len_max`]: large ones travel by
    /// bulk multicast, over the same links, and take their place in the order when they are at all
    /// their receivers, so that nobody's messages wait for them. All processes of a fabric that
    /// send each other anything must say this alike. What a process submits behind a large
    /// scattering may come before it.
    #[must_use]
    pub fn any_size(mut self) -> Self {
        self.has_any_size = true;
        self
    }

    /// As [`Builder::any_size`], and changes the numbers of large payloads: for experts. The
    /// endpoint is settled by the other settings and stays as it is.
    #[must_use]
    pub fn tune_any_size(mut self, change: impl FnMut(&mut LargeConfig) + Send + 'static) -> Self {
        self.tune_any_size.push(Box::new(change));
        self.any_size()
    }

    /// How long leaving may wait for the fate of what was sent. Default 2 s.
    #[must_use]
    pub fn leave_timeout(mut self, timeout: Duration) -> Self {
        self.leave_timeout = timeout;
        self
    }

    /// Changes the endpoint's numbers: for experts. Who and how many the processes are, the links
    /// and the incarnation are settled by the fabric and stay as they are.
    #[must_use]
    pub fn tune(mut self, change: impl FnMut(&mut Config) + Send + 'static) -> Self {
        self.tune.push(Box::new(change));
        self
    }

    /// Changes the sizes of the segment, if this process is the one to create it: for experts.
    #[must_use]
    pub fn tune_shared_memory(
        mut self,
        change: impl FnMut(&mut shm::Config) + Send + 'static,
    ) -> Self {
        self.tune_shared_memory.push(Box::new(change));
        self
    }

    /// Changes how the socket is used: for experts.
    #[must_use]
    pub fn tune_udp(mut self, change: impl FnMut(&mut udp::Config) + Send + 'static) -> Self {
        self.tune_udp.push(Box::new(change));
        self
    }

    /// Joins, with a thread that drives the pipe.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn join(mut self) -> Result<Pipe, JoinError> {
        let (idle, leave_timeout) = (self.idle, self.leave_timeout);
        match self.join_fabric()? {
            FabricEngine::SharedMemory(engine, clock) => {
                Pipe::start(*engine, clock, Box::new(self), idle, leave_timeout)
            }
            FabricEngine::Udp(engine, clock) => {
                Pipe::start(*engine, clock, Box::new(self), idle, leave_timeout)
            }
            FabricEngine::Overlay(engine, clock) => {
                Pipe::start(*engine, clock, Box::new(self), idle, leave_timeout)
            }
        }
    }

    /// Joins, without a thread: the caller's own drives the pipe, by calling it often.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn embedded(mut self) -> Result<EmbeddedPipe, JoinError> {
        let leave_timeout = self.leave_timeout;
        Ok(EmbeddedPipe::new(self.join_fabric()?, Box::new(self), leave_timeout))
    }

    /// From now on this one, whoever asked for any.
    pub(crate) fn set_process(&mut self, process: ProcessId) {
        self.process = Some(process);
    }

    fn join_fabric(&mut self) -> Result<FabricEngine, JoinError> {
        match self.switch.clone() {
            Some(switch) => self.join_udp(switch),
            None => self.join_shared_memory(),
        }
    }

    fn join_shared_memory(&mut self) -> Result<FabricEngine, JoinError> {
        let mut sizes = shm::Config {
            processes_max: self.processes,
            hold_ns: HOLD_NS,
            ..shm::Config::default()
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
        let supported = shm.config().frame_len_max;
        let config = Config {
            processes_max: shm.config().processes_max,
            links: Links::Mesh,
            frame_len_max: supported,
            beacon_interval_ns: 0,
            ..Config::new(shm.process(), shm.incarnation())
        };
        let clock = shm.clock();
        let engine = self.engine(config, supported, shm, clock.clone())?;
        Ok(FabricEngine::SharedMemory(Box::new(engine), clock))
    }

    fn join_udp(&mut self, switch: String) -> Result<FabricEngine, JoinError> {
        let Some(process) = self.process else { return Err(JoinError::ProcessNeeded { switch }) };
        let address = resolve(&switch)
            .map_err(|source| JoinError::Address { switch: switch.clone(), source })?;
        let mut socket = udp::Config::default();
        self.tune_udp.iter_mut().for_each(|change| change(&mut socket));
        let incarnation = start_incarnation();
        let refused = |source| JoinError::Socket { switch: switch.clone(), source };
        let beacon_interval_ns = match self.idle {
            Idle::Backoff => BEACON_INTERVAL_NS,
            Idle::Spin | Idle::Yield => BEACON_INTERVAL_SPINNING_NS,
        };
        let config = Config {
            processes_max: self.processes,
            links: if self.is_overlay { Links::Overlay } else { Links::Uplink },
            frame_len_max: socket.frame_len_max,
            beacon_interval_ns,
            ..Config::new(process, incarnation)
        };
        let clock = SystemClock::calibrated().following_system(CLOCK_FOLLOW_NS);
        let supported = socket.frame_len_max;
        if self.is_overlay {
            let own = LocalProcess { process, incarnation, processes_max: self.processes };
            let links = UdpOverlay::connect(address, own, None, &socket).map_err(refused)?;
            let engine = self.engine(config, supported, links, clock.clone())?;
            return Ok(FabricEngine::Overlay(Box::new(engine), clock));
        }
        let link = UdpLink::connect(address, &socket).map_err(refused)?;
        let engine = self.engine(config, supported, link, clock.clone())?;
        Ok(FabricEngine::Udp(Box::new(engine), clock))
    }

    fn engine<T: Fabric>(
        &mut self,
        mut config: Config,
        supported: usize,
        fabric: T,
        clock: SystemClock,
    ) -> Result<Engine<T>, JoinError> {
        config.controllers = self.controllers;
        config.receive_mode = self.receive_mode;
        config.link_timeout_ns = match self.controllers {
            Some(_) => SILENCE_TIMEOUT_NS,
            None => LINK_TIMEOUT_NS,
        };
        config.probe_timeout_min_ns = PROBE_TIMEOUT_NS;
        config.probes_max = PROBES_MAX;
        config.congestion_window_min_bytes = CONGESTION_WINDOW_MIN_BYTES;
        if !T::IS_FIFO {
            // Driver rule D4: loss cannot be inferred from order.
            config.reorder_packets = 0;
        }
        let fixed = config.clone();
        self.tune.iter_mut().for_each(|change| change(&mut config));
        let config = Config {
            process: fixed.process,
            incarnation: fixed.incarnation,
            processes_max: fixed.processes_max,
            links: fixed.links,
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
        Ok(Engine::new(pipe_endpoint, fabric, clock, self.idle))
    }
}

impl Builder {
    fn large_endpoint(&mut self, config: Config) -> Result<PipeEndpoint, JoinError> {
        let process = config.process;
        let mut large = LargeConfig {
            // What shared memory cannot hand over waits; datagrams are lost.
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

/// The first address of `switch`.
pub(crate) fn resolve(switch: &str) -> std::io::Result<SocketAddr> {
    let nothing = || std::io::Error::new(std::io::ErrorKind::NotFound, "the name has no address");
    switch.to_socket_addrs()?.next().ok_or_else(nothing)
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("fabric", &self.fabric)
            .field("process", &self.process)
            .field("processes", &self.processes)
            .field("switch", &self.switch)
            .field("is_overlay", &self.is_overlay)
            .field("controllers", &self.controllers)
            .field("receive_mode", &self.receive_mode)
            .field("idle", &self.idle)
            .field("leave_timeout", &self.leave_timeout)
            .finish_non_exhaustive()
    }
}
