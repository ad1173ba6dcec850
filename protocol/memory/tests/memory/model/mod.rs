//! A model of the fabric with owners and clients, and a reference of what operations do.
//!
//! Reliable requests are delivered to each owner in the order of their timestamps, and some of them
//! are reported as lost although they were delivered. Requests that only read or are executed in
//! the order of their owner, and replies, may be lost. Each owner's commit barrier rises in steps
//! of its own.

pub mod reference;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use onepipe_base::{Mono, ProcessId, ScatteringId, Timestamp};
use onepipe_memory::{
    ClientOptions, Completed, MemoryClient, MemoryError, MemoryOwner, Operation, Order,
    OwnerOptions, Processes, Region, RegionId, Request, RequestId, Rights,
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use reference::{Owned, Reference};

const OWNERS: usize = 2;
const CLIENTS: usize = 3;
/// Steps of a run with losses.
const STEPS: usize = 400;
/// Steps in which all requests must complete without losses.
const DRAIN_STEPS: usize = 20_000;
const WORDS: u64 = 4;
const OWNER_ORDER: RegionId = RegionId(3);

fn owner_id(index: usize) -> ProcessId {
    ProcessId(index as u32)
}

fn client_id(index: usize) -> ProcessId {
    ProcessId((OWNERS + index) as u32)
}

/// Region 1 is for all; region 2 may be read by all, and changed by the first client alone. In
/// region 3 all is executed in the order of its owner.
fn regions() -> [(RegionId, Rights); 3] {
    let first = Processes::Only(BTreeSet::from([client_id(0)]));
    let partial = Rights { read: Processes::All, write: first.clone(), atomics: first };
    [(RegionId(1), Rights::all()), (RegionId(2), partial), (OWNER_ORDER, Rights::all())]
}

fn is_in_owner_order(operation: &Operation<'_>) -> bool {
    operation.region() == OWNER_ORDER
}

/// The batches of a request.
type Batches = Vec<(ProcessId, Vec<Owned>)>;

struct Message {
    at: Timestamp,
    from: ProcessId,
    payload: Vec<u8>,
}

struct Fabric {
    random: Xoshiro256PlusPlus,
    now_ns: u64,
    owners: Vec<MemoryOwner>,
    clients: Vec<MemoryClient>,
    /// Messages to each owner that are not delivered: reliable ones, and others.
    reliable: Vec<VecDeque<Message>>,
    best_effort: Vec<VecDeque<Message>>,
    replies: Vec<(ProcessId, ProcessId, Vec<u8>)>,
    failures: Vec<(usize, bool, ScatteringId)>,
    scatterings: u64,
    is_lossy: bool,
    submitted: BTreeMap<(usize, RequestId), Batches>,
    completed: Vec<(usize, Completed)>,
    reference: Vec<Reference>,
}

/// Runs a seed. Returns what is wrong.
pub fn run(seed: u64) -> Result<(), String> {
    let mut fabric = Fabric::new(seed);
    for _ in 0..STEPS {
        fabric.step(true)?;
    }
    fabric.is_lossy = false;
    for _ in 0..DRAIN_STEPS {
        if fabric.clients.iter().all(|client| client.in_flight() == 0) {
            return fabric.verify();
        }
        fabric.step(false)?;
    }
    Err("requests do not complete".into())
}

impl Fabric {
    fn new(seed: u64) -> Self {
        let owner = |_| {
            let mut owner = MemoryOwner::new(OwnerOptions::default());
            for (id, rights) in regions() {
                let region = Region::new(vec![0; 8 * WORDS as usize], rights);
                owner.register(id, region).expect("each once");
            }
            owner
        };
        let options =
            ClientOptions { timeout_ns: 1_000, timeout_min_ns: 500, ..Default::default() };
        Self {
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            now_ns: 1_000,
            owners: (0..OWNERS).map(owner).collect(),
            clients: (0..CLIENTS).map(|_| MemoryClient::new(1, options)).collect(),
            reliable: (0..OWNERS).map(|_| VecDeque::new()).collect(),
            best_effort: (0..OWNERS).map(|_| VecDeque::new()).collect(),
            replies: Vec::new(),
            failures: Vec::new(),
            scatterings: 0,
            is_lossy: true,
            submitted: BTreeMap::new(),
            completed: Vec::new(),
            reference: (0..OWNERS).map(|_| Reference::new(&regions(), WORDS)).collect(),
        }
    }

    fn happens(&mut self, percent: u32) -> bool {
        self.random.random_range(0..100) < percent
    }

    fn now(&self) -> Mono {
        Mono::from_ns(self.now_ns)
    }

    fn step(&mut self, submits: bool) -> Result<(), String> {
        self.owners.iter().for_each(MemoryOwner::check_invariants);
        self.clients.iter().for_each(MemoryClient::check_invariants);
        self.now_ns += self.random.random_range(1..50);
        let owner = self.random.random_range(0..OWNERS);
        match self.random.random_range(0..8) {
            0 if submits => self.submit(),
            1 => self.deliver_reliable(owner),
            2 => {
                if let Some(message) = self.best_effort[owner].pop_front() {
                    self.deliver_best_effort(owner, &message);
                }
            }
            3 => self.raise_barrier(owner),
            4 => self.deliver_reply(),
            5 if !self.failures.is_empty() => {
                let (client, is_reliable, id) = self.failures.swap_remove(0);
                let now = self.now();
                self.clients[client].on_send_failed(now, is_reliable, id);
            }
            _ => {
                let now = self.now();
                self.clients.iter_mut().for_each(|client| client.handle_timeout(now));
            }
        }
        self.poll();
        Ok(())
    }

    fn submit(&mut self) {
        let client = self.random.random_range(0..CLIENTS);
        let first = self.random.random_range(0..OWNERS);
        let is_owner_order = self.happens(20);
        let count = if is_owner_order { 1 } else { self.random.random_range(1..=OWNERS) };
        let mut batches = Vec::new();
        for index in 0..count {
            let only_reads = self.happens(40);
            let len = self.random.random_range(1..5);
            let region = is_owner_order.then_some(OWNER_ORDER);
            let batch =
                (0..len).map(|_| reference::draw(&mut self.random, only_reads, WORDS, region));
            batches.push((owner_id((first + index) % OWNERS), batch.collect::<Vec<Owned>>()));
        }
        let borrowed: Vec<(ProcessId, Vec<Operation<'_>>)> = batches
            .iter()
            .map(|(owner, batch)| (*owner, batch.iter().map(Owned::borrow).collect()))
            .collect();
        let slices: Vec<(ProcessId, &[Operation<'_>])> =
            borrowed.iter().map(|(owner, batch)| (*owner, batch.as_slice())).collect();
        // Reads of what others write in the total order find what some prefix of it has written.
        let is_prefix = slices.len() == 1
            && !slices[0].1.iter().any(Operation::writes)
            && self.random.random_range(0..2) == 0;
        let machine = &mut self.clients[client];
        let request = match is_owner_order || is_prefix {
            true => machine.submit_in_owner_order(slices[0].0, slices[0].1),
            false => machine.submit(&slices),
        };
        let request = request.expect("few requests are in flight");
        self.submitted.insert((client, request), batches);
    }

    /// Sends what machines have to send.
    fn poll(&mut self) {
        let now = self.now();
        for client in 0..CLIENTS {
            while let Some(scattering) = self.clients[client].poll_scattering(now) {
                self.scatterings += 1;
                let id = ScatteringId(self.scatterings);
                self.clients[client].on_submitted(&scattering, id);
                // Timestamps are unique.
                self.now_ns += 1;
                let at = Timestamp::from_ns(self.now_ns);
                let is_reliable = scattering.is_reliable;
                let is_lost = self.is_lossy && self.happens(30);
                if is_lost {
                    self.failures.push((client, is_reliable, id));
                    // Of a reliable scattering with an unknown outcome, all are delivered or none.
                    if !is_reliable || self.happens(50) {
                        continue;
                    }
                }
                for (to, payload) in scattering.messages {
                    let message = Message { at, from: client_id(client), payload };
                    match is_reliable {
                        true => self.reliable[to.index()].push_back(message),
                        false => self.best_effort[to.index()].push_back(message),
                    }
                }
            }
            while let Some(completed) = self.clients[client].poll_completed() {
                self.completed.push((client, completed));
            }
        }
        for owner in 0..OWNERS {
            while let Some(reply) = self.owners[owner].poll_reply() {
                self.replies.push((owner_id(owner), reply.to, reply.payload));
            }
        }
    }

    fn deliver_reliable(&mut self, owner: usize) {
        let Some(Message { at, from, payload }) = self.reliable[owner].pop_front() else { return };
        self.owners[owner].on_message(true, at, from, &payload);
        if let Some(Request::Execute { session, number, operations, .. }) = Request::parse(&payload)
        {
            self.reference[owner].execute(at, (from, session, number), &operations);
        }
    }

    fn deliver_best_effort(&mut self, owner: usize, Message { at, from, payload }: &Message) {
        self.owners[owner].on_message(false, *at, *from, payload);
        if let Some(Request::Execute { session, number, order, operations, .. }) =
            Request::parse(payload)
            && order == Order::Owner
            && operations.iter().any(is_in_owner_order)
        {
            self.reference[owner].execute_in_owner_order((*from, session, number), &operations);
        }
    }

    fn raise_barrier(&mut self, owner: usize) {
        let next = self.reliable[owner].front().map_or(self.now_ns, |message| message.at.as_ns());
        let low = next.saturating_sub(200);
        let barrier = self.random.random_range(low..=next);
        self.owners[owner].on_barrier(Timestamp::from_ns(barrier));
    }

    fn deliver_reply(&mut self) {
        if self.replies.is_empty() {
            return;
        }
        let index = self.random.random_range(0..self.replies.len());
        let (from, to, payload) = self.replies.swap_remove(index);
        if self.is_lossy && self.happens(30) {
            return;
        }
        let now = self.now();
        let client = to.index() - OWNERS;
        if self.happens(20) {
            self.replies.push((from, to, payload.clone()));
        }
        self.clients[client].on_message(now, from, &payload);
    }

    /// Compares the answers to clients with the reference.
    fn verify(&self) -> Result<(), String> {
        if self.completed.len() != self.submitted.len() {
            return Err("a request has completed twice or never".into());
        }
        for (client, completed) in &self.completed {
            let batches = &self.submitted[&(*client, completed.request)];
            let (from, number) = (client_id(*client), completed.request.0);
            let is_reliable = batches.len() > 1
                || batches.iter().any(|(_, batch)| batch.iter().any(Owned::writes));
            for ((owner, batch), (answered, answer)) in batches.iter().zip(&completed.answers) {
                assert_eq!(owner, answered, "answers are in the order of the batches");
                let reference = &self.reference[owner.index()];
                let result = match answer {
                    Ok(executed) => Ok(executed.outcomes.clone()),
                    Err(MemoryError::Refused(refusal)) => Err(*refusal),
                    Err(other) => return Err(format!("{other}")),
                };
                let at = answer.as_ref().ok().map(|executed| executed.at);
                if batch.iter().map(Owned::borrow).any(|operation| is_in_owner_order(&operation)) {
                    if !reference.is_result((from, 1, number), &result) {
                        return Err(format!("request {number} of {from:?}: {result:?}"));
                    }
                    continue;
                }
                let expected = match is_reliable {
                    true => reference.result((from, 1, number)).cloned(),
                    false => Some(reference.read_at(at, from, batch)),
                };
                if expected.as_ref() != Some(&result) {
                    return Err(format!(
                        "request {number} of {from:?} at {owner:?}: {result:?} instead of \
                         {expected:?}"
                    ));
                }
            }
        }
        for (index, owner) in self.owners.iter().enumerate() {
            for (id, _) in regions() {
                let bytes = owner.region(id).expect("registered").bytes();
                if !self.reference[index].is_prefix_of(id, bytes, self.reliable[index].is_empty()) {
                    return Err(format!("owner {index} has other bytes in {id:?}"));
                }
            }
        }
        Ok(())
    }
}
