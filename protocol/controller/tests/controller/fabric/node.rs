//! A naive switch or process.

use std::collections::BTreeSet;

use onepipe_base::{Address, Backoff, Cause, Incarnation, Instance, Mono, Port, Timestamp};
use onepipe_wire::{Link, LinkState, Side};

use super::{FloodInProgress, Known, LINK_TIMEOUT_NS, Sources};

/// The other end of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    Node(usize, usize),
    Controller(usize),
}

#[derive(Clone, Debug)]
pub struct PortState {
    pub side: Side,
    pub peer: Peer,
    /// The instance seen there.
    pub instance: Option<Instance>,
    /// The latest instance ever seen there.
    pub latest: Option<Instance>,
    pub is_two_way: bool,
    pub last_seen: u64,
    /// The commit promised since the last death.
    pub commit: Option<u64>,
    /// The processes whose promises `commit` includes.
    pub sources: Sources,
    pub advertised: Option<u64>,
    pub has_caught_up: bool,
    pub frozen: Vec<Frozen>,
}

#[derive(Clone, Copy, Debug)]
pub struct Frozen {
    pub number: u32,
    pub instance: Option<Instance>,
    pub commit: u64,
}

#[derive(Clone, Debug)]
pub struct Node {
    pub address: Address,
    pub incarnation: u32,
    pub is_alive: bool,
    pub ports: Vec<PortState>,
    pub generation: u32,
    pub last_number: u32,
    pub backoff: Backoff,
    pub started_at: u64,
    pub advertises_at: u64,
    pub flood: Option<FloodInProgress>,
    /// Instances that a controller has declared dead.
    pub dead: BTreeSet<Instance>,
    /// For a process: its promise.
    pub promise: u64,
    pub barrier: Option<u64>,
    /// For a process: itself, as a source.
    pub source: Sources,
    /// For a process: the processes whose promises ever reached it, directly or in a minimum.
    /// Messages take the same paths.
    pub reached_by: Sources,
    pub known: Known,
}

impl Node {
    pub fn new(address: Address) -> Self {
        Self {
            address,
            incarnation: 0,
            is_alive: false,
            ports: Vec::new(),
            generation: 0,
            last_number: 0,
            backoff: Backoff::new(6_000, 300_000),
            started_at: 0,
            advertises_at: 0,
            flood: None,
            dead: BTreeSet::new(),
            promise: 0,
            barrier: None,
            source: 0,
            reached_by: 0,
            known: Known::default(),
        }
    }

    pub fn add_port(&mut self, side: Side, peer: Peer) -> usize {
        self.ports.push(PortState {
            side,
            peer,
            instance: None,
            latest: None,
            is_two_way: false,
            last_seen: 0,
            commit: None,
            sources: 0,
            advertised: None,
            has_caught_up: false,
            frozen: Vec::new(),
        });
        self.ports.len() - 1
    }

    pub fn instance(&self) -> Instance {
        Instance { address: self.address, incarnation: Incarnation(self.incarnation) }
    }

    pub fn is_process(&self) -> bool {
        matches!(self.address, Address::Process(_))
    }

    /// Starts the next incarnation, without any state.
    pub fn restart(&mut self, now: u64) {
        let mut fresh = Self::new(self.address);
        for port_state in &self.ports {
            fresh.add_port(port_state.side, port_state.peer);
        }
        fresh.incarnation = self.incarnation + 1;
        fresh.is_alive = true;
        (fresh.started_at, fresh.promise) = (now, now);
        fresh.advertises_at = now + 2 * LINK_TIMEOUT_NS;
        fresh.backoff.on_change(Mono::from_ns(now));
        *self = fresh;
    }

    pub fn on_change(&mut self, now: u64) {
        self.generation += 1;
        self.backoff.on_change(Mono::from_ns(now));
    }

    pub fn freeze(&mut self, now: u64, port: usize) {
        let port_state = &mut self.ports[port];
        if let Some(commit) = port_state.commit.take() {
            self.last_number += 1;
            let instance = port_state.instance;
            port_state.frozen.push(Frozen { number: self.last_number, instance, commit });
        }
        (port_state.is_two_way, port_state.has_caught_up) = (false, false);
        port_state.sources = 0;
        if let Some(flood) = &mut self.flood
            && flood.pending.contains(&port)
        {
            // As in the real switch: the link may come back or not.
            flood.is_broken = true;
        }
        self.on_change(now);
    }

    /// Whether a controller has declared `instance` dead.
    pub fn is_declared_dead(&self, instance: Instance) -> bool {
        let mut dead = self.dead.iter().filter(|dead| dead.address == instance.address);
        dead.any(|dead| instance.incarnation <= dead.incarnation)
    }

    /// Handles a beacon.
    pub fn on_beacon(
        &mut self,
        now: u64,
        port: usize,
        from: Instance,
        ack: Option<Instance>,
        commit: Option<u64>,
        sources: Sources,
    ) {
        let own = self.instance();
        let port_state = &self.ports[port];
        let is_stale = port_state.latest.is_some_and(|latest| {
            latest.address == from.address && from.incarnation < latest.incarnation
        });
        if is_stale || self.is_declared_dead(from) {
            return;
        }
        if port_state.instance.is_some() && port_state.instance != Some(from) {
            self.freeze(now, port);
            self.ports[port].instance = None;
        }
        let is_two_way = ack == Some(own);
        if self.ports[port].instance.is_none() {
            let port_state = &mut self.ports[port];
            (port_state.instance, port_state.latest, port_state.is_two_way, port_state.last_seen) =
                (Some(from), Some(from), is_two_way, now);
            self.on_change(now);
        } else if self.ports[port].is_two_way && !is_two_way {
            self.freeze(now, port);
        } else if self.ports[port].is_two_way != is_two_way {
            self.ports[port].is_two_way = true;
            self.on_change(now);
        }
        let advertised = self.ports.iter().filter_map(|port_state| port_state.advertised).max();
        let port_state = &mut self.ports[port];
        port_state.last_seen = now;
        if port_state.is_two_way && commit.is_some() {
            port_state.commit = port_state.commit.max(commit);
            self.reached_by |= sources;
            port_state.sources = sources;
            port_state.has_caught_up |= port_state.commit >= advertised;
        }
        if self.is_process() {
            let all: BTreeSet<usize> = (0..self.ports.len()).collect();
            self.barrier = self.barrier.max(self.minimum(&all));
            if !self.known.is_welcome {
                self.promise = self.promise.max(self.barrier.unwrap_or(0));
            }
        }
    }

    /// Times out idle links.
    pub fn expire(&mut self, now: u64) {
        for port in 0..self.ports.len() {
            let port_state = &self.ports[port];
            if port_state.instance.is_some() && now > port_state.last_seen + LINK_TIMEOUT_NS {
                if !matches!(port_state.peer, Peer::Controller(_)) {
                    self.freeze(now, port);
                } else {
                    // Links to controllers are in no minimum.
                    self.on_change(now);
                }
                self.ports[port].instance = None;
                self.ports[port].is_two_way = false;
            }
        }
    }

    /// Returns the minimum that these ports promise or hold.
    fn minimum(&self, ports: &BTreeSet<usize>) -> Option<u64> {
        let of = |port: &usize| {
            let port_state = &self.ports[*port];
            let held = port_state.frozen.iter().map(|frozen| frozen.commit);
            // A live peer that has not promised a commit yet counts as 0.
            let is_live =
                port_state.instance.is_some() && !matches!(port_state.peer, Peer::Controller(_));
            held.chain(port_state.commit.or(is_live.then_some(0))).min()
        };
        ports.iter().filter_map(of).min()
    }

    /// Returns the ports that feed `port`.
    fn inputs(&self, port: usize) -> BTreeSet<usize> {
        let is_lower = |port: usize| self.ports[port].side == Side::Lower;
        let is_input = |other: &usize| *other != port && (is_lower(port) || is_lower(*other));
        (0..self.ports.len()).filter(is_input).collect()
    }

    /// Returns the minimum of the inputs of `port`.
    fn input_minimum(&self, port: usize) -> Option<u64> {
        match self.minimum(&self.inputs(port)) {
            None if self.ports[port].side == Side::Lower => self.minimum(&BTreeSet::from([port])),
            minimum => minimum,
        }
    }

    /// Returns the processes whose promises are included in what it advertises on `port`.
    pub fn sources(&self, port: usize) -> Sources {
        let inputs = self.inputs(port).into_iter();
        inputs.fold(self.source, |sources, input| sources | self.ports[input].sources)
    }

    /// Returns the commit that it advertises on `port`.
    pub fn advertise(&mut self, now: u64, port: usize) -> Option<u64> {
        let port_state = &self.ports[port];
        if !port_state.is_two_way {
            return None;
        }
        if self.is_process() {
            return Some(self.promise);
        }
        // A joiner gets no commit until it has promised what others were sent.
        if port_state.side == Side::Lower && !port_state.has_caught_up {
            return None;
        }
        if now < self.advertises_at {
            return None;
        }
        // No process is there whose messages would have to be awaited: its own clock is sufficient.
        let is_upper = self.ports[port].side == Side::Upper;
        let minimum = self.input_minimum(port).or(is_upper.then_some(now));
        let port_state = &mut self.ports[port];
        port_state.advertised = port_state.advertised.max(minimum);
        port_state.advertised
    }

    pub fn is_up(&self, port: usize) -> bool {
        self.ports[port].instance.is_some() && self.ports[port].is_two_way
    }

    /// Returns the links that it announces.
    pub fn links(&self) -> Vec<Link> {
        let mut links = Vec::new();
        for (port, port_state) in self.ports.iter().enumerate() {
            let (side, at) = (port_state.side, Port(port as u16));
            for frozen in &port_state.frozen {
                let (number, instance) = (frozen.number, frozen.instance);
                let commit = Timestamp::from_ns(frozen.commit);
                let state = LinkState::Frozen { number, commit, cause: Cause::TimedOut };
                links.push(Link { port: at, side, instance, state });
            }
            if self.is_up(port) {
                let state = LinkState::Up;
                links.push(Link { port: at, side, instance: port_state.instance, state });
            }
        }
        links
    }
}
