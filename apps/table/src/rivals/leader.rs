//! A leader or a follower of a shard: the program that leader–follower replication runs.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use onepipe_base::{Mono, ProcessId};

use super::message::{Insertion, Message};
use crate::layout::{Bucket, HEAD, Layout, NODE_HEADER_LEN, Node};

/// An insertion that followers have not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Pending {
    client: ProcessId,
    session: u64,
    number: u64,
    writes: Vec<(u64, Vec<u8>)>,
    key: u64,
    bucket: u64,
    /// Insertions of the same key, which end when this one has: until then look-ups find nothing.
    waiters: Vec<(ProcessId, u64, u64)>,
    /// The followers that have not acknowledged it.
    awaited: Vec<ProcessId>,
    sent_at: Mono,
}

/// The program of a replica of one shard. The first replica is the leader: it executes insertions,
/// sends what they write to all followers at once, and links a node when all have acknowledged it.
/// So a look-up at the leader finds nothing that a follower lacks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Leader {
    layout: Layout,
    shard: u16,
    me: ProcessId,
    leader: ProcessId,
    followers: Vec<ProcessId>,
    /// Time after which a message counts as lost, in ns.
    timeout_ns: u64,
    /// Number of nodes that are in use.
    nodes: u64,
    /// Insertions on their way to followers, by their number.
    pending: BTreeMap<u64, Pending>,
    /// First nodes of buckets with pending insertions.
    heads: BTreeMap<u64, u64>,
    next: u64,
    /// Outcomes of insertions that clients may ask for again; `None` while they are pending.
    outcomes: BTreeMap<(ProcessId, u64), BTreeMap<u64, Option<Insertion>>>,
    /// At a follower: writes that wait for earlier ones, and the number of the last that was
    /// written.
    waiting: BTreeMap<u64, Vec<(u64, Vec<u8>)>>,
    written: u64,
    messages: VecDeque<(ProcessId, Vec<u8>)>,
}

impl Leader {
    /// Creates the program of `me`, one of the shard's replicas. `nodes` of its region are in use.
    pub fn new(
        layout: Layout,
        (shard, nodes): (u16, u64),
        me: ProcessId,
        replicas: &[ProcessId],
        timeout_ns: u64,
    ) -> Self {
        assert!(replicas.contains(&me), "the program of a replica");
        Self {
            layout,
            shard,
            me,
            leader: replicas[0],
            followers: replicas[1..].to_vec(),
            timeout_ns,
            nodes,
            pending: BTreeMap::new(),
            heads: BTreeMap::new(),
            next: 1,
            outcomes: BTreeMap::new(),
            waiting: BTreeMap::new(),
            written: 0,
            messages: VecDeque::new(),
        }
    }

    /// Returns the next message to be sent.
    pub fn poll_message(&mut self) -> Option<(ProcessId, Vec<u8>)> {
        self.messages.pop_front()
    }

    /// Handles a message. `region` has the bytes of the shard.
    pub fn on_message(&mut self, now: Mono, from: ProcessId, payload: &[u8], region: &mut [u8]) {
        match Message::parse(payload) {
            Some(Message::Insert { session, number, finished, shard, key, value }) => {
                let is_sound = self.me == self.leader
                    && shard == self.shard
                    && value.len() == self.layout.value_len as usize;
                if is_sound {
                    let outcomes = self.outcomes.entry((from, session)).or_default();
                    *outcomes = outcomes.split_off(&finished);
                    match outcomes.get(&number) {
                        Some(Some(outcome)) => {
                            let outcome = *outcome;
                            self.reply(from, session, number, outcome);
                        }
                        Some(None) => {}
                        None => self.insert(now, (from, session, number), key, value, region),
                    }
                }
            }
            Some(Message::Replicate { number, shard, writes }) if shard == self.shard => {
                let is_sound = |(offset, bytes): &(u64, Vec<u8>)| {
                    let end = offset.checked_add(bytes.len() as u64);
                    end.is_some_and(|end| end <= region.len() as u64)
                };
                if from == self.leader && writes.iter().all(is_sound) {
                    self.follow(number, writes, region);
                }
            }
            Some(Message::Replicated { number }) => self.on_replicated(from, number, region),
            _ => {}
        }
    }

    fn reply(&mut self, to: ProcessId, session: u64, number: u64, outcome: Insertion) {
        let reply = Message::Inserted { session, number, outcome };
        self.messages.push_back((to, reply.to_bytes()));
    }

    fn insert(
        &mut self,
        now: Mono,
        (client, session, number): (ProcessId, u64, u64),
        key: u64,
        value: Vec<u8>,
        region: &mut [u8],
    ) {
        let bucket = self.layout.location(key).bucket;
        let outcomes = self.outcomes.entry((client, session)).or_default();
        if let Some(pending) = self.pending.values_mut().find(|pending| pending.key == key) {
            outcomes.insert(number, None);
            return pending.waiters.push((client, session, number));
        }
        let outcome = if has(key, bucket, region) {
            Some(Insertion::Exists)
        } else if self.nodes >= self.layout.nodes.into() {
            Some(Insertion::Full)
        } else {
            None
        };
        outcomes.insert(number, outcome);
        if let Some(outcome) = outcome {
            return self.reply(client, session, number, outcome);
        }
        let node = self.layout.node(self.nodes);
        self.nodes += 1;
        let next = self.head(bucket, region);
        let content = Node { next, key, value }.to_bytes();
        let head = bucket + HEAD;
        let writes = vec![(node, content), (head, node.to_le_bytes().to_vec())];
        self.heads.insert(bucket, node);
        // The node can be written at once: nothing points to it.
        write(region, &writes[..1]);
        let (sent_at, awaited) = (now, self.followers.clone());
        let pending = Pending {
            client,
            session,
            number,
            writes,
            key,
            bucket,
            waiters: Vec::new(),
            awaited,
            sent_at,
        };
        let index = self.next;
        self.next += 1;
        self.send(index, &pending);
        self.pending.insert(index, pending);
        self.finish(region);
    }

    /// Returns the first node of a bucket, with the insertions that are pending.
    fn head(&self, bucket: u64, region: &[u8]) -> u64 {
        let written = region.get(bucket as usize..).and_then(Bucket::parse);
        let written = written.map_or(0, |bucket| bucket.head);
        self.heads.get(&bucket).copied().unwrap_or(written)
    }

    fn send(&mut self, number: u64, pending: &Pending) {
        let (shard, writes) = (self.shard, pending.writes.clone());
        let payload = Message::Replicate { number, shard, writes }.to_bytes();
        self.messages.extend(pending.awaited.iter().map(|to| (*to, payload.clone())));
    }

    /// Links the nodes that all followers have, in order.
    fn finish(&mut self, region: &mut [u8]) {
        while let Some(first) = self.pending.first_entry()
            && first.get().awaited.is_empty()
        {
            let Pending { client, session, number, writes, bucket, waiters, .. } = first.remove();
            write(region, &writes);
            if !self.pending.values().any(|other| other.bucket == bucket) {
                self.heads.remove(&bucket);
            }
            self.end((client, session, number), Insertion::Done);
            waiters.into_iter().for_each(|waiter| self.end(waiter, Insertion::Exists));
        }
    }

    /// Ends an insertion that was pending.
    fn end(&mut self, (client, session, number): (ProcessId, u64, u64), outcome: Insertion) {
        if let Some(outcomes) = self.outcomes.get_mut(&(client, session)) {
            outcomes.insert(number, Some(outcome));
        }
        self.reply(client, session, number, outcome);
    }

    fn on_replicated(&mut self, from: ProcessId, number: u64, region: &mut [u8]) {
        for (_, pending) in self.pending.range_mut(..=number) {
            pending.awaited.retain(|follower| *follower != from);
        }
        self.finish(region);
    }

    fn follow(&mut self, number: u64, writes: Vec<(u64, Vec<u8>)>, region: &mut [u8]) {
        if number > self.written {
            self.waiting.insert(number, writes);
        }
        while let Some(writes) = self.waiting.remove(&(self.written + 1)) {
            write(region, &writes);
            self.written += 1;
        }
        let reply = Message::Replicated { number: self.written };
        self.messages.push_back((self.leader, reply.to_bytes()));
    }

    /// Sends again what followers have not acknowledged in time.
    pub fn handle_timeout(&mut self, now: Mono) {
        let is_due = |pending: &Pending| now.since_ns(pending.sent_at) >= self.timeout_ns;
        let due = self.pending.iter().filter(|(_, pending)| is_due(pending));
        let due: Vec<(u64, Pending)> = due.map(|(number, one)| (*number, one.clone())).collect();
        for (number, pending) in due {
            self.send(number, &pending);
            if let Some(pending) = self.pending.get_mut(&number) {
                pending.sent_at = now;
            }
        }
    }

    /// Returns when [`Leader::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Mono> {
        let sent_at = self.pending.values().map(|pending| pending.sent_at).min();
        sent_at.map(|sent_at| sent_at.after_ns(self.timeout_ns))
    }
}

fn write(region: &mut [u8], writes: &[(u64, Vec<u8>)]) {
    for (offset, bytes) in writes {
        let start = *offset as usize;
        if let Some(target) = region.get_mut(start..start + bytes.len()) {
            target.copy_from_slice(bytes);
        }
    }
}

/// Returns whether a key is in a bucket's list.
fn has(key: u64, bucket: u64, region: &[u8]) -> bool {
    let mut at =
        region.get(bucket as usize..).and_then(Bucket::parse).map_or(0, |found| found.head);
    while at != 0 {
        let end = (at as usize).checked_add(NODE_HEADER_LEN);
        let header = end.and_then(|end| region.get(at as usize..end));
        let Some(node) = header.and_then(Node::parse) else { return false };
        if node.key == key {
            return true;
        }
        at = node.next;
    }
    false
}
