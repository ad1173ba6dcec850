//! A switch or a process, as plain as can be.

use std::collections::BTreeSet;

use onepipe_base::{Address, Backoff, Incarnation, Instance, Mono, Port, Timestamp};
use onepipe_wire::{Link, LinkState, Side};

use super::{Known, LINK_TIMEOUT_NS, Passing};

/// What is at the other end of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    Node(usize, usize),
    Controller(usize),
}

#[derive(Clone, Debug)]
pub struct Line {
    pub side: Side,
    pub peer: Peer,
    /// Who is heard there.
    pub instance: Option<Instance>,
    /// The latest life ever heard there.
    pub latest: Option<Instance>,
    pub is_two_way: bool,
    pub heard_at: u64,
    /// Promised since the last death.
    pub commit: Option<u64>,
    pub told: Option<u64>,
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
    pub ports: Vec<Line>,
    pub generation: u32,
    pub last_number: u32,
    pub pace: Backoff,
    pub started_at: u64,
    pub speaks_at: u64,
    pub wave: Option<Passing>,
    /// Whom a controller has told to take for dead, heard or not.
    pub dead: BTreeSet<Instance>,
    /// Of a process.
    pub promise: u64,
    pub barrier: Option<u64>,
    /// Who has ever told it a commit, and so has heard it.
    pub met: BTreeSet<Instance>,
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
            pace: Backoff::new(6_000, 300_000),
            started_at: 0,
            speaks_at: 0,
            wave: None,
            dead: BTreeSet::new(),
            promise: 0,
            barrier: None,
            met: BTreeSet::new(),
            known: Known::default(),
        }
    }

    pub fn add_port(&mut self, side: Side, peer: Peer) -> usize {
        self.ports.push(Line {
            side,
            peer,
            instance: None,
            latest: None,
            is_two_way: false,
            heard_at: 0,
            commit: None,
            told: None,
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

    /// A new life begins, with nothing remembered.
    pub fn restart(&mut self, now: u64) {
        let mut fresh = Self::new(self.address);
        for line in &self.ports {
            fresh.add_port(line.side, line.peer);
        }
        fresh.incarnation = self.incarnation + 1;
        fresh.is_alive = true;
        (fresh.started_at, fresh.promise) = (now, now);
        fresh.speaks_at = now + 2 * LINK_TIMEOUT_NS;
        fresh.pace.on_change(Mono::from_ns(now));
        *self = fresh;
    }

    pub fn on_change(&mut self, now: u64) {
        self.generation += 1;
        self.pace.on_change(Mono::from_ns(now));
    }

    pub fn freeze(&mut self, now: u64, port: usize) {
        let line = &mut self.ports[port];
        if let Some(commit) = line.commit.take() {
            self.last_number += 1;
            let instance = line.instance;
            line.frozen.push(Frozen { number: self.last_number, instance, commit });
        }
        (line.is_two_way, line.has_caught_up) = (false, false);
        if let Some(wave) = &mut self.wave
            && wave.pending.contains(&port)
        {
            // As the real switch does: who is waited for may come back, or not.
            wave.is_broken = true;
        }
        self.on_change(now);
    }

    /// Whether a controller has said that `instance` is dead.
    pub fn takes_for_dead(&self, instance: Instance) -> bool {
        let mut dead = self.dead.iter().filter(|dead| dead.address == instance.address);
        dead.any(|dead| instance.incarnation <= dead.incarnation)
    }

    /// A beacon has come in.
    pub fn hear(
        &mut self,
        now: u64,
        port: usize,
        from: Instance,
        echo: Option<Instance>,
        commit: Option<u64>,
    ) {
        let own = self.instance();
        let line = &self.ports[port];
        let is_stale = line.latest.is_some_and(|latest| {
            latest.address == from.address && from.incarnation < latest.incarnation
        });
        if is_stale || self.takes_for_dead(from) {
            return;
        }
        if line.instance.is_some() && line.instance != Some(from) {
            self.freeze(now, port);
            self.ports[port].instance = None;
        }
        let is_two_way = echo == Some(own);
        if self.ports[port].instance.is_none() {
            let line = &mut self.ports[port];
            (line.instance, line.latest, line.is_two_way, line.heard_at) =
                (Some(from), Some(from), is_two_way, now);
            self.on_change(now);
        } else if self.ports[port].is_two_way && !is_two_way {
            self.freeze(now, port);
        } else if self.ports[port].is_two_way != is_two_way {
            self.ports[port].is_two_way = true;
            self.on_change(now);
        }
        let told = self.ports.iter().filter_map(|line| line.told).max();
        let line = &mut self.ports[port];
        line.heard_at = now;
        if line.is_two_way && commit.is_some() {
            line.commit = line.commit.max(commit);
            self.met.insert(from);
            line.has_caught_up |= line.commit >= told;
        }
        if self.is_process() {
            let all: BTreeSet<usize> = (0..self.ports.len()).collect();
            self.barrier = self.barrier.max(self.least(&all));
            if !self.known.is_welcome {
                self.promise = self.promise.max(self.barrier.unwrap_or(0));
            }
        }
    }

    /// Links on which nothing was heard for too long.
    pub fn expire(&mut self, now: u64) {
        for port in 0..self.ports.len() {
            let line = &self.ports[port];
            if line.instance.is_some() && now > line.heard_at + LINK_TIMEOUT_NS {
                if !matches!(line.peer, Peer::Controller(_)) {
                    self.freeze(now, port);
                } else {
                    // It is in no minimum.
                    self.on_change(now);
                }
                self.ports[port].instance = None;
                self.ports[port].is_two_way = false;
            }
        }
    }

    /// The least that these ports promise or hold.
    fn least(&self, ports: &BTreeSet<usize>) -> Option<u64> {
        let of = |port: &usize| {
            let line = &self.ports[*port];
            let held = line.frozen.iter().map(|frozen| frozen.commit);
            // Who is heard and has not told a commit yet has promised nothing.
            let is_heard = line.instance.is_some() && !matches!(line.peer, Peer::Controller(_));
            held.chain(line.commit.or(is_heard.then_some(0))).min()
        };
        ports.iter().filter_map(of).min()
    }

    /// The least that feeds `port`.
    fn inputs(&self, port: usize) -> Option<u64> {
        let line = &self.ports[port];
        let is_input = |other: &usize| {
            let feeds = line.side == Side::Lower || self.ports[*other].side == Side::Lower;
            *other != port && feeds
        };
        let inputs: BTreeSet<usize> = (0..self.ports.len()).filter(is_input).collect();
        match self.least(&inputs) {
            None if line.side == Side::Lower => self.least(&BTreeSet::from([port])),
            least => least,
        }
    }

    /// What it tells on `port`.
    pub fn tell(&mut self, now: u64, port: usize) -> Option<u64> {
        let line = &self.ports[port];
        if !line.is_two_way {
            return None;
        }
        if self.is_process() {
            return Some(self.promise);
        }
        // A newcomer is told nothing until it has promised what others were told.
        if line.side == Side::Lower && !line.has_caught_up {
            return None;
        }
        if now < self.speaks_at {
            return None;
        }
        // Nobody is there whose messages it would have to wait for: its own clock will do.
        let is_upper = self.ports[port].side == Side::Upper;
        let least = self.inputs(port).or(is_upper.then_some(now));
        let line = &mut self.ports[port];
        line.told = line.told.max(least);
        line.told
    }

    pub fn is_up(&self, port: usize) -> bool {
        self.ports[port].instance.is_some() && self.ports[port].is_two_way
    }

    /// What it announces.
    pub fn links(&self) -> Vec<Link> {
        let mut links = Vec::new();
        for (port, line) in self.ports.iter().enumerate() {
            let (side, at) = (line.side, Port(port as u16));
            for frozen in &line.frozen {
                let (number, instance) = (frozen.number, frozen.instance);
                let commit = Timestamp::from_ns(frozen.commit);
                let state = LinkState::Frozen { number, commit };
                links.push(Link { port: at, side, instance, state });
            }
            if self.is_up(port) {
                let state = LinkState::Up;
                links.push(Link { port: at, side, instance: line.instance, state });
            }
        }
        links
    }
}
