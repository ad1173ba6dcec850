//! A group over a network that loses, duplicates and reorders frames.

use std::collections::VecDeque;

use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Timestamp};
use onepipe_rivals::{Config, Delivery, Links, Method, Rival, SendError, To};

pub const STEP_NS: u64 = 5_000;

/// A group, its network, and the deliveries of each member.
pub struct Group {
    pub nodes: Vec<Rival>,
    /// Frames in flight: the receiver and the content.
    pub in_flight: VecDeque<(usize, Vec<u8>)>,
    pub delivered: Vec<Vec<Delivery>>,
    mono: u64,
    pub chance: u64,
}

/// Faults per 256 frames.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub lost: u8,
    pub repeated: u8,
    pub overtaken: u8,
    pub corrupt: u8,
}

impl Group {
    pub fn new(method: Method, members: u32, change: impl Fn(&mut Config)) -> Self {
        let nodes = members + u32::from(method.has_sequencer());
        let node = |process| {
            let links = if process % 2 == 0 { Links::Uplink } else { Links::Mesh };
            let mut config = Config { links, ..Config::new(method, ProcessId(process), members) };
            config.resend_ns = 20 * STEP_NS;
            config.tick_ns = 4 * STEP_NS;
            change(&mut config);
            Rival::new(config).expect("a valid configuration")
        };
        Self {
            nodes: (0..nodes).map(node).collect(),
            in_flight: VecDeque::new(),
            delivered: vec![Vec::new(); members as usize],
            mono: 1,
            chance: 7,
        }
    }

    pub fn now(&self) -> Now {
        Now { mono: Mono::from_ns(self.mono), sync: Timestamp::from_ns((1 << 50) + self.mono) }
    }

    pub fn random(&mut self) -> u64 {
        self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.chance >> 33
    }

    pub fn drain(&mut self, at: usize) {
        let now = self.now();
        let mut slot = [0; 1_472];
        while let Some(transmit) = self.nodes[at].poll_transmit(now, &mut slot) {
            let frame = slot[..transmit.bytes].to_vec();
            let to = onepipe_wire::parse_header(&frame).expect("just sealed").0.dst().index();
            if self.nodes[at].config().links == Links::Mesh {
                assert_eq!(transmit.port, Port(to as u16));
            }
            self.in_flight.push_back((to, frame));
        }
        while let Some(delivery) = self.nodes[at].poll_event() {
            self.delivered[at].push(delivery);
        }
    }

    /// Delivers all frames in flight, and advances the time.
    pub fn step(&mut self, faults: Faults) {
        for _ in 0..self.in_flight.len() {
            let Some((to, mut frame)) = self.in_flight.pop_front() else { break };
            let dice = self.random().to_le_bytes();
            if dice[0] < faults.lost {
                continue;
            }
            if dice[1] < faults.repeated {
                self.in_flight.push_back((to, frame.clone()));
            }
            if dice[2] < faults.overtaken {
                self.in_flight.push_back((to, frame));
                continue;
            }
            if dice[3] < faults.corrupt {
                let at = self.random() as usize % frame.len();
                frame[at] ^= 1 << (dice[0] % 8);
            }
            let now = self.now();
            self.nodes[to].handle_frame(now, Port(0), &mut frame);
            self.drain(to);
        }
        self.mono += STEP_NS;
        for at in 0..self.nodes.len() {
            let now = self.now();
            if self.nodes[at].poll_timeout().is_some_and(|due| due <= now.mono) {
                self.nodes[at].handle_timeout(now);
            }
            self.drain(at);
        }
    }

    pub fn send(&mut self, at: usize, to: To, payload: &[u8]) -> Result<(), SendError> {
        let now = self.now();
        let said = self.nodes[at].send(now, to, payload);
        self.drain(at);
        said
    }

    /// Steps without faults until all members have delivered the expected number of messages.
    pub fn run_to_completion(&mut self, expected: &[usize]) {
        for _ in 0..4_000 {
            if self.delivered.iter().map(Vec::len).eq(expected.iter().copied()) {
                return;
            }
            self.step(Faults::default());
        }
        let counts: Vec<usize> = self.delivered.iter().map(Vec::len).collect();
        panic!("{expected:?} messages were sent, delivered were {counts:?}");
    }
}
