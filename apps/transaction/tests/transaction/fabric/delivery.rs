//! What is delivered in the model, executed, and stored.

use std::collections::BTreeSet;

use onepipe_base::{Mono, ProcessId, Timestamp};
use onepipe_transaction::{ImageHeader, Record};

use super::disk::{Disk, Image};
use super::network::Message;
use super::{FIRST_CLIENT, Fabric, REPLICAS, SHARDS};

impl Fabric {
    /// Delivers to each process what its barrier has passed: best effort at once.
    pub(super) fn deliver(&mut self) {
        for process in self.running() {
            let barrier = self.barrier(process);
            let is_due = |message: &Message| {
                message.to == process && (!message.is_reliable || message.timestamp < barrier)
            };
            let due: Vec<_> = self.messages.extract_if(.., |_, message| is_due(message)).collect();
            for (_, message) in due {
                self.deliver_one(process, &message);
            }
            self.pass_barrier(process, Timestamp::from_ns(barrier));
            if self.replicas.contains_key(&process) {
                self.store(process);
                self.send_replies(process);
            }
        }
        if self.faults.is_durable {
            self.take_snapshots();
        }
        let is_reply = |message: &Message| message.to.0 >= FIRST_CLIENT;
        for (_, message) in self.messages.extract_if(.., |_, message| is_reply(message)) {
            let client = (message.to.0 - FIRST_CLIENT) as usize;
            let now = Mono::from_ns(self.clock);
            self.clients[client].on_message(now, message.from, &message.payload);
        }
    }

    fn deliver_one(&mut self, process: ProcessId, message: &Message) {
        let Message { timestamp, from, is_reliable, payload, .. } = message;
        let at = Timestamp::from_ns(*timestamp);
        if payload.is_empty() {
            return self.notify_ended(process, *from, at);
        }
        if let Some(replica) = self.replicas.get_mut(&process) {
            replica.on_message(*is_reliable, at, *from, payload);
        } else if let Some(starting) = self.starting.get_mut(&process) {
            starting.start.on_message(*is_reliable, at, *from, payload);
            self.advance_start(process);
        }
    }

    /// Notifies a process that another one has ended.
    fn notify_ended(&mut self, process: ProcessId, ended: ProcessId, at: Timestamp) {
        if let Some(replica) = self.replicas.get_mut(&process) {
            replica.on_process_ended(ended, at);
        } else if let Some(starting) = self.starting.get_mut(&process) {
            starting.start.on_process_ended(ended, at);
        }
    }

    fn pass_barrier(&mut self, process: ProcessId, barrier: Timestamp) {
        if let Some(starting) = self.starting.get_mut(&process) {
            starting.start.on_barrier(barrier);
            self.advance_start(process);
        }
        if let Some(replica) = self.replicas.get_mut(&process) {
            replica.on_barrier(barrier);
        }
    }

    /// Writes what a replica has executed to its disk, and stores it at times.
    fn store(&mut self, process: ProcessId) {
        self.write(process);
        let replica = self.replicas.get_mut(&process).expect("a replica");
        let disk = self.disks.get_mut(&process).expect("it has written");
        // An image may be stored before the replica serves.
        let has_image = self.faults.restarts > 0 && disk.image.is_some();
        if self.random.percent(self.store_percent) && (replica.is_serving() || has_image) {
            replica.on_stored(disk.store());
        }
    }

    /// Writes what a replica has executed to its disk.
    pub(super) fn write(&mut self, process: ProcessId) {
        let replica = self.replicas.get_mut(&process).expect("a replica");
        let disk = self.disks.entry(process).or_insert_with(Disk::empty);
        if let Some((number, bytes)) = replica.poll_image() {
            let position = ImageHeader::parse(&bytes).expect("an image").position;
            disk.replace(Some(Image { number, position, bytes }), Vec::new());
        }
        let new: Vec<Record> = std::iter::from_fn(|| replica.poll_record()).collect();
        let executed = new.iter().map(|record| (record.position(), record.request.clone()));
        self.executed.extend(executed);
        disk.records.extend(new);
    }

    /// Delivers all that was sent to a replica, and writes what that executes.
    pub(super) fn deliver_all(&mut self, process: ProcessId) {
        let is_due = |message: &Message| message.to == process;
        let due: Vec<_> = self.messages.extract_if(.., |_, message| is_due(message)).collect();
        for (_, message) in due {
            self.deliver_one(process, &message);
        }
    }

    fn send_replies(&mut self, process: ProcessId) {
        let replica = self.replicas.get_mut(&process).expect("a replica");
        let replies: Vec<_> = std::iter::from_fn(|| replica.poll_reply()).collect();
        for reply in replies {
            if self.random.percent(self.faults.reply_lost) || self.failed.contains(&process) {
                continue;
            }
            let timestamp = self.stamp();
            self.enqueue(timestamp, process, reply.to, false, reply.payload);
        }
    }

    /// Lets replicas take snapshots, ask each other what is stored, and install snapshots that may
    /// count.
    fn take_snapshots(&mut self) {
        let processes: Vec<ProcessId> = self.replicas.keys().copied().collect();
        for process in processes {
            let replica = self.replicas.get_mut(&process).expect("a replica");
            let disk = self.disks.get_mut(&process).expect("it has run");
            if !replica.is_serving() {
                continue;
            }
            let is_asking = self.snapshot_random.percent(10);
            if is_asking {
                replica.await_stored_images();
            }
            if disk.stored.is_none() {
                continue;
            }
            let installed = disk.install(|last| replica.stored_by_all(last));
            let next = disk.next_image.as_ref().and_then(|image| image.position);
            if let Some((last, _)) = next.filter(|_| is_asking) {
                replica.await_stored(last);
            } else if is_asking {
                let image = Image::of(replica);
                let last = disk.image.as_ref().map_or(0, |image| image.number);
                disk.next_image = Some(image).filter(|image| image.number > last);
            }
            if let Some(at) = installed {
                self.check_dropped(at, process);
            }
        }
    }

    /// Checks that each shard has a replica that is a member, and has stored what one of them drops
    /// from its log. Others take its state if they lose power before they have stored it, too.
    fn check_dropped(&mut self, at: Timestamp, by: ProcessId) {
        let members = self.replicas[&by].members();
        let has = |(process, disk): &(&ProcessId, &Disk)| {
            members.is_up(**process) && disk.has_all_until(at)
        };
        let shard = |(process, _): (&ProcessId, &Disk)| process.0 / u32::from(REPLICAS);
        let having: BTreeSet<u32> = self.disks.iter().filter(has).map(shard).collect();
        if having.len() < usize::from(SHARDS) {
            self.violations.push(format!("{by:?} drops writes up to {at:?}, which others lack"));
        }
    }

    /// Checks that a write is on the disks of all replicas of its shards that are up.
    pub(super) fn check_stored(&mut self, at: Timestamp, parts: &[(u16, Vec<u8>)]) {
        for (process, replica) in &self.replicas {
            let disk = self.disks.get(process).expect("it has run");
            let is_stored = disk.has(at) || self.returned.contains(process);
            if parts.iter().any(|(shard, _)| *shard == replica.shard()) && !is_stored {
                self.violations.push(format!("write at {at:?} is not on the disk of {process:?}"));
            }
        }
    }
}
