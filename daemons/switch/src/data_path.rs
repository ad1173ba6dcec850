//! The daemon's side of the switch in the kernel: writes its maps and reads its registers.
//!
//! The daemon's machine decides which links are up. The program counts the promises of these links
//! and forwards their frames; [`DataPath::poll_promises`] passes the promises to the machine.

use std::net::{SocketAddr, SocketAddrV4};

use onepipe_base::{Instance, Now, Port, ProcessId, Promises, Timestamp, WireTimestamp};
use onepipe_dataplane_xdp::{
    Attachment, Command, Config as KernelConfig, Counters, DATAGRAM_HEADERS_LEN, Generator, Kernel,
    KernelError, Neighbour, PORTS_MAX, Register, Stamp, release_content,
};
use onepipe_topology::{NextHop, Route};
use onepipe_wire::header_unchecked;

use crate::StartError;

/// A promise further ahead than this, in ns, drops its frame, as in the machine.
const AHEAD_NS_MAX: u64 = 2 * 3_600_000_000_000;
/// How often the program gets the time, in ns.
const CLOCK_INTERVAL_NS: u64 = 10_000_000;
/// Number of routes in the program's map.
const PROCESSES_MAX: u32 = 1 << 16;
/// Number of processes whose routes are compared in each turn: few, because a turn takes
/// microseconds.
const ROUTES_A_TURN: usize = 64;
/// A shared frame that is not replicated after this time, in ns, counts as lost on its way up.
const DETOUR_NS_MAX: u64 = 50_000_000;

/// The program, its devices, and what it has been handed.
#[derive(Debug)]
pub(crate) struct DataPath {
    kernel: Kernel,
    generator: Generator,
    devices: Vec<u32>,
    /// Ends with this value.
    _attachments: Vec<Attachment>,
    /// The route of each process as the program has it.
    routes: Vec<Option<Port>>,
    /// The process whose route is compared next.
    next_route: usize,
    ports: Vec<PortState>,
    clock_set_at: Option<Now>,
    /// When the socket was last found empty.
    emptied_at: Option<Now>,
    /// A frame behind the space for its headers.
    packet: Vec<u8>,
    /// Changes that the kernel has refused, and the last reason.
    refused: u64,
    last_refusal: Option<KernelError>,
}

/// What is known of a port of the program.
#[derive(Clone, Copy, Debug, Default)]
struct PortState {
    frames: u32,
    awaited: Option<Awaited>,
}

/// Frames that the program has passed up and that are not replicated.
#[derive(Clone, Copy, Debug)]
struct Awaited {
    /// When the program's numbers were first found like this.
    since: Now,
    detoured: u16,
    returned: u16,
}

/// A shared frame that the program has passed up, with its promises.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Detoured {
    stamp: Stamp,
    promises: Promises,
}

impl DataPath {
    /// Loads and attaches the program. Returns `None` if `config.xdp` names no device.
    pub(crate) fn of(config: &crate::Config) -> Result<Option<Self>, StartError> {
        if config.xdp.is_empty() {
            return Ok(None);
        }
        let ports = usize::from(config.ports_max) + usize::from(config.up.is_some());
        limit(ports > PORTS_MAX, "has at most 64 ports with the upper one")?;
        limit(config.controllers.is_some(), "has no controllers")?;
        limit(!config.faults.is_none(), "injects no faults")?;
        limit(config.racks.is_some() || config.link_rate.is_some(), "emulates no links")?;
        let listen = version_4(config.bind);
        limit(listen.is_none_or(|at| at.port() == 0), "listens at an IPv4 address and port")?;
        let Some(listen) = listen else { return Ok(None) };
        let kernel = KernelConfig {
            listen,
            lower_ports: config.ports_max,
            has_upper: config.up.is_some(),
            ahead_ns_max: AHEAD_NS_MAX,
            cpu: 0,
        };
        let mut data_path = Self::open(&config.xdp, &kernel)?;
        data_path.set_processes_max(config.processes_max)?;
        Ok(Some(data_path))
    }

    /// Sets the limit of process ids, which a switch above may state.
    pub(crate) fn set_processes_max(&mut self, processes_max: u32) -> Result<(), StartError> {
        limit(processes_max > PROCESSES_MAX, "has process ids below 65,536")?;
        self.routes.resize(processes_max as usize, None);
        Ok(())
    }

    /// Loads the program, and attaches it to `devices`.
    fn open(devices: &[String], config: &KernelConfig) -> Result<Self, KernelError> {
        let mut kernel = Kernel::load(config)?;
        let name = format!("op{}", config.listen.port());
        let (generator, attachment) = Generator::open(&mut kernel, &name)?;
        let mut attachments = vec![attachment];
        for device in devices {
            attachments.push(kernel.attach(device)?);
        }
        Ok(Self {
            kernel,
            generator,
            devices: attachments[1..].iter().map(|attachment| attachment.ifindex).collect(),
            _attachments: attachments,
            routes: Vec::new(),
            next_route: 0,
            ports: vec![PortState::default(); PORTS_MAX],
            clock_set_at: None,
            emptied_at: None,
            packet: Vec::new(),
            refused: 0,
            last_refusal: None,
        })
    }

    /// Returns whether a node at `address`, which has sent a frame of a join, is on a device of the
    /// program. The program could not forward to others.
    pub(crate) fn can_reach(&mut self, address: SocketAddr) -> bool {
        let is_there = self.find(address, None).is_some();
        if !is_there {
            self.note(Err(KernelError::OffDevice(address)));
        }
        is_there
    }

    fn find(&self, address: SocketAddr, only: Option<Instance>) -> Option<Neighbour> {
        self.kernel.joiner(self.devices.iter().copied(), version_4(address)?, only)
    }

    /// Connects the neighbour at `address`, which can be reached, to `port`.
    pub(crate) fn connect(&mut self, port: Port, address: SocketAddr, only: Option<Instance>) {
        self.ports[port.index()] = PortState::default();
        let connected = match self.find(address, only) {
            Some(neighbour) => self.kernel.connect(port, neighbour),
            None => Err(KernelError::OffDevice(address)),
        };
        self.note(connected);
    }

    /// Whether frames to and from `port` pass through the program.
    pub(crate) fn has(&self, port: Port) -> bool {
        self.kernel.neighbour(port).is_some()
    }

    pub(crate) fn disconnect(&mut self, port: Port) {
        let disconnected = self.kernel.disconnect(port);
        self.note(disconnected);
    }

    /// Handles a change of a link, as the machine has decided.
    pub(crate) fn set_live(&mut self, port: Port, is_live: bool) {
        if is_live && self.kernel.counts(port) {
            return;
        }
        self.ports[port.index()] = PortState::default();
        let changed = match is_live {
            true => self.kernel.resume_link(port),
            false => self.kernel.stop_link(port),
        };
        self.note(changed);
    }

    /// Sends a frame of the daemon. Returns false if the port is not one of the program.
    pub(crate) fn send(&mut self, port: Port, frame: &[u8]) -> bool {
        let is_here = self.has(port);
        if is_here {
            self.generate(Command::Send(port), frame);
        }
        is_here
    }

    /// Returns what the program has written into a shared frame of `port` when it passed the frame
    /// up, and takes it out of the frame.
    pub(crate) fn take_stamp(&self, port: Port, frame: &mut [u8], now: Now) -> Option<Detoured> {
        let header = header_unchecked(frame).filter(|_| self.has(port))?;
        if !(header.is_shared() && header.is_unaddressed()) {
            return None;
        }
        Some(Detoured { stamp: Stamp::take(frame)?, promises: header.promises(now.sync) })
    }

    /// Notes that all copies of a frame from `port` were sent.
    pub(crate) fn release(&mut self, port: Port, detoured: Detoured) {
        let Promises { barrier, commit } = detoured.promises;
        let content = release_content(barrier.to_wire().bits(), commit.to_wire().bits());
        self.generate(Command::Release { port, stamp: detoured.stamp }, &content);
    }

    /// Notes that the socket was found empty.
    pub(crate) fn note_empty(&mut self, now: Now) {
        self.emptied_at = Some(now);
    }

    fn generate(&mut self, command: Command, frame: &[u8]) {
        self.packet.clear();
        self.packet.resize(DATAGRAM_HEADERS_LEN, 0);
        self.packet.extend_from_slice(frame);
        self.generator.send(command, &mut self.packet);
    }

    /// Passes on what neighbours have promised since the last call.
    pub(crate) fn poll_promises(&mut self, now: Now, mut on_promises: impl FnMut(Port, Promises)) {
        self.set_time(now);
        let registers = match self.kernel.registers() {
            Ok(registers) => registers,
            Err(error) => return self.note(Err(error)),
        };
        for (port, register) in registers {
            self.await_copies(now, port, register);
            let state = &mut self.ports[port.index()];
            if state.frames != register.frames && !register.is_unfed {
                state.frames = register.frames;
                let expand = |bits| Timestamp::from_wire(WireTimestamp::from_bits(bits), now.sync);
                let (barrier, commit) = (expand(register.barrier), expand(register.commit));
                on_promises(port, Promises { barrier, commit });
            }
        }
    }

    /// Gives up frames that the program has passed up and that have not arrived: they were lost, as
    /// on a link.
    fn await_copies(&mut self, now: Now, port: Port, register: Register) {
        let Register { detoured, returned, .. } = register;
        let awaited = self.ports[port.index()].awaited;
        self.ports[port.index()].awaited = match awaited {
            _ if detoured == returned => None,
            Some(awaited) if awaited.returned == returned => {
                // Whatever was passed up by then has had the time to arrive, and was read.
                let emptied_at =
                    self.emptied_at.map_or(0, |at| at.mono.since_ns(awaited.since.mono));
                if emptied_at <= DETOUR_NS_MAX {
                    Some(awaited)
                } else {
                    let stamp =
                        Stamp { generation: register.generation as u16, number: awaited.detoured };
                    let content = release_content(register.barrier, register.commit);
                    self.generate(Command::Release { port, stamp }, &content);
                    None
                }
            }
            _ => Some(Awaited { since: now, detoured, returned }),
        };
    }

    fn set_time(&mut self, now: Now) {
        let is_due = |last: Now| now.mono.since_ns(last.mono) >= CLOCK_INTERVAL_NS;
        if self.clock_set_at.is_none_or(is_due) {
            self.clock_set_at = Some(now);
            let set = self.kernel.set_reference(now.sync);
            self.note(set);
        }
    }

    /// Hands over routes that have changed: all of them, or those of the next few processes. A
    /// frame to a process whose route has not been handed over is lost, as on a link.
    pub(crate) fn copy_routes(&mut self, route: &Route, is_all: bool) {
        let count = if is_all { self.routes.len() } else { ROUTES_A_TURN.min(self.routes.len()) };
        for _ in 0..count {
            let index = self.next_route;
            self.next_route = (index + 1) % self.routes.len();
            let process = ProcessId(index as u32);
            let port = match route.next(process) {
                Some(NextHop::Down(ports)) => Some(ports.first()),
                _ => None,
            };
            if self.routes[index] != port {
                let set = self.kernel.set_route(process, port);
                if set.is_ok() {
                    self.routes[index] = port;
                }
                self.note(set);
            }
        }
    }

    /// Returns the counters of the program; those that cannot be read are 0.
    pub(crate) fn counters(&self) -> Vec<(&'static str, u64)> {
        let values = self.kernel.counters().unwrap_or_default().values();
        Counters::NAMES.iter().copied().zip(values).collect()
    }

    /// Returns how many changes the kernel has refused, and why the last one.
    pub(crate) fn refusals(&self) -> (u64, Option<String>) {
        (self.refused, self.last_refusal.as_ref().map(ToString::to_string))
    }

    /// Records a map update that the kernel has refused. The switch goes on without the update.
    fn note(&mut self, result: Result<(), KernelError>) {
        if let Err(error) = result {
            self.refused += 1;
            self.last_refusal = Some(error);
        }
    }
}

fn limit(is_beyond: bool, what: &'static str) -> Result<(), StartError> {
    match is_beyond {
        true => Err(StartError::XdpLimit(what)),
        false => Ok(()),
    }
}

fn version_4(address: SocketAddr) -> Option<SocketAddrV4> {
    match address {
        SocketAddr::V4(address) => Some(address),
        SocketAddr::V6(_) => None,
    }
}
