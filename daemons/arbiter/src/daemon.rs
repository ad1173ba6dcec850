//! The daemon: an arbiter with sockets, clock and threads.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use onepipe_arbiter::{Arbiter, ArbiterError, ArbiterEvent, ControlPlane, Dispatcher};
use onepipe_transport_clock::{
    Clock, SystemClock, cores, pin_to_core, reduce_wakeup_latency, start_incarnation,
};
use onepipe_transport_driver::{
    Config as DriverConfig, Doorbell, DrivenMachine, Driver, Progress, Transport,
};
use onepipe_transport_status::{Server, StatusRequests, bind};
use onepipe_transport_udp::{Config as UdpConfig, JoinFailure, JoinerConfig, UdpLink};

use crate::pipelined::PipelinedArbiter;
use crate::worker_pool::{WorkerPool, WorkerPoolError};
use crate::{Config, Report, StartError};

/// Interval at which the clock is resynchronised with that of the system, ns.
const CLOCK_FOLLOW_NS: u64 = 10_000_000;

/// An arbiter: one thread with a socket, and worker threads if there are cores for them.
#[derive(Debug)]
pub struct ArbiterDaemon {
    engine: Engine,
    core: Option<usize>,
    threads: usize,
    switch: SocketAddr,
    began: Instant,
    status: Option<StatusEndpoint>,
}

/// The HTTP status server.
#[derive(Debug)]
struct StatusEndpoint {
    addr: SocketAddr,
    requests: StatusRequests<Report>,
    _server: Server,
}

#[derive(Debug)]
enum Engine {
    Single(Box<Driver<Arbiter, UdpLink, SystemClock>>),
    WorkerPool(Box<Driver<PipelinedArbiter, UdpLink, SystemClock>>),
}

impl ArbiterDaemon {
    /// Creates an arbiter and opens its socket. It does nothing until its first turn.
    ///
    /// # Errors
    /// [`StartError`]: a setting is out of range, or the system refuses a resource, or the switch
    /// does not answer within [`Config::wait`] or does not admit this arbiter.
    pub fn new(config: &Config) -> Result<Self, StartError> {
        let udp_config = UdpConfig::default();
        let mut machine = config.machine.clone();
        machine.comm.frame_len_max = udp_config.frame_len_max;
        let own = machine.comm.process;
        // Watchdogs to its own id end at the switch, which learns from them where the arbiter is
        // attached, even before any request and without other arbiters.
        if !machine.failover.peers.contains(&own) {
            machine.failover.peers.push(own);
        }
        machine.comm.incarnation = start_incarnation(own.0);
        check_cores(&config.cores)?;
        let own_incarnation = machine.comm.incarnation;
        let mut clock = SystemClock::calibrated().following_system(CLOCK_FOLLOW_NS);
        let connect = || {
            let link = UdpLink::connect(config.switch, &udp_config)
                .map_err(|source| StartError::Socket { switch: config.switch, source })?;
            let mut link = link.joining(JoinerConfig::process(own, own_incarnation));
            link.join(config.wait, || clock.read())?;
            Ok::<_, StartError>((link, clock))
        };
        let engine = if config.cores.len() < 2 {
            let arbiter = Arbiter::new(machine)?;
            Engine::Single(Box::new(drive(arbiter, connect()?, config)))
        } else {
            let workers = config.cores.len() - 1;
            // Each worker may have a batch in flight.
            let allocator = &mut machine.allocator;
            allocator.renew_after_batches =
                allocator.renew_after_batches.max(workers.min(16) as u32);
            let control_plane = ControlPlane::new(machine.clone())?;
            let dispatcher =
                Dispatcher::new(&machine.allocator, workers).map_err(ArbiterError::from)?;
            let (link, clock) = connect()?;
            let pool =
                WorkerPool::start(&machine, &config.cores[1..], config.idle, &link.doorbell());
            let (pool, rings) = pool.map_err(|error| match error {
                WorkerPoolError::Machine(error) => StartError::Machine(error),
                WorkerPoolError::Thread(error) => StartError::Thread(error),
            })?;
            Engine::WorkerPool(Box::new(drive(
                PipelinedArbiter::new(control_plane, dispatcher, pool, rings),
                (link, clock),
                config,
            )))
        };
        let mut daemon = Self {
            engine,
            core: config.cores.first().copied(),
            threads: config.cores.len().max(1),
            switch: config.switch,
            began: Instant::now(),
            status: None,
        };
        if let Some(listen) = config.status_listen {
            let status = serve_status(listen, daemon.doorbell());
            daemon.status = Some(status.map_err(|source| StartError::Listen { listen, source })?);
        }
        Ok(daemon)
    }

    /// Prepares the calling thread for turns: pins it to the configured core and sharpens its
    /// timers.
    pub fn prepare_thread(&self) {
        if let Some(core) = self.core {
            // Whether the core exists was checked before.
            let _ = pin_to_core(core);
        }
        reduce_wakeup_latency();
    }

    /// Returns the address of the status server, if there is one.
    pub fn status_addr(&self) -> Option<SocketAddr> {
        self.status.as_ref().map(|status| status.addr)
    }

    /// Handles received frames and due timers. `on_event` is called for each event.
    pub fn turn(&mut self, mut on_event: impl FnMut(ArbiterEvent)) -> Progress {
        if let Some(status) = &self.status {
            status.requests.respond(|| self.report());
        }
        match &mut self.engine {
            Engine::Single(driver) => driver.turn(|_, event| on_event(event)),
            Engine::WorkerPool(driver) => driver.turn(|_, event| on_event(event)),
        }
    }

    /// Waits as the idle strategy demands, given the progress of the last turn.
    pub fn rest(&mut self, progress: Progress) {
        match &mut self.engine {
            Engine::Single(driver) => driver.rest(progress),
            Engine::WorkerPool(driver) => driver.rest(progress),
        }
    }

    /// Runs until `stop` is set. Ring the doorbell after setting it.
    pub fn run(&mut self, stop: &AtomicBool, mut on_event: impl FnMut(ArbiterEvent)) {
        self.prepare_thread();
        while !stop.load(Ordering::Acquire) {
            let progress = self.turn(&mut on_event);
            self.rest(progress);
        }
    }

    /// Returns why the switch does not admit this arbiter any more, if that will not pass by
    /// itself: the switch was restarted with other settings. Endpoints are not reached any more.
    pub fn refusal(&self) -> Option<JoinFailure> {
        match &self.engine {
            Engine::Single(driver) => driver.transport().failure(),
            Engine::WorkerPool(driver) => driver.transport().failure(),
        }
    }

    /// Returns the doorbell that wakes a blocked daemon.
    pub fn doorbell(&self) -> Doorbell {
        match &self.engine {
            Engine::Single(driver) => driver.doorbell(),
            Engine::WorkerPool(driver) => driver.doorbell(),
        }
    }

    /// Returns the current report.
    pub fn report(&self) -> Report {
        let (control_plane, duty) = match &self.engine {
            Engine::Single(driver) => (driver.machine().control_plane(), driver.duty()),
            Engine::WorkerPool(driver) => (driver.machine().control_plane(), driver.duty()),
        };
        Report {
            attachment: format!("switch {}", self.switch),
            uptime_s: self.began.elapsed().as_secs_f64(),
            threads: self.threads,
            pauses: duty.pause_count,
            pause_max_ns: duty.pause_max_ns,
            ..Report::new(control_plane)
        }
    }
}

fn drive<M: DrivenMachine>(
    machine: M,
    (link, clock): (UdpLink, SystemClock),
    config: &Config,
) -> Driver<M, UdpLink, SystemClock> {
    let driver_config = DriverConfig { idle: config.idle, ..DriverConfig::default() };
    Driver::new(machine, link, clock, driver_config)
}

fn serve_status(listen: SocketAddr, doorbell: Doorbell) -> std::io::Result<StatusEndpoint> {
    let (listener, addr) = bind(listen)?;
    let (server, requests) = Server::start(listener, doorbell)?;
    Ok(StatusEndpoint { addr, requests, _server: server })
}

/// Checks that threads may run on all of these cores.
fn check_cores(wanted: &[usize]) -> Result<(), StartError> {
    let Some(&first) = wanted.first() else { return Ok(()) };
    let available = cores().map_err(|source| StartError::Core { core: first, source })?;
    match wanted.iter().find(|core| !available.contains(core)) {
        None => Ok(()),
        Some(&core) => Err(StartError::Core { core, source: std::io::ErrorKind::NotFound.into() }),
    }
}
