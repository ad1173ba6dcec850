//! The software switch.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use onepipe_base::{Address, Incarnation, Instance, Port, ProcessId};
use onepipe_join::{Roster, Side};
use onepipe_switch::{Switch, SwitchEvent};
use onepipe_topology::{ForwardingTable, Route};
use onepipe_transport_clock::{Clock, SystemClock, reduce_wakeup_latency, start_incarnation};
use onepipe_transport_driver::{Config as DriverConfig, Doorbell, Driver, Duty, Progress};
use onepipe_transport_udp::{
    BatchSocket, Config as UdpConfig, Handshake, JoinFailure, JoinerConfig, Stats as UdpStats,
};
use onepipe_wire::{JoinRole, Terms};

use crate::data_path::DataPath;
use crate::egress::{Egress, QueueReport};
use crate::faults::FaultInjector;
use crate::gate::Gate;
use crate::machine::SwitchMachine;
use crate::ports::PortTable;
use crate::racks::RackLinks;
use crate::transport::{Parts, SwitchTransport};
use crate::{Config, Faults, LinkReport, LossyLink, StartError, Stats};

/// How often the clock is aligned with the system clock, in ns: clocks measured to some 5 ppm drift
/// apart by 50 ns in this time.
const FOLLOW_INTERVAL_NS: u64 = 10_000_000;
/// Retransmission interval of a flood, in ns: an acknowledgement takes a wake-up or two.
const FLOOD_INTERVAL_NS: u64 = 500_000;
/// Buffer for beacons, announcements and overtaken frames of one turn, in bytes.
const SLOT_BUFFER_BYTES: usize = 1 << 20;

/// A switch in software: one thread, one socket.
#[derive(Debug)]
pub struct SoftwareSwitch {
    driver: Driver<SwitchMachine, SwitchTransport, SystemClock>,
    local_addr: SocketAddr,
    ports: usize,
    /// Changes of links in the last turn.
    changes: Vec<SwitchEvent>,
}

impl SoftwareSwitch {
    /// Creates a switch that listens, and forwards nothing before its first turn.
    ///
    /// # Errors
    /// [`StartError`]: numbers out of range, or errors of the system.
    pub fn new(config: &Config) -> Result<Self, StartError> {
        check(config)?;
        let upper = u16::from(config.up.is_some());
        let udp = UdpConfig {
            frame_len_max: config.frame_len_max,
            bind: Some(config.bind),
            offload: config.offload,
            socket_buffer_bytes: config.socket_buffer_bytes,
            send_queue_bytes: SLOT_BUFFER_BYTES,
        };
        let ports = usize::from(config.ports_max + upper);
        let socket_error = |source| StartError::Socket { bind: config.bind, source };
        // One destination more, for answers to joiners.
        let mut socket = BatchSocket::bind(&udp, ports + 1).map_err(socket_error)?;
        let local_addr = socket.local_addr().map_err(socket_error)?;
        let mut clock = SystemClock::calibrated().following_system(FOLLOW_INTERVAL_NS);
        let up = config.up.map(|up| {
            socket.set_destination(usize::from(config.ports_max), Some(up));
            Port(config.ports_max)
        });
        // Before the switch above answers, so that the program sees where the answer comes from.
        let mut data_path = DataPath::of(config)?;
        let mut config = config.clone();
        let mut own =
            Instance { address: Address::Switch(config.switch), incarnation: Incarnation(0) };
        if config.controllers.is_some() || config.up.is_some() {
            own.incarnation = start_incarnation(config.switch.0);
        }
        let joiner = JoinerConfig::new(own, JoinRole::Switch);
        let mut up_handshake =
            config.up.map(|_| Handshake::new(JoinerConfig { wants_members: true, ..joiner }));
        if let (Some(address), Some(handshake)) = (config.up, &mut up_handshake)
            && !config.wait.is_zero()
        {
            let (destination, wait) = (usize::from(config.ports_max), config.wait);
            let above = (config.above, address);
            let terms = handshake.ask(&mut socket, destination, above, wait, || clock.read())?;
            adopt(&mut config, address, &terms)?;
            check(&config)?;
            if let Some(data_path) = &mut data_path {
                data_path.set_processes_max(config.processes_max)?;
            }
        }
        let machine = Switch::new(machine_config(&config, own.incarnation))?;
        let fault_injector =
            (!config.faults.is_none()).then(|| FaultInjector::new(config.faults.clone(), ports));
        let port_table = PortTable::new(
            config.ports_max,
            config.up,
            config.processes_max,
            config.port_timeout_ns,
        );
        let mut roster = Roster::new(own, ports as u16, config.processes_max)
            .with_controllers(config.controllers);
        up.into_iter().for_each(|up| roster.open(clock.read(), up, Side::Above));
        let hello_interval_ns = config.heartbeat_interval_ns.max(config.beacon_interval_ns);
        let transport = SwitchTransport::new(Parts {
            socket,
            ports: port_table,
            up,
            up_handshake,
            gate: Gate::new(own, terms_of(&config), hello_interval_ns),
            roster,
            one_shot: ports,
            fault_injector,
            egress: config.link_rate.map(|rate| Egress::new(rate, ports)),
            links: config.racks.clone().map(|racks| RackLinks::new(racks, config.faults.seed)),
            data_path,
        });
        let driver_config = DriverConfig { idle: config.idle, ..DriverConfig::default() }
            .warning_before(config.link_timeout_ns);
        let driver = Driver::new(SwitchMachine::new(machine), transport, clock, driver_config);
        Ok(Self { driver, local_addr, ports, changes: Vec::with_capacity(ports) })
    }

    /// Returns where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Receives and forwards what has arrived. `on_event` gets the changes of links.
    pub fn turn(&mut self, mut on_event: impl FnMut(SwitchEvent)) -> Progress {
        let changes = &mut self.changes;
        let progress = self.driver.turn(|_, event| {
            changes.push(event);
            on_event(event);
        });
        let has_changed = !self.changes.is_empty();
        for event in self.changes.drain(..) {
            self.driver.transport_mut().on_link_event(event);
        }
        let (machine, transport) = self.driver.parts_mut();
        transport.copy_routes(&machine.switch.config().route, has_changed);
        progress
    }

    /// Idles according to the idle strategy and the progress of the last turn.
    pub fn rest(&mut self, progress: Progress) {
        self.driver.rest(progress);
    }

    /// Runs until `stop` is set. Ring the doorbell after setting it.
    pub fn run(&mut self, stop: &AtomicBool, mut on_event: impl FnMut(SwitchEvent)) {
        reduce_wakeup_latency();
        while !stop.load(Ordering::Acquire) {
            let progress = self.turn(&mut on_event);
            self.rest(progress);
        }
        self.turn(&mut on_event);
    }

    /// Returns the processes that are joined to this switch or to others of its fabric, as far as
    /// known.
    pub fn members(&self) -> impl Iterator<Item = ProcessId> + '_ {
        self.driver.transport().roster().members()
    }

    /// Returns why the switch above does not admit this one any more, if that will not pass by
    /// itself.
    pub fn refusal(&self) -> Option<JoinFailure> {
        self.driver.transport().refusal()
    }

    /// Returns the doorbell that wakes it when it blocks.
    pub fn doorbell(&self) -> Doorbell {
        self.driver.doorbell()
    }

    /// Replaces the injected faults. Frames that wait to be overtaken are lost.
    ///
    /// # Errors
    /// When a field is no probability.
    pub fn set_faults(&mut self, faults: Faults) -> Result<(), StartError> {
        if let Some(field) = faults.out_of_range() {
            return Err(StartError::OutOfRange { field, value: 0 });
        }
        let ports = self.ports;
        let fault_injector = (!faults.is_none()).then(|| FaultInjector::new(faults, ports));
        *self.driver.transport_mut().fault_injector() = fault_injector;
        Ok(())
    }

    /// Makes these links between racks and paths lose frames from now on, and no others.
    ///
    /// # Errors
    /// When there are no racks ([`Config::racks`]), no such link, or a loss that is no probability;
    /// nothing has changed then.
    pub fn set_lossy_links(&mut self, lossy: &[LossyLink]) -> Result<(), StartError> {
        let links = self.driver.transport_mut().links_mut().ok_or(StartError::NoRacks)?;
        links.racks().check(lossy)?;
        links.set_lossy(lossy);
        Ok(())
    }

    /// Returns the load of each link between racks and paths: rack by rack and path by path, up
    /// before down. Empty without [`Config::racks`].
    pub fn links(&self) -> impl Iterator<Item = LinkReport> + '_ {
        self.driver.transport().links().into_iter().flat_map(RackLinks::report)
    }

    /// As [`Config::ports_max`].
    pub fn ports_max(&self) -> u16 {
        self.driver.machine().switch.config().lower_ports
    }

    /// As [`Config::processes_max`].
    pub fn processes_max(&self) -> u32 {
        self.driver.transport().processes_max()
    }

    /// Returns the counters of ports and faults.
    pub fn stats(&self) -> &Stats {
        &self.driver.transport().stats
    }

    /// Returns the lengths of the output queues, if there are any: see [`Config::link_rate`].
    pub fn queues(&self) -> Option<QueueReport> {
        self.driver.transport().queues()
    }

    /// Returns the counters of the machine.
    pub fn machine_stats(&self) -> &onepipe_switch::Stats {
        self.driver.machine().switch.stats()
    }

    /// Returns the counters of the socket.
    pub fn socket_stats(&self) -> &UdpStats {
        self.driver.transport().socket().stats()
    }

    /// Returns the number of datagrams that the kernel has dropped because the receive buffer was
    /// full.
    pub fn kernel_drops(&self) -> Option<u32> {
        self.driver.transport().socket().kernel_drops()
    }

    /// Returns the counters of the kernel's switch, each with its name; empty without one.
    pub fn kernel_counters(&self) -> Vec<(&'static str, u64)> {
        self.driver.transport().data_path().map_or_else(Vec::new, DataPath::counters)
    }

    /// Returns how many changes the kernel has refused its switch, and why the last one.
    pub fn kernel_refusals(&self) -> (u64, Option<String>) {
        self.driver.transport().data_path().map_or((0, None), DataPath::refusals)
    }

    /// Returns the counters of the turns.
    pub fn duty(&self) -> &Duty {
        self.driver.duty()
    }
}

/// Checks the numbers that only this crate knows.
fn check(config: &Config) -> Result<(), StartError> {
    let out_of_range = |field, value| Err(StartError::OutOfRange { field, value });
    if !(1..=4096).contains(&config.ports_max) {
        return out_of_range("ports_max", config.ports_max.into());
    }
    if !(1..=1 << 20).contains(&config.processes_max) {
        return out_of_range("processes_max", config.processes_max.into());
    }
    if let Some(field) = config.faults.out_of_range() {
        return out_of_range(field, 0);
    }
    if let Some((field, value)) = config.link_rate.and_then(|rate| rate.out_of_range()) {
        return out_of_range(field, value);
    }
    if let Some(racks) = &config.racks {
        racks.check(&racks.lossy)?;
    }
    if let Some(controllers) = config.controllers {
        let end = u64::from(controllers.first.0) + u64::from(controllers.count);
        if end > u64::from(config.processes_max) {
            return out_of_range("controllers", end);
        }
    }
    Ok(())
}

//= spec/ordering.md#R67
/// Adopts the terms of the fabric at `above` where nothing was given.
fn adopt(config: &mut Config, above: SocketAddr, terms: &Terms) -> Result<(), StartError> {
    let given = config.given;
    given.check(terms).map_err(|mismatch| JoinFailure::mismatch(above, mismatch))?;
    config.processes_max = terms.processes_max;
    config.controllers = terms.controllers;
    config.link_timeout_ns = given.link_timeout_ns.unwrap_or(terms.link_timeout_ns);
    Ok(())
}

/// Returns what this switch states to joiners.
fn terms_of(config: &Config) -> Terms {
    Terms {
        processes_max: config.processes_max,
        controllers: config.controllers,
        link_timeout_ns: config.link_timeout_ns,
        frame_len_max: config.frame_len_max as u32,
        key_epoch: 0,
        version: onepipe_wire::VERSION,
    }
}

fn machine_config(config: &Config, incarnation: Incarnation) -> onepipe_switch::Config {
    let upper = u16::from(config.up.is_some());
    let table = ForwardingTable::new(config.processes_max, config.up.is_some());
    let mut machine =
        onepipe_switch::Config::new(config.ports_max, upper, Route::ForwardingTable(table));
    machine.beacon_interval_ns = config.beacon_interval_ns;
    machine.heartbeat_interval_ns = config.heartbeat_interval_ns;
    machine.eager_beacons = config.eager_beacons;
    machine.link_timeout_ns = config.link_timeout_ns;
    machine.start_wait_ns = config.start_wait_ns;
    // The program counts a joiner's promise before it forwards the joiner's first message, so no
    // joiner needs to be held.
    machine.holds_joiners = config.xdp.is_empty();
    machine.switch = config.switch;
    machine.flood_interval_ns = FLOOD_INTERVAL_NS;
    machine.frame_len_max = machine.frame_len_max.min(config.frame_len_max);
    if config.controllers.is_some() {
        machine.controllers = config.controllers;
        machine.incarnation = incarnation;
    }
    machine
}
