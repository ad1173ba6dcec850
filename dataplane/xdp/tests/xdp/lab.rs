//! A kernel program and a switch machine that get the same frames.

use std::net::{Ipv4Addr, SocketAddrV4};

use onepipe_base::{
    Address, Cause, Incarnation, Instance, Machine, Mono, Now, Port, ProcessId, Promises, Psn,
    SwitchId, Timestamp, Verdict,
};
use onepipe_dataplane_xdp::{Action, Config, DATAGRAM_HEADERS_LEN, Kernel, Neighbour, TestRun};
use onepipe_switch::{Eager, Switch};
use onepipe_topology::{ForwardingTable, NextHop, Route};
use onepipe_wire::{Flags, Header, Opcode, mark_congestion, seal_with_hops};

/// Limit of process ids.
pub const PROCESSES: u32 = 128;
/// Where the switch listens.
pub const LISTEN: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 9, 9, 9), 4410);
/// The device of all links: the loopback device, which every machine has.
pub const DEVICE: u32 = 1;
/// How far ahead of the clock a promise may lie, in ns.
pub const AHEAD_NS_MAX: u64 = 3_600_000_000_000;
pub const FIRST: Incarnation = Incarnation(1);

/// Loads the program; `None`, and says so, where the system does not permit that.
pub fn load(lower_ports: u16, has_upper: bool) -> Option<Kernel> {
    let config =
        Config { listen: LISTEN, lower_ports, has_upper, ahead_ns_max: AHEAD_NS_MAX, cpu: 0 };
    match Kernel::load(&config) {
        Ok(kernel) => Some(kernel),
        Err(error) if !is_root() => {
            eprintln!("SKIPPED: only root may load kernel programs ({error})");
            None
        }
        Err(error) => panic!("{error}: {:?}", std::error::Error::source(&error)),
    }
}

fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let user = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    user.and_then(|ids| ids.split_whitespace().nth(1)) == Some("0")
}

/// Returns where the neighbour at `port` is.
pub fn address(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, port as u8 + 1), 40_000 + port)
}

/// Returns the neighbour at `port`: those at odd ports, and above, are switches.
pub fn neighbour(port: u16, is_switch: bool) -> Neighbour {
    let process =
        Instance { address: Address::Process(ProcessId(port.into())), incarnation: FIRST };
    Neighbour {
        ifindex: DEVICE,
        address: address(port),
        own: Ipv4Addr::new(10, 0, 0, 200),
        mac: [2, 0, 0, 0, 1, port as u8],
        own_mac: [2, 0, 0, 0, 2, port as u8],
        instance: (!is_switch).then_some(process),
    }
}

/// Returns a packet with `frame` from `from` to the switch.
pub fn packet(from: SocketAddrV4, tos: u8, frame: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; DATAGRAM_HEADERS_LEN];
    packet[..14].copy_from_slice(&[2, 0, 0, 0, 2, 0, 2, 0, 0, 0, 1, 0, 0x08, 0]);
    packet[14..16].copy_from_slice(&[0x45, tos]);
    packet[16..18].copy_from_slice(&(frame.len() as u16 + 28).to_be_bytes());
    packet[22..24].copy_from_slice(&[64, 17]);
    packet[26..30].copy_from_slice(&from.ip().octets());
    packet[30..34].copy_from_slice(&LISTEN.ip().octets());
    packet[34..36].copy_from_slice(&from.port().to_be_bytes());
    packet[36..38].copy_from_slice(&LISTEN.port().to_be_bytes());
    packet[38..40].copy_from_slice(&(frame.len() as u16 + 8).to_be_bytes());
    packet[40..42].copy_from_slice(&[0xab, 0xcd]);
    packet.extend_from_slice(frame);
    packet
}

/// Returns a frame of ordered scattering, or a hop-only one if `opcode` is.
pub fn frame(opcode: Opcode, src: u32, dst: u32, promises: Promises, hops: u8) -> Vec<u8> {
    let header = match opcode.is_hop_only() {
        true => {
            let own = Instance { address: Address::Process(ProcessId(src)), incarnation: FIRST };
            Header::hop_only(opcode, own, None, promises)
        }
        false => Header::new(opcode, ProcessId(src), ProcessId(dst), FIRST).stamped(
            promises.barrier,
            promises,
            Psn(7),
        ),
    };
    sealed(header, b"payload", hops)
}

pub fn sealed(header: Header, payload: &[u8], hops: u8) -> Vec<u8> {
    let has_payload = !header.opcode().is_ok_and(Opcode::is_hop_only);
    let payload = if has_payload { payload } else { &[] };
    let header_len = onepipe_wire::header_len(header.opcode().expect("a known opcode") as u8);
    let mut bytes = vec![0; header_len + payload.len()];
    bytes[header_len..].copy_from_slice(payload);
    seal_with_hops(&mut bytes, header, payload.len(), hops);
    bytes
}

/// What became of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Forwarded { port: u16, frame: Vec<u8> },
    PassedUp,
    Dropped,
}

/// Both switches.
pub struct Lab {
    pub kernel: Kernel,
    pub machine: Switch,
    pub lower_ports: u16,
    pub ports: u16,
    now_ns: u64,
    origin: Timestamp,
}

impl Lab {
    /// Makes both, with all neighbours connected, at a time of the wire clock.
    pub fn new(lower_ports: u16, has_upper: bool, origin_ns: u64) -> Option<Self> {
        let ports = lower_ports + u16::from(has_upper);
        let route = Route::ForwardingTable(ForwardingTable::new(PROCESSES, has_upper));
        let config = onepipe_switch::Config {
            beacon_interval_ns: 0,
            eager_beacons: Eager::Never,
            start_wait_ns: 0,
            link_timeout_ns: 0,
            ahead_ns_max: AHEAD_NS_MAX,
            switch: SwitchId(3),
            ..onepipe_switch::Config::new(lower_ports, has_upper.into(), route)
        };
        let mut lab = Self {
            kernel: load(lower_ports, has_upper)?,
            machine: Switch::new(config).expect("a valid configuration"),
            lower_ports,
            ports,
            now_ns: 0,
            // Some turns of the wire clock later than its origin, so that nothing is below 0.
            origin: Timestamp::from_ns(9 * onepipe_base::WIRE_MODULUS + origin_ns),
        };
        lab.advance(1_000);
        lab.machine.handle_timeout(lab.now());
        for port in 0..ports {
            lab.connect(port);
        }
        Some(lab)
    }

    pub fn is_switch_at(&self, port: u16) -> bool {
        port % 2 == 1 || port >= self.lower_ports
    }

    pub fn connect(&mut self, port: u16) {
        let neighbour = neighbour(port, self.is_switch_at(port));
        self.kernel.connect(Port(port), neighbour).expect("a free port");
    }

    pub fn now(&self) -> Now {
        Now { mono: Mono::from_ns(self.now_ns), sync: self.origin.wrapping_add_ns(self.now_ns) }
    }

    pub fn advance(&mut self, ns: u64) {
        self.now_ns += ns;
        self.kernel.set_reference(self.now().sync).expect("the map is writable");
    }

    /// Passes a frame to the machine.
    pub fn run_machine(&mut self, port: u16, tos: u8, frame: &[u8]) -> Outcome {
        let mut frame = frame.to_vec();
        if tos & 3 == 3 {
            mark_congestion(&mut frame);
        }
        match self.machine.handle_frame(self.now(), Port(port), &mut frame) {
            Verdict::Forward(port) => Outcome::Forwarded { port: port.0, frame },
            Verdict::Consumed => Outcome::PassedUp,
            Verdict::Dropped => Outcome::Dropped,
            Verdict::Replicate(_) => panic!("no frame lists receivers"),
        }
    }

    /// Passes a frame to the program.
    pub fn run_kernel(&mut self, port: u16, tos: u8, frame: &[u8]) -> Outcome {
        let packet = packet(address(port), tos, frame);
        let run = self.kernel.test_run(DEVICE, &packet, 1).expect("a valid packet");
        self.outcome(&run)
    }

    /// Checks what is in front of a sent frame.
    pub fn outcome(&self, run: &TestRun) -> Outcome {
        match run.action {
            Action::Drop => return Outcome::Dropped,
            Action::Pass => return Outcome::PassedUp,
            Action::Redirect => {}
            Action::Other(action) => panic!("the program returned {action}"),
        }
        let (headers, frame) = run.frame.split_at(DATAGRAM_HEADERS_LEN);
        let port = u16::from(headers[5]);
        let expected = neighbour(port, false);
        assert_eq!(headers[..6], expected.mac);
        assert_eq!(headers[6..12], expected.own_mac);
        assert_eq!(headers[26..30], expected.own.octets());
        assert_eq!(headers[30..34], expected.address.ip().octets());
        assert_eq!(headers[34..36], LISTEN.port().to_be_bytes());
        assert_eq!(headers[36..38], expected.address.port().to_be_bytes());
        assert_eq!(headers[40..42], [0, 0], "the datagram's check is off");
        assert_eq!(ip_sum(&headers[14..34]), 0xffff, "the check of the IP header");
        Outcome::Forwarded { port, frame: frame.to_vec() }
    }

    /// Hands the routes of the machine to the program, as the daemon does.
    pub fn copy_routes(&mut self) {
        for process in (0..PROCESSES).map(ProcessId) {
            let port = match self.machine.config().route.next(process) {
                Some(NextHop::Down(ports)) => Some(ports.first()),
                _ => None,
            };
            self.kernel.set_route(process, port).expect("the map has space");
        }
    }

    /// Takes the link at `port` down in both, as after a timeout.
    pub fn lose(&mut self, port: u16) {
        self.machine.mark_link_lost(Port(port));
        self.kernel.stop_link(Port(port)).expect("the map is writable");
    }

    /// Gives `port` to another neighbour.
    pub fn replace(&mut self, port: u16) {
        self.machine.unplug(Port(port), Cause::Refused);
        self.connect(port);
        self.copy_routes();
    }
}

/// Returns the one's complement sum of an IP header.
fn ip_sum(header: &[u8]) -> u16 {
    let words =
        header.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// Returns a beacon that says that nothing feeds its link.
pub fn unfed_beacon(src: u32, promises: Promises) -> Vec<u8> {
    let own = Instance { address: Address::Process(ProcessId(src)), incarnation: FIRST };
    let header = Header::hop_only(Opcode::Beacon, own, None, promises).flagged(Flags::UNFED);
    sealed(header, &[], 0)
}
