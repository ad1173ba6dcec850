//! The steps of an operation: the walk along a list, and its change.

use alloc::vec;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_memory::{Completed, Executed, MemoryError, Operation};

use super::TableClient;
use super::open::{self, Command, Step};
use crate::layout::{Bucket, HEAD, Node};
use crate::outcome::{OperationId, Outcome, TableError};
use crate::requests::Requests;

impl<R: Requests> TableClient<R> {
    /// Begins a walk at some replica.
    pub(super) fn read_bucket(&mut self, operation: OperationId) {
        self.walks = self.walks.wrapping_add(1);
        let Some(open) = self.open.get_mut(&operation) else { return };
        let replicas = &self.replicas[usize::from(open.at.shard)].running;
        if replicas.is_empty() {
            let error = TableError::Unavailable(open.at.shard);
            return self.finish(operation, Err(error));
        }
        let replica = replicas[self.walks % replicas.len()];
        (open.step, open.replica) = (Step::Bucket, Some(replica));
        let (batch, is_early) = ([self.layout.read_bucket(open.at)], open.is_early);
        self.submit_read(operation, (replica, is_early), &batch);
    }

    pub(super) fn on_answers(&mut self, operation: OperationId, completed: Completed) {
        let Some(open) = self.open.get(&operation) else { return };
        let (shard, step) = (open.at.shard, open.step.clone());
        let is_change = step.is_change();
        // A change that is repeated because one replica did not execute it would never end.
        let differs = is_change && open::differs(&completed);
        match self.agreed(completed) {
            Ok(_) if differs => self.finish(operation, Err(self.replicas_differ(shard))),
            Ok(executed) => match step {
                Step::Bucket => self.on_bucket(operation, open::bucket(&executed)),
                Step::Node { bucket, pointer, node } => {
                    self.on_node(operation, (bucket, pointer, node), &executed);
                }
                Step::Change { added, removed } => {
                    self.on_changed(operation, (added, removed), &executed);
                }
                Step::Confirm { bucket, outcome } => {
                    self.on_confirmed(operation, (bucket, outcome), open::bucket(&executed));
                }
                Step::Late => self.finish(operation, Ok(Outcome::Inserted)),
                Step::Reserving(_) => debug_assert!(false, "no request is in flight"),
            },
            Err(MemoryError::Refused(refusal)) => self.finish(operation, Err(refusal.into())),
            Err(_) if is_change => self.finish(operation, Err(TableError::InDoubt(shard))),
            Err(MemoryError::OwnerEnded) => {
                self.stats.moved += 1;
                self.read_bucket(operation);
            }
            Err(_) => self.finish(operation, Err(TableError::Unavailable(shard))),
        }
    }

    /// Goes on with a bucket as it is now.
    fn on_bucket(&mut self, operation: OperationId, bucket: Option<Bucket>) {
        let Some(bucket) = bucket else { return self.read_bucket(operation) };
        if bucket.head == 0 {
            return self.on_absent(operation, bucket);
        }
        let Some(open) = self.open.get(&operation) else { return };
        self.read_node(operation, (bucket, open.at.bucket + HEAD, bucket.head));
    }

    /// Reads a node and, at the same time, the bucket.
    fn read_node(&mut self, operation: OperationId, walk: (Bucket, u64, u64)) {
        let (bucket, pointer, node) = walk;
        let Some(open) = self.open.get_mut(&operation) else { return };
        let replicas = &self.replicas[usize::from(open.at.shard)].running;
        let Some(replica) = open.replica.filter(|replica| replicas.contains(replica)) else {
            return self.read_bucket(operation);
        };
        open.step = Step::Node { bucket, pointer, node };
        let layout = &self.layout;
        let batch = [layout.read_bucket(open.at), layout.read_node(open.at.shard, node)];
        // The replica has executed the read or the change of the bucket at some timestamp of the
        // total order: what it finds later is no older, and needs no timestamp of its own.
        self.submit_read(operation, (replica, true), &batch);
    }

    fn on_node(
        &mut self,
        operation: OperationId,
        (bucket, pointer, node): (Bucket, u64, u64),
        executed: &Executed,
    ) {
        let Some((found, content)) = open::bucket(executed).zip(open::node(executed)) else {
            return self.read_bucket(operation);
        };
        // An equal version says that the list has not changed since the walk began: all that was
        // read is the list at this timestamp, and no node of it was reused.
        if found.version != bucket.version && !makes(Mistake::VersionIgnored) {
            self.stats.restarted += 1;
            return self.on_bucket(operation, Some(found));
        }
        let Some(open) = self.open.get(&operation) else { return };
        if content.key == open.key {
            self.on_present(operation, (bucket, pointer, node), content);
        } else if content.next == 0 || makes(Mistake::MissAtFirstNode) {
            self.on_absent(operation, bucket);
        } else {
            self.read_node(operation, (bucket, node, content.next));
        }
    }

    /// Ends an operation that changes nothing. A walk that has read early is verified first.
    fn end_walk(&mut self, operation: OperationId, bucket: Bucket, outcome: Outcome) {
        let Some(open) = self.open.get_mut(&operation) else { return };
        if !open.is_early {
            return self.finish(operation, Ok(outcome));
        }
        let replicas = &self.replicas[usize::from(open.at.shard)].running;
        let Some(replica) = open.replica.filter(|replica| replicas.contains(replica)) else {
            return self.read_bucket(operation);
        };
        open.step = Step::Confirm { bucket, outcome };
        let batch = [self.layout.read_bucket(open.at)];
        self.submit_read(operation, (replica, false), &batch);
    }

    fn on_confirmed(
        &mut self,
        operation: OperationId,
        (bucket, outcome): (Bucket, Outcome),
        found: Option<Bucket>,
    ) {
        let Some(open) = self.open.get_mut(&operation) else { return };
        if found.is_some_and(|found| found.version == bucket.version) {
            return self.finish(operation, Ok(outcome));
        }
        // The next walk needs no verification.
        open.is_early = false;
        self.stats.restarted += 1;
        self.on_bucket(operation, found);
    }

    pub(super) fn on_absent(&mut self, operation: OperationId, bucket: Bucket) {
        let Some(open) = self.open.get_mut(&operation) else { return };
        let Command::Insert(value) = &open.command else {
            return self.end_walk(operation, bucket, Outcome::Missing);
        };
        let shard = open.at.shard;
        let Some(node) = self.pools[usize::from(shard)].take() else {
            open.step = Step::Reserving(bucket);
            return self.reserve(shard);
        };
        let content = Node { next: bucket.head, key: open.key, value: value.clone() }.to_bytes();
        let region = self.layout.region(shard);
        let pointer = (open.at.bucket + HEAD, node);
        if makes(Mistake::PointerBeforeNode) {
            return self.change(operation, bucket, (Some(node), None), (None, Some(pointer)));
        }
        let write = Operation::Write { region, offset: node, bytes: &content };
        self.change(operation, bucket, (Some(node), None), (Some(write), Some(pointer)));
    }

    fn on_present(
        &mut self,
        operation: OperationId,
        (bucket, pointer, node): (Bucket, u64, u64),
        content: Node,
    ) {
        let Some(open) = self.open.get(&operation) else { return };
        let (shard, region) = (open.at.shard, self.layout.region(open.at.shard));
        match &open.command {
            Command::LookUp => {
                self.end_walk(operation, bucket, Outcome::Found(content.value));
            }
            Command::Insert(_) => self.end_walk(operation, bucket, Outcome::Exists),
            Command::Update(value) => {
                let (value, offset) = (value.clone(), self.layout.value_of(node));
                let write = Operation::Write { region, offset, bytes: &value };
                self.change(operation, bucket, (None, None), (Some(write), None));
            }
            Command::Delete => {
                let mut removed = Some(node);
                if makes(Mistake::ReusedBeforeRemoved) {
                    self.pools[usize::from(shard)].put(node);
                    removed = None;
                }
                let unlink = Some((pointer, content.next));
                self.change(operation, bucket, (None, removed), (None, unlink));
            }
        }
    }

    /// Sends a change to all replicas: it is executed if the bucket has not changed.
    fn change(
        &mut self,
        operation: OperationId,
        bucket: Bucket,
        (added, removed): (Option<u64>, Option<u64>),
        (write, pointer): (Option<Operation<'_>>, Option<(u64, u64)>),
    ) {
        let Some(open) = self.open.get_mut(&operation) else { return };
        open.step = Step::Change { added, removed };
        let (at, region) = (open.at, self.layout.region(open.at.shard));
        let (expected, new) = (bucket.version, bucket.version + 1);
        // The bucket is read first: if the comparison fails, the walk begins again from there.
        let mut batch = vec![
            self.layout.read_bucket(at),
            Operation::CompareAndSwap { region, offset: at.bucket, expected, new },
        ];
        batch.extend(write);
        let target = pointer.map(|(offset, target)| (offset, target.to_le_bytes()));
        if let Some((offset, bytes)) = &target {
            batch.push(Operation::Write { region, offset: *offset, bytes });
        }
        let replicas = self.replicas(at.shard).running.clone();
        if replicas.is_empty() {
            return self.finish(operation, Err(TableError::Unavailable(at.shard)));
        }
        self.submit(operation, &replicas, &batch);
    }

    fn on_changed(
        &mut self,
        operation: OperationId,
        (added, removed): (Option<u64>, Option<u64>),
        executed: &Executed,
    ) {
        let Some(open) = self.open.get_mut(&operation) else { return };
        let shard = open.at.shard;
        let pool = &mut self.pools[usize::from(shard)];
        if !open::is_swapped(executed) {
            // The skipped operations have not used the node.
            added.into_iter().for_each(|node| pool.put(node));
            self.stats.conflicts += 1;
            let bucket = open::bucket(executed);
            return self.on_bucket(operation, bucket);
        }
        // All replicas have removed the node from its list. A walk that has read its offset before
        // finds another version of the bucket when it reads the node.
        removed.into_iter().for_each(|node| pool.put(node));
        if let Some(node) = added.filter(|_| makes(Mistake::PointerBeforeNode)) {
            return self.write_late(operation, node, open::bucket(executed));
        }
        let outcome = match &open.command {
            Command::Insert(_) => Outcome::Inserted,
            Command::Update(_) => Outcome::Updated,
            Command::Delete => Outcome::Deleted,
            Command::LookUp => unreachable!("a look-up changes nothing"),
        };
        self.finish(operation, Ok(outcome));
    }

    /// The second half of the mistake that links a node before it writes it.
    fn write_late(&mut self, operation: OperationId, node: u64, bucket: Option<Bucket>) {
        let Some(open) = self.open.get_mut(&operation) else { return };
        let Command::Insert(value) = &open.command else { return };
        let next = bucket.map_or(0, |bucket| bucket.head);
        let content = Node { next, key: open.key, value: value.clone() }.to_bytes();
        open.step = Step::Late;
        let (shard, region) = (open.at.shard, self.layout.region(open.at.shard));
        let replicas = self.replicas(shard).running.clone();
        let write = Operation::Write { region, offset: node, bytes: &content };
        self.submit(operation, &replicas, &[write]);
    }
}
