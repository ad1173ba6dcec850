//! The loaded program and its maps.

use std::collections::HashMap as Map;
use std::net::{Ipv4Addr, SocketAddrV4};

use aya::maps::xdp::XdpMapError;
use aya::maps::{Array, CpuMap, DevMap, HashMap, MapData, MapError, PerCpuArray};
use aya::programs::{ProgramError, ProgramFd, Xdp};
use aya::{Ebpf, EbpfError, EbpfLoader};
use onepipe_base::{Instance, Port, ProcessId, Timestamp};

use crate::layout::{
    CONTROL_LEN, Control, JOINER_LEN, OUTPUT_LEN, REGISTERS_LEN, joiner, link, link_key, output,
    register,
};
use crate::{Counters, Neighbour, PORTS_MAX, Register};

/// Frames that may wait for the switch's CPU.
const CPU_QUEUE_FRAMES: u32 = 2048;

/// What a switch in the kernel is made of.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The address to which frames for the switch are sent; 0.0.0.0: all addresses of its devices.
    pub listen: SocketAddrV4,
    /// Number of lower ports; with the upper one at most [`PORTS_MAX`].
    pub lower_ports: u16,
    /// Whether the port after the lower ones leads to the switch above.
    pub has_upper: bool,
    /// A promise further ahead of the clock than this, in ns, drops its frame.
    pub ahead_ns_max: u64,
    /// The CPU on which all frames are handled.
    pub cpu: u32,
}

/// Why the kernel's switch does not work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// The kernel refuses the program or a map.
    #[error(
        "cannot load the kernel program: it needs Linux 5.15 or later, and root or CAP_BPF, \
         CAP_NET_ADMIN and CAP_PERFMON"
    )]
    Load(#[from] EbpfError),
    /// The kernel refuses one of the programs.
    #[error("cannot load or attach the kernel program: {0}")]
    Program(#[from] ProgramError),
    /// A map cannot be read or written.
    #[error("cannot access a map of the kernel program")]
    Map(#[from] MapError),
    /// The map of devices or of processors cannot be written.
    #[error("cannot write a map of devices or processors of the kernel program")]
    DeviceMap(#[from] XdpMapError),
    /// The object lacks a part, so it was not built from this source.
    #[error("the kernel program has no part `{0}`")]
    Missing(&'static str),
    /// There are more ports than registers.
    #[error("a switch in the kernel has at most {PORTS_MAX} ports, and {0} were asked for")]
    Ports(u16),
    /// There is no such network device.
    #[error("there is no network device `{0}`; `ip link` lists them")]
    Device(String),
    /// A neighbour is on none of the devices.
    #[error("the neighbour at {0} is on none of the switch's devices, and was not admitted")]
    OffDevice(std::net::SocketAddr),
    /// The driver of this device runs no XDP program.
    #[error(
        "the driver of `{0}` runs no XDP program: use a card whose driver does, or a veth device"
    )]
    NoXdp(String),
    /// This device has another program.
    #[error(
        "another XDP program is attached to `{0}`: `ip link set dev {0} xdp off` detaches it, or \
         the switch that has attached it must end"
    )]
    Attached(String),
    /// The system refuses something else.
    #[error("cannot {what}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The error of the system.
        source: std::io::Error,
    },
}

/// The program with its maps, which one daemon writes.
pub struct Kernel {
    pub(crate) ebpf: Ebpf,
    control: Control,
    control_map: Array<MapData, [u8; CONTROL_LEN]>,
    registers: Array<MapData, [u8; REGISTERS_LEN]>,
    links: HashMap<MapData, [u32; 3], [u32; 5]>,
    outputs: Array<MapData, [u8; OUTPUT_LEN]>,
    routes: HashMap<MapData, u32, u32>,
    joiners: HashMap<MapData, [u32; 3], [u8; JOINER_LEN]>,
    counters: PerCpuArray<MapData, u64>,
    devices: DevMap<MapData>,
    /// The neighbours in the maps, by port.
    neighbours: Map<u16, Neighbour>,
    /// The generation of the last neighbour; each has another one.
    last_generation: u32,
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel")
            .field("control", &self.control)
            .field("neighbours", &self.neighbours)
            .finish_non_exhaustive()
    }
}

impl Kernel {
    /// Loads the program. Nothing is attached yet.
    ///
    /// # Errors
    /// The kernel is too old, or the process may not load programs.
    pub fn load(config: &Config) -> Result<Self, KernelError> {
        let ports = config.lower_ports.saturating_add(config.has_upper.into());
        if usize::from(ports) > PORTS_MAX {
            return Err(KernelError::Ports(ports));
        }
        let mut ebpf =
            EbpfLoader::new().set_max_entries("cpus", config.cpu + 1).load(crate::OBJECT)?;
        for name in ["switch_direct", "switch_frame", "enter", "receive"] {
            program_mut(&mut ebpf, name)?.load()?;
        }
        let mut cpus = CpuMap::try_from(take(&mut ebpf, "cpus")?)?;
        let on_cpu = program_mut(&mut ebpf, "switch_frame")?.fd()?;
        cpus.set(config.cpu, CPU_QUEUE_FRAMES, Some(on_cpu), 0)?;
        let mut kernel = Self {
            control: Control {
                reference: Timestamp::from_ns(0),
                ahead_ns_max: config.ahead_ns_max,
                ports,
                lower_ports: config.lower_ports,
                listen: config.listen,
                generator: 0,
                cpu: config.cpu,
                generations: [0; PORTS_MAX],
            },
            control_map: Array::try_from(take(&mut ebpf, "control")?)?,
            registers: Array::try_from(take(&mut ebpf, "registers")?)?,
            links: HashMap::try_from(take(&mut ebpf, "links")?)?,
            outputs: Array::try_from(take(&mut ebpf, "outputs")?)?,
            routes: HashMap::try_from(take(&mut ebpf, "routes")?)?,
            joiners: HashMap::try_from(take(&mut ebpf, "joiners")?)?,
            counters: PerCpuArray::try_from(take(&mut ebpf, "counters")?)?,
            devices: DevMap::try_from(take(&mut ebpf, "devices")?)?,
            ebpf,
            neighbours: Map::new(),
            last_generation: 0,
        };
        kernel.write_control()?;
        Ok(kernel)
    }

    fn write_control(&mut self) -> Result<(), KernelError> {
        Ok(self.control_map.set(0, self.control.encode(), 0)?)
    }

    /// Sets the time against which promises are compared. Minutes of delay do no harm: promises lie
    /// within hours of it.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn set_reference(&mut self, reference: Timestamp) -> Result<(), KernelError> {
        self.control.reference = reference;
        self.write_control()
    }

    /// Sets the device whose frames are those of the daemon: see [`crate::Command`].
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn set_generator(&mut self, ifindex: u32) -> Result<(), KernelError> {
        self.control.generator = ifindex;
        self.write_control()
    }

    /// Connects a neighbour at `port`. Its link takes part in the barriers from its first promise
    /// on; what was promised at the port before is forgotten.
    ///
    /// # Errors
    /// The kernel refuses it, for example because the device is gone. The port is free then.
    pub fn connect(&mut self, port: Port, neighbour: Neighbour) -> Result<(), KernelError> {
        if port.0 >= self.control.ports {
            return Err(KernelError::Ports(port.0.saturating_add(1)));
        }
        self.disconnect(port)?;
        let generation = self.next_generation();
        let at = u32::from(port.0);
        self.devices.set(at, neighbour.ifindex, None, 0)?;
        self.outputs.set(at, output(&neighbour, generation), 0)?;
        self.neighbours.insert(port.0, neighbour);
        let started = self.start_link(port, &neighbour, generation);
        if started.is_err() {
            // The first error is the reason.
            let _ = self.disconnect(port);
        }
        started
    }

    /// Returns the generation of the next neighbour or link. None is 0 modulo 2^16: 0 stands for
    /// "nobody", and in a frame without a [`Stamp`] for none.
    fn next_generation(&mut self) -> u32 {
        self.last_generation = self.last_generation.wrapping_add(1);
        if self.last_generation as u16 == 0 {
            self.last_generation += 1;
        }
        self.last_generation
    }

    /// Counts the promises of a link, and then handles its frames.
    fn start_link(
        &mut self,
        port: Port,
        neighbour: &Neighbour,
        generation: u32,
    ) -> Result<(), KernelError> {
        let key = link_key(neighbour.ifindex, neighbour.address);
        self.set_generation(port, generation)?;
        let inserted = self.links.insert(key, link(neighbour, port, generation), 0);
        if inserted.is_err() {
            self.set_generation(port, 0)?;
        }
        Ok(inserted?)
    }

    fn set_generation(&mut self, port: Port, generation: u32) -> Result<(), KernelError> {
        let before = self.control.generations[port.index()];
        self.control.generations[port.index()] = generation;
        self.write_control().inspect_err(|_| self.control.generations[port.index()] = before)
    }

    /// Takes the link at `port` out of the barriers, and passes what its neighbour sends to the
    /// daemon. What was promised to the neighbour holds, and frames to it leave still.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn stop_link(&mut self, port: Port) -> Result<(), KernelError> {
        let Some(neighbour) = self.neighbours.get(&port.0) else { return Ok(()) };
        let key = link_key(neighbour.ifindex, neighbour.address);
        // Without the generation the link counts nowhere, even if its entry stays.
        self.set_generation(port, 0)?;
        // A neighbour that has returned at another port has the same key.
        match self.links.get(&key, 0) {
            Ok([of, ..]) if of == u32::from(port.0) => ignore_missing(self.links.remove(&key)),
            _ => Ok(()),
        }
    }

    /// Counts the link at `port` again, from its next promise on.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn resume_link(&mut self, port: Port) -> Result<(), KernelError> {
        let Some(neighbour) = self.neighbours.get(&port.0).copied() else { return Ok(()) };
        if self.control.generations[port.index()] != 0 {
            return Ok(());
        }
        let generation = self.next_generation();
        self.start_link(port, &neighbour, generation)
    }

    /// Whether the link at `port` is handled in the kernel.
    pub fn counts(&self, port: Port) -> bool {
        self.control.generations.get(port.index()).is_some_and(|generation| *generation != 0)
    }

    /// Disconnects the neighbour at `port`, if there is one.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn disconnect(&mut self, port: Port) -> Result<(), KernelError> {
        self.stop_link(port)?;
        if let Some(neighbour) = self.neighbours.remove(&port.0) {
            self.outputs.set(port.0.into(), output(&neighbour, 0), 0)?;
        }
        Ok(())
    }

    /// Returns the neighbour at `port`.
    pub fn neighbour(&self, port: Port) -> Option<&Neighbour> {
        self.neighbours.get(&port.0)
    }

    /// Sends frames to `process` out of `port`, or up if that is `None`.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn set_route(&mut self, process: ProcessId, port: Option<Port>) -> Result<(), KernelError> {
        match port {
            Some(port) => Ok(self.routes.insert(process.0, u32::from(port.0), 0)?),
            None => ignore_missing(self.routes.remove(&process.0)),
        }
    }

    /// Returns what the neighbours at `ports` have promised; nothing for links that do not count.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn registers(&self) -> Result<Vec<(Port, Register)>, KernelError> {
        let registers = self.registers.get(&0, 0)?;
        let ports = (0..self.control.ports).map(Port);
        let read = ports.map(|port| (port, register(&registers, port)));
        let counts = |(port, register): &(Port, Register)| {
            register.generation != 0
                && register.generation == self.control.generations[port.index()]
        };
        Ok(read.filter(counts).collect())
    }

    /// Returns the neighbour that has asked from `address` to be admitted, if its request arrived
    /// on one of `devices`.
    pub fn joiner(
        &self,
        devices: impl IntoIterator<Item = u32>,
        address: SocketAddrV4,
        instance: Option<Instance>,
    ) -> Option<Neighbour> {
        devices.into_iter().find_map(|ifindex| {
            let value = self.joiners.get(&link_key(ifindex, address), 0).ok()?;
            Some(joiner(ifindex, address, &value, instance))
        })
    }

    /// Returns the counters of all CPUs together.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn counters(&self) -> Result<Counters, KernelError> {
        let values = (0..Counters::NAMES.len() as u32)
            .map(|index| Ok(self.counters.get(&index, 0)?.iter().sum()));
        Ok(Counters::from_values(values.collect::<Result<Vec<u64>, KernelError>>()?))
    }

    /// Returns where frames for the switch are sent.
    pub fn listen(&self) -> (Ipv4Addr, u16) {
        (*self.control.listen.ip(), self.control.listen.port())
    }

    /// Returns the program that handles a frame where it arrives, for test runs.
    pub(crate) fn direct(&self) -> Result<&ProgramFd, KernelError> {
        let missing = KernelError::Missing("switch_direct");
        let program: &Xdp = self.ebpf.program("switch_direct").ok_or(missing)?.try_into()?;
        Ok(program.fd()?)
    }
}

pub(crate) fn program_mut<'a>(
    ebpf: &'a mut Ebpf,
    name: &'static str,
) -> Result<&'a mut Xdp, KernelError> {
    Ok(ebpf.program_mut(name).ok_or(KernelError::Missing(name))?.try_into()?)
}

fn take(ebpf: &mut Ebpf, name: &'static str) -> Result<aya::maps::Map, KernelError> {
    ebpf.take_map(name).ok_or(KernelError::Missing(name))
}

/// Removing what is not there changes nothing.
fn ignore_missing(result: Result<(), MapError>) -> Result<(), KernelError> {
    match result {
        Err(MapError::SyscallError(error))
            if error.io_error.raw_os_error() == Some(libc::ENOENT) =>
        {
            Ok(())
        }
        result => Ok(result?),
    }
}
