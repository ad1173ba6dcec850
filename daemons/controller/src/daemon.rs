//! The controller daemon.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use onepipe_base::{Address, Controllers, Incarnation, Instance, ProcessId};
use onepipe_controller::{Controller, Epoch, Event, Links, Store};
use onepipe_transport_clock::{Clock, SystemClock, reduce_wakeup_latency, start_incarnation};
use onepipe_transport_driver::{Config as DriverConfig, Doorbell, Driver, Transport};
use onepipe_transport_shm::{Config as ShmConfig, SegmentLost, Shm};
use onepipe_transport_status::{Server, StatusRequests, bind};
use onepipe_transport_udp::{
    Config as UdpConfig, Given, JoinFailure, JoinerConfig, Refusal, UdpLink,
};
use onepipe_wire::{JoinRole, RefuseReason, Terms};

use crate::metrics::PAUSE_MAX;
use crate::node::Node;
use crate::store_worker::{ElectionTimers, StoreEvent, StoreHandle};
use crate::{Attachment, Config, Report, RunError, StartError};

/// How often the clock is aligned with the system clock, which other processes share.
const CLOCK_FOLLOW_NS: u64 = 100_000_000;

/// A controller: one thread for the machine, one for the store, one for status requests.
#[derive(Debug)]
pub struct ControllerDaemon {
    attached: AttachedLoop,
    process: ProcessId,
    status_addr: Option<SocketAddr>,
    doorbell: Doorbell,
}

#[derive(Debug)]
enum AttachedLoop {
    Switch(Box<ControllerLoop<UdpLink>>),
    Segment(Box<ControllerLoop<Shm>>),
}

impl ControllerDaemon {
    /// Creates a controller that is attached to the fabric and campaigns, and does nothing else
    /// before it runs.
    ///
    /// # Errors
    /// [`StartError`]: numbers out of range, errors of the system, or a switch that does not answer
    /// within [`Config::wait`] or does not admit this controller. A store that does not answer is
    /// no error: it is retried.
    pub fn new<S>(config: &Config, store: S) -> Result<Self, StartError>
    where
        S: Store<Error: Error> + Send + 'static,
    {
        // Called before the thread of the store starts, as that thread inherits the settings.
        reduce_wakeup_latency();
        let status_listener = match config.status_listen {
            None => None,
            Some(listen) => {
                Some(bind(listen).map_err(|source| StartError::Listen { listen, source })?)
            }
        };
        let status_addr = status_listener.as_ref().map(|(_, addr)| *addr);
        let mut machine = config.machine.clone();
        let (attached, process, doorbell) = match &config.attachment {
            Attachment::Switch(switch) => {
                let udp_config = UdpConfig::default();
                machine.links = Links::Uplink;
                machine.frame_len_max = udp_config.frame_len_max;
                let mut clock = SystemClock::calibrated().following_system(CLOCK_FOLLOW_NS);
                let (mut link, mut joined) =
                    join(*switch, &mut machine, config.wait, &udp_config, &mut clock)?;
                if let (true, Some(ids)) = (config.adopts_process, reserved_ids(&joined)) {
                    machine.process = ids.first;
                    (link, joined) =
                        join(*switch, &mut machine, config.wait, &udp_config, &mut clock)?;
                }
                let process = machine.process;
                let not_admitted = |source| StartError::NotAdmitted { process, source };
                if let Some(terms) = joined.map_err(not_admitted)? {
                    adopt(&mut machine, &config.given, *switch, &terms)?;
                }
                let process = machine.process;
                let control_loop =
                    ControllerLoop::open(config, machine, link, clock, store, status_listener)?;
                let doorbell = control_loop.driver.doorbell();
                (AttachedLoop::Switch(Box::new(control_loop)), process, doorbell)
            }
            Attachment::Segment(name) => {
                let shm = attach(name, config, &mut machine)?;
                let shm_config = *shm.config();
                machine.incarnation = shm.incarnation();
                // A segment has at most 1,024 processes.
                machine.links = Links::Mesh(shm_config.processes_max as u16);
                machine.processes_max = shm_config.processes_max;
                machine.frame_len_max = shm_config.frame_len_max;
                machine.adopt_link_timeout(shm_config.link_timeout_ns);
                let clock = shm.clock();
                let process = machine.process;
                let control_loop =
                    ControllerLoop::open(config, machine, shm, clock, store, status_listener)?;
                let doorbell = control_loop.driver.doorbell();
                (AttachedLoop::Segment(Box::new(control_loop)), process, doorbell)
            }
        };
        Ok(Self { attached, process, status_addr, doorbell })
    }

    /// Returns the process id of this replica.
    pub fn process(&self) -> ProcessId {
        self.process
    }

    /// Returns where `GET /status` and `GET /metrics` are answered, if configured.
    pub fn status_addr(&self) -> Option<SocketAddr> {
        self.status_addr
    }

    /// Returns the doorbell that wakes the daemon when it blocks.
    pub fn doorbell(&self) -> Doorbell {
        self.doorbell.clone()
    }

    /// Runs until `stop` is set; then it resigns, if it is active. Ring the doorbell after setting
    /// `stop`.
    ///
    /// # Errors
    /// [`RunError`], before `stop` is set. A controller that the switch does not admit any more has
    /// resigned.
    pub fn run(
        self,
        stop: &AtomicBool,
        on_event: impl FnMut(&ControllerEvent),
    ) -> Result<(), RunError> {
        reduce_wakeup_latency();
        match self.attached {
            AttachedLoop::Switch(control_loop) => control_loop.run(stop, on_event),
            AttachedLoop::Segment(control_loop) => control_loop.run(stop, on_event),
        }
    }
}

/// An event of a controller daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ControllerEvent {
    /// An event of the machine.
    Machine(Event),
    /// The machine is isolated ([`Event::Isolated`]).
    Isolated {
        /// Whether this replica resigns: there are others, which may be better connected.
        resigns: bool,
    },
    /// The store has failed, or its error has changed; calls are retried.
    StoreFailed(String),
    /// The store works again.
    StoreRecovered,
}

//= spec/ordering.md#R67
/// Attaches the controller to the segment `name`, and adopts the controllers that its first process
/// has given. If this is the first process, it states the link timeout, too.
fn attach(
    name: &str,
    config: &Config,
    machine: &mut onepipe_controller::Config,
) -> Result<Shm, StartError> {
    loop {
        let sizes = ShmConfig {
            controllers: Some(machine.controllers),
            link_timeout_ns: machine.link_timeout_ns,
            ..ShmConfig::default()
        };
        let shm = Shm::attach(name, Some(machine.process), &sizes)
            .map_err(|source| StartError::Segment { name: name.to_owned(), source })?;
        let theirs = shm.config().controllers;
        let given = Given { controllers: Some(machine.controllers), ..config.given };
        let Err(mismatch) = given.check_controllers(theirs) else { return Ok(shm) };
        match theirs {
            Some(theirs) if config.adopts_process => {
                (machine.controllers, machine.process) = (theirs, theirs.first);
            }
            Some(theirs)
                if config.given.controllers.is_none() && theirs.contains(machine.process) =>
            {
                machine.controllers = theirs;
            }
            _ => {
                let fabric = format!("shared memory {name:?}");
                return Err(JoinFailure::mismatch(fabric, mismatch).into());
            }
        }
    }
}

/// Opens a link as the controller `machine.process`, and asks to be admitted. Also returns the
/// answer.
fn join(
    switch: SocketAddr,
    machine: &mut onepipe_controller::Config,
    wait: Duration,
    udp_config: &UdpConfig,
    clock: &mut SystemClock,
) -> Result<(UdpLink, Result<Option<Terms>, JoinFailure>), StartError> {
    machine.incarnation = start_incarnation(machine.process.0);
    let link = UdpLink::connect(switch, udp_config)
        .map_err(|source| StartError::Socket { switch, source })?;
    let address = Address::Process(machine.process);
    let own = Instance { address, incarnation: machine.incarnation };
    let mut link = link.joining(JoinerConfig::new(own, JoinRole::Controller));
    let joined = link.join(wait, || clock.read());
    Ok((link, joined))
}

/// Returns the ids that the fabric reserves for controllers, if it has refused another one.
fn reserved_ids(joined: &Result<Option<Terms>, JoinFailure>) -> Option<Controllers> {
    match joined {
        Err(JoinFailure::Refused {
            reason: RefuseReason::NotController | RefuseReason::OutOfRange,
            terms,
            ..
        }) => terms.controllers,
        _ => None,
    }
}

//= spec/ordering.md#R67
/// Adopts the terms of the fabric at `switch`.
fn adopt(
    machine: &mut onepipe_controller::Config,
    given: &Given,
    switch: SocketAddr,
    terms: &Terms,
) -> Result<(), StartError> {
    given.check(terms).map_err(|mismatch| JoinFailure::mismatch(switch, mismatch))?;
    machine.processes_max = terms.processes_max;
    // A controller is admitted only where there are controllers.
    machine.controllers = terms.controllers.unwrap_or(machine.controllers);
    machine.frame_len_max = machine.frame_len_max.min(terms.frame_len_max as usize);
    machine.adopt_link_timeout(terms.link_timeout_ns);
    Ok(())
}

/// A transport that may have to be admitted.
trait Fabric: Transport {
    /// Why this controller is not admitted at present.
    fn refusal(&self) -> Option<Refusal>;
    /// Why this controller can reach no other process any more.
    fn loss(&self) -> Option<SegmentLost> {
        None
    }
}

impl Fabric for UdpLink {
    fn refusal(&self) -> Option<Refusal> {
        Self::refusal(self)
    }
}

impl Fabric for Shm {
    fn refusal(&self) -> Option<Refusal> {
        None
    }

    fn loss(&self) -> Option<SegmentLost> {
        Self::loss(self)
    }
}

/// The event loop of a controller on its transport.
#[derive(Debug)]
struct ControllerLoop<T: Fabric> {
    driver: Driver<Node, T, SystemClock>,
    /// The same clock, for reports.
    clock: SystemClock,
    store_handle: StoreHandle,
    /// Whether there are other replicas.
    has_others: bool,
    status: Option<(Server, StatusRequests<Report>)>,
    attached_to: Attachment,
    incarnation: Incarnation,
    began: Instant,
}

impl<T: Fabric> ControllerLoop<T> {
    fn open<S>(
        config: &Config,
        machine: onepipe_controller::Config,
        transport: T,
        clock: SystemClock,
        store: S,
        status_listener: Option<(std::net::TcpListener, SocketAddr)>,
    ) -> Result<Self, StartError>
    where
        S: Store<Error: Error> + Send + 'static,
    {
        let (replica, incarnation) = (machine.process, machine.incarnation);
        let has_others = machine.controllers.count > 1;
        let ports = match machine.links {
            Links::Uplink => 1,
            Links::Mesh(ports) => ports,
        };
        let link_timeout_ns = machine.link_timeout_ns;
        let node = Node::new(Controller::new(machine)?, ports);
        let driver_config = DriverConfig { idle: config.idle, ..DriverConfig::default() }
            .warning_before(link_timeout_ns);
        let driver = Driver::new(node, transport, clock.clone(), driver_config);
        let status = match status_listener {
            None => None,
            Some((listener, listen)) => {
                let status = Server::start(listener, driver.doorbell());
                Some(status.map_err(|source| StartError::Listen { listen, source })?)
            }
        };
        let timers = ElectionTimers {
            campaign_interval: config.campaign_interval,
            renew_interval: config.renew_interval,
            resign_pause: config.resign_pause,
        };
        let store_handle = StoreHandle::open(store, replica, timers, driver.doorbell());
        Ok(Self {
            driver,
            clock,
            store_handle: store_handle.map_err(StartError::Thread)?,
            has_others,
            status,
            attached_to: config.attachment.clone(),
            incarnation,
            began: Instant::now(),
        })
    }

    //= spec/ordering.md#R68
    //= spec/failure.md#R61
    fn run(
        mut self,
        stop: &AtomicBool,
        mut on_event: impl FnMut(&ControllerEvent),
    ) -> Result<(), RunError> {
        let mut outdated = None;
        while !stop.load(Ordering::Acquire) {
            while let Some(event) = self.store_handle.poll_event()? {
                match event {
                    StoreEvent::Failed(reason) => on_event(&ControllerEvent::StoreFailed(reason)),
                    StoreEvent::Recovered => on_event(&ControllerEvent::StoreRecovered),
                    StoreEvent::Confirmed(Epoch(epoch)) => {
                        if let Some(known) = outdated.take() {
                            return Err(RunError::StoreOutdated { epoch, known });
                        }
                    }
                    event => self.driver.machine_mut().receive(event),
                }
            }
            let (mut is_isolated, resigns) = (false, self.has_others);
            let store_handle = &self.store_handle;
            let progress = self.driver.turn(|_, event| {
                // The store knows whether another replica has taken over meanwhile.
                if let Event::StoreOutdated { epoch, known } = event {
                    outdated = Some(known);
                    store_handle.confirm(epoch);
                }
                if event == Event::Isolated {
                    is_isolated = true;
                    return on_event(&ControllerEvent::Isolated { resigns });
                }
                on_event(&ControllerEvent::Machine(event));
            });
            // A single replica does not resign: no other one could take over.
            if let Some(epoch) = self.driver.machine().epoch()
                && is_isolated
                && resigns
            {
                self.store_handle.resign(epoch);
            }
            while let Some((epoch, id, record)) = self.driver.machine_mut().poll_persist() {
                self.store_handle.append(epoch, id, record);
            }
            if let Some((epoch, records)) = self.driver.machine_mut().poll_replace() {
                self.store_handle.replace(epoch, records);
            }
            if let Some((_, requests)) = &self.status {
                requests.respond(|| self.report());
            }
            if let Some(refusal) = self.driver.transport().refusal()
                && refusal.is_final()
                && let Attachment::Switch(address) = self.attached_to
            {
                return Err(refusal.at(address).into());
            }
            if let Some(lost) = self.driver.transport().loss() {
                return Err(lost.into());
            }
            self.driver.rest(progress);
        }
        Ok(())
    }

    fn report(&self) -> Report {
        let now = self.clock.clone().read();
        let node = self.driver.machine();
        let state = self.store_handle.state();
        let mut report = Report::new(&node.machine().status());
        report.incarnation = self.incarnation.0;
        report.attachment = self.attached_to.to_string();
        report.uptime_s = self.began.elapsed().as_secs_f64();
        report.barriers = node.barriers(now.mono);
        report.store.is_available = state.is_available();
        report.store.since_s = state.since.elapsed().as_secs_f64();
        report.store.failures = state.failures;
        report.store.error = state.error;
        let duty = self.driver.duty();
        report.counters.insert("pauses".to_owned(), duty.pause_count);
        report.counters.insert(PAUSE_MAX.to_owned(), duty.pause_max_ns);
        report
    }
}
