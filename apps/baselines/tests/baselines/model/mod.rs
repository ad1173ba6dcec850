//! A model of a network: messages are delayed at random, lost and duplicated.

#![allow(dead_code, reason = "each test uses a part")]

pub mod lists;

use std::collections::BTreeMap;

use onepipe_base::{Mono, ProcessId};
use onepipe_baselines::{
    Client, ClientOptions, Finished, Keyed, OutgoingMessage, Part, Protocol, Server, is_reply,
};
use onepipe_transaction::Placement;
use rand_xoshiro::Xoshiro256StarStar;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Longest delay of a message, in ns.
const DELAY_NS_MAX: u64 = 200;
/// Limit on the steps of a run, which only a run that never ends reaches.
const STEPS_MAX: u64 = 1_000_000;
/// Least time after which a message is sent again, in ns.
const TIMEOUT_NS: u64 = 500;

pub struct Random(pub Xoshiro256StarStar);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(Xoshiro256StarStar::seed_from_u64(seed))
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0.next_u64() % limit
    }

    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// What goes wrong, in percent of the messages.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub lost: u64,
    pub duplicated: u64,
}

/// Parameters of a model.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub protocol: Protocol,
    pub shards: u16,
    pub replicas: u16,
    pub clients: u32,
    pub faults: Faults,
    pub seed: u64,
}

/// What the clients do.
pub trait Load {
    /// Returns the parts of the next transaction of a client.
    fn next(&mut self, client: u32, random: &mut Random) -> Vec<Part>;

    /// Called when a transaction has ended.
    fn done(&mut self, client: u32, finished: Finished);
}

/// Servers and clients, each client with one transaction at a time.
pub struct Model<S> {
    setup: Setup,
    random: Random,
    placement: Placement,
    now: u64,
    sequence: u64,
    in_flight: BTreeMap<(u64, u64), (ProcessId, OutgoingMessage)>,
    pub servers: Vec<Server<S>>,
    pub clients: Vec<Client>,
}

impl<S: Keyed> Model<S> {
    pub fn new(setup: Setup, state: impl Fn(u16) -> S) -> Self {
        let Setup { shards, replicas, clients, protocol, .. } = setup;
        let placement = Placement::consecutive(0, shards, replicas).expect("a valid placement");
        let first_client = u32::from(shards * replicas);
        let server = |id| {
            let shard = placement.shard_of(ProcessId(id)).expect("each has a replica");
            let server = Server::new(ProcessId(id), &placement, state(shard), TIMEOUT_NS);
            server.expect("the process has a replica")
        };
        let options = ClientOptions {
            timeout_min_ns: TIMEOUT_NS,
            backoff_ns: 2 * DELAY_NS_MAX,
            ..ClientOptions::default()
        };
        let client = |index| {
            let process = ProcessId(first_client + index);
            Client::new((process, 7), placement.clone(), protocol, options)
        };
        Self {
            servers: (0..first_client).map(server).collect(),
            clients: (0..clients).map(client).collect(),
            random: Random::new(setup.seed),
            placement,
            now: 1_000,
            sequence: 0,
            in_flight: BTreeMap::new(),
            setup,
        }
    }

    /// Runs `count` transactions, and lets all messages arrive.
    pub fn run(&mut self, count: u64, load: &mut impl Load) {
        let (mut begun, mut ended) = (0, 0);
        let mut is_busy = vec![false; self.clients.len()];
        for step in 0.. {
            assert!(
                step < STEPS_MAX,
                "{ended} of {count} transactions have ended: a lock is left?"
            );
            for ((index, client), is_busy) in (0..).zip(&mut self.clients).zip(&mut is_busy) {
                while let Some(finished) = client.poll_finished() {
                    load.done(index, finished);
                    (*is_busy, ended) = (false, ended + 1);
                }
                if begun < count && !*is_busy {
                    let parts = load.next(index, &mut self.random);
                    let submitted = client.submit(Mono::from_ns(self.now), parts);
                    submitted.expect("valid parts");
                    (*is_busy, begun) = (true, begun + 1);
                }
            }
            self.send();
            if !self.step() {
                break;
            }
        }
        assert_eq!(ended, count, "all transactions end");
    }

    fn send(&mut self) {
        let first_client = self.servers.len() as u32;
        let mut messages = Vec::new();
        for (id, server) in (0..).zip(&mut self.servers) {
            while let Some(message) = server.poll_message() {
                messages.push((ProcessId(id), message));
            }
        }
        for (id, client) in (first_client..).zip(&mut self.clients) {
            while let Some(message) = client.poll_message() {
                messages.push((ProcessId(id), message));
            }
        }
        for (from, message) in messages {
            let copies = match self.random.percent(self.setup.faults.duplicated) {
                true => 2,
                false => 1,
            };
            for _ in 0..copies {
                // Some are very late.
                let late = if self.random.percent(2) { 20 * DELAY_NS_MAX } else { DELAY_NS_MAX };
                let at = self.now + 1 + self.random.below(late);
                if !self.random.percent(self.setup.faults.lost) {
                    self.sequence += 1;
                    self.in_flight.insert((at, self.sequence), (from, message.clone()));
                }
            }
        }
    }

    /// Delivers the next message, or handles the next deadline. Returns false if there is none.
    fn step(&mut self) -> bool {
        let servers = self.servers.iter().filter_map(Server::poll_timeout);
        let clients = self.clients.iter().filter_map(Client::poll_timeout);
        let deadline = servers.chain(clients).min().map(Mono::as_ns);
        let arrival = self.in_flight.first_key_value().map(|((at, _), _)| *at);
        let Some(next) = deadline.into_iter().chain(arrival).min() else { return false };
        self.now = self.now.max(next);
        let now = Mono::from_ns(self.now);
        if arrival == Some(next) {
            let (_, (from, message)) = self.in_flight.pop_first().expect("it arrives now");
            let to = message.to.index();
            match self.servers.get_mut(to) {
                Some(server) => server.on_message(now, from, &message.payload),
                None => {
                    assert!(is_reply(&message.payload));
                    let client = to - self.servers.len();
                    self.clients[client].on_message(now, from, &message.payload);
                }
            }
        }
        self.servers.iter_mut().for_each(|server| server.handle_timeout(now));
        self.clients.iter_mut().for_each(|client| client.handle_timeout(now));
        true
    }

    /// Checks that no lock is left, and that the replicas of each shard are equal.
    pub fn check_end(&self) -> Result<(), String> {
        for (id, server) in self.servers.iter().enumerate() {
            if server.locked() > 0 {
                return Err(format!("server {id} holds {} locks at the end", server.locked()));
            }
            if server.stats().malformed > 0 {
                return Err(format!("server {id}: {:?}", server.stats()));
            }
        }
        for shard in 0..self.placement.shards() {
            let replicas = self.placement.replicas(shard).iter();
            let digests = replicas.map(|id| self.servers[id.index()].state().digest());
            let digests: Vec<u64> = digests.collect();
            if digests.windows(2).any(|pair| pair[0] != pair[1]) {
                return Err(format!("the replicas of shard {shard} differ: {digests:x?}"));
            }
        }
        Ok(())
    }
}
