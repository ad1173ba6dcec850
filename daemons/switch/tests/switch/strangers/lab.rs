//! Sockets that speak the protocol by hand to real switches.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use onepipe_base::{Address, Incarnation, Instance, ProcessId, Promises, Psn, SwitchId, Timestamp};
use onepipe_daemon_switch::{Config, SoftwareSwitch};
use onepipe_transport_clock::{Clock, SystemClock, start_incarnation};
use onepipe_wire::{
    Frame, HEADER_LEN, Header, JoinAnswer, JoinRequest, JoinRole, Opcode, Versions, seal,
};

/// Everything here takes microseconds; what takes this long never happens.
pub const TIMEOUT: Duration = Duration::from_secs(30);

pub struct Lab {
    pub switch: SoftwareSwitch,
    /// The switches below it.
    pub below: Vec<SoftwareSwitch>,
    /// The numbers of the switches that do not run at present; 0: the first one.
    pub stopped: Vec<usize>,
    pub address: SocketAddr,
    pub clock: SystemClock,
}

/// A socket that speaks the protocol by hand.
pub struct Stranger {
    pub socket: UdpSocket,
    pub instance: Instance,
    pub role: JoinRole,
    pub wants_members: bool,
}

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Starts a switch with this number below the switch at `up`.
fn start(
    bind: SocketAddr,
    (id, up): (u32, Option<SocketAddr>),
    change: impl FnOnce(&mut Config),
) -> SoftwareSwitch {
    let mut config = Config::new(bind);
    (config.processes_max, config.ports_max) = (16, 4);
    (config.switch, config.up) = (SwitchId(id), up);
    // No port is lost because the machine is busy.
    config.link_timeout_ns = 20_000_000_000;
    change(&mut config);
    SoftwareSwitch::new(&config).expect("the loopback is there")
}

impl Lab {
    pub fn new(change: impl FnOnce(&mut Config)) -> Self {
        let switch = start(any_port(), (0, None), change);
        let address = switch.local_addr();
        let clock = SystemClock::calibrated().following_system(10_000_000);
        Self { switch, below: Vec::new(), stopped: Vec::new(), address, clock }
    }

    /// Adds a switch below the first one. Returns where it listens.
    pub fn add_below(&mut self, change: impl FnOnce(&mut Config)) -> SocketAddr {
        let id = 1 + self.below.len() as u32;
        let switch = start(any_port(), (id, Some(self.address)), change);
        let address = switch.local_addr();
        self.below.push(switch);
        address
    }

    /// Restarts the switch with this number; 0: the first one.
    pub fn restart(&mut self, number: usize, change: impl FnOnce(&mut Config)) {
        let (switch, up) = match number.checked_sub(1) {
            None => (&mut self.switch, None),
            Some(index) => (&mut self.below[index], Some(self.address)),
        };
        let address = switch.local_addr();
        // Its port is free once it is dropped.
        drop(std::mem::replace(switch, start(any_port(), (99, None), |_| {})));
        *switch = start(address, (number as u32, up), change);
    }

    pub fn stranger(&self, address: Address, role: JoinRole) -> Stranger {
        Self::stranger_at(self.address, address, role)
    }

    /// A socket that is connected to the switch at `switch`.
    pub fn stranger_at(switch: SocketAddr, address: Address, role: JoinRole) -> Stranger {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("the loopback is there");
        socket.connect(switch).expect("the switch is there");
        socket.set_nonblocking(true).expect("the system allows it");
        let incarnation = start_incarnation(address.to_bits() & 0xffff);
        let instance = Instance { address, incarnation };
        Stranger { socket, instance, role, wants_members: false }
    }

    pub fn process(&self, process: u32) -> Stranger {
        self.stranger(Address::Process(ProcessId(process)), JoinRole::Process)
    }

    /// Runs the switches until they have handled everything that was sent.
    pub fn turn(&mut self) {
        for _ in 0..3 {
            self.turn_once();
        }
    }

    fn turn_once(&mut self) {
        let switches = std::iter::once(&mut self.switch).chain(&mut self.below);
        for (number, switch) in switches.enumerate() {
            if !self.stopped.contains(&number) {
                switch.turn(|_| {});
            }
        }
    }

    pub fn run_until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let started = Instant::now();
        while !holds(self) {
            assert!(started.elapsed() < TIMEOUT, "not within {TIMEOUT:?}: {what}");
            self.turn_once();
        }
    }

    /// Returns the next frame that `stranger` receives for which `wanted` holds.
    pub fn next<T>(
        &mut self,
        stranger: &Stranger,
        mut wanted: impl FnMut(&Frame<'_>) -> Option<T>,
    ) -> Option<T> {
        let (started, mut bytes) = (Instant::now(), [0; 2048]);
        while started.elapsed() < TIMEOUT {
            self.turn_once();
            if let Ok(len) = stranger.socket.recv(&mut bytes)
                && let Ok(frame) = Frame::parse(&bytes[..len])
                && let Some(found) = wanted(&frame)
            {
                return Some(found);
            }
        }
        None
    }

    pub fn answer(&mut self, stranger: &Stranger) -> JoinAnswer {
        let answer = self.next(stranger, |frame| {
            (frame.opcode == Opcode::JoinAnswer)
                .then(|| JoinAnswer::parse(frame.payload).expect("a valid answer"))
        });
        answer.expect("the switch answers")
    }

    /// Joins, and returns the last answer.
    pub fn join(&mut self, stranger: &Stranger) -> JoinAnswer {
        stranger.request(0);
        match self.answer(stranger) {
            JoinAnswer::Challenge { cookie, .. } => {
                stranger.request(cookie);
                // A request that takes the port of another is to be repeated.
                self.turn();
                stranger.request(cookie);
                self.answer(stranger)
            }
            answer => answer,
        }
    }

    pub fn joined(&mut self, stranger: &Stranger) {
        let answer = self.join(stranger);
        assert!(matches!(answer, JoinAnswer::Accepted(_)), "{answer:?}");
    }

    /// Joins as each of `strangers`, and announces each on its link.
    pub fn attach(&mut self, strangers: &[&Stranger]) {
        for stranger in strangers {
            self.joined(stranger);
            let (now, id) = (self.now(), stranger.instance.address.to_bits());
            stranger.frame(Opcode::Join, (id, stranger.instance.incarnation), id, now);
        }
        self.turn();
    }

    pub fn now(&mut self) -> Timestamp {
        self.clock.read().sync
    }
}

impl Stranger {
    pub fn send(&self, header: Header, payload: impl FnOnce(&mut [u8]) -> usize) {
        let mut bytes = [0; 512];
        let len = payload(&mut bytes[HEADER_LEN..]);
        let len = seal(&mut bytes, header, len);
        // The switch may have reported an error for an earlier datagram.
        let _ = self.socket.send(&bytes[..len]);
    }

    pub fn request(&self, cookie: u64) {
        let promises = Promises::both(Timestamp::from_ns(1));
        let header = Header::hop_only(Opcode::Join, self.instance, None, promises);
        let Self { role, wants_members, .. } = *self;
        let request = JoinRequest { role, cookie, wants_members, versions: Versions::OWN };
        self.send(header, |buf| request.write(buf).expect("there is space"));
    }

    /// A frame of `src` for `dst`, promised and stamped `at`.
    pub fn frame(&self, opcode: Opcode, src: (u32, Incarnation), dst: u32, at: Timestamp) {
        let header = Header::new(opcode, ProcessId(src.0), ProcessId(dst), src.1);
        self.send(header.stamped(at, Promises::both(at), Psn::FIRST), |_| 0);
    }

    pub fn beacon(&self, at: Timestamp) {
        let header = Header::hop_only(Opcode::Beacon, self.instance, None, Promises::both(at));
        self.send(header, |_| 0);
    }
}
