//! What a replica has written to its disk, and what a loss of power leaves of it.

use onepipe_base::{ProcessId, Timestamp};
use onepipe_transaction::{LogSummary, OwnLog, Record, Replica, ReplicaOptions};

use super::random::Random;
use super::registers::Registers;

type Position = (Timestamp, ProcessId);

/// A state of a replica.
#[derive(Clone, Debug)]
pub struct Image {
    /// Number of the last record that it includes.
    pub number: u64,
    /// Position of that record.
    pub position: Option<Position>,
    pub bytes: Vec<u8>,
}

impl Image {
    /// Returns the image of what a replica has executed.
    pub fn of(replica: &Replica<Registers>) -> Self {
        let mut bytes = Vec::new();
        let number = replica.save(&mut bytes);
        Self { number, position: replica.executed_position(), bytes }
    }
}

/// What a replica has written to its disk.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    /// A state of its own, or one that it has taken over from another replica.
    pub image: Option<Image>,
    /// What it has executed since.
    pub records: Vec<Record>,
    /// The image and this many records are certainly on the disk. `None`: not even the image.
    pub stored: Option<usize>,
    /// An image of the replica's own that does not count yet: others may need the records before.
    pub next_image: Option<Image>,
    /// The image, and this many records, are written, and may be stored: only together.
    written: Option<usize>,
    /// What the disk holds until the image is stored.
    previous: Option<Box<Disk>>,
}

impl Disk {
    /// Returns an empty log.
    pub fn empty() -> Self {
        Self { stored: Some(0), ..Self::default() }
    }

    /// Begins another log, which replaces this one when it is stored: an image with records that
    /// follow it. Without an image, there is nothing to be stored yet.
    pub fn replace(&mut self, image: Option<Image>, records: Vec<Record>) {
        let previous = std::mem::take(self);
        self.written = image.is_some().then_some(records.len());
        (self.image, self.records) = (image, records);
        self.previous = match previous.stored {
            Some(_) => Some(Box::new(previous)),
            None => previous.previous,
        };
    }

    /// Gives up a log that would have replaced another one.
    pub fn retain_previous(&mut self) {
        if let Some(previous) = self.previous.take() {
            *self = *previous;
        }
    }

    /// Notes that all that was written is stored. Returns the number of the last record.
    pub fn store(&mut self) -> u64 {
        self.stored = Some(self.records.len());
        self.previous = None;
        self.last_number()
    }

    /// Returns the number of the last record.
    pub fn last_number(&self) -> u64 {
        self.image.as_ref().map_or(0, |image| image.number) + self.records.len() as u64
    }

    /// Returns what a loss of power leaves: a part of what is not certainly stored is lost.
    pub fn after_loss(mut self, random: &mut Random) -> Self {
        match self.stored {
            Some(stored) => {
                let unstored = (self.records.len() - stored) as u64;
                self.records.truncate(stored + random.below(unstored + 1) as usize);
                self.next_image = None;
                self.store();
                self
            }
            // The new log may be there all the same.
            None if self.written.is_some() && random.percent(30) => {
                self.stored = self.written;
                self.after_loss(random)
            }
            None => self.previous.map_or_else(Self::empty, |disk| disk.after_loss(random)),
        }
    }

    /// Returns a replica that has executed the records below a timestamp again.
    pub fn replay(&self, shard: u16, before: Option<Timestamp>) -> Replica<Registers> {
        let options = ReplicaOptions { is_durable: true };
        let mut replica = Replica::new(shard, Registers::default(), options);
        if let Some(image) = &self.image {
            assert!(replica.load(&image.bytes), "an image of this shard");
        }
        for record in &self.records {
            if before.is_none_or(|before| record.at < before) {
                replica.replay(record);
            }
        }
        replica
    }

    /// Returns the log of a replica that starts, as stated to others.
    pub fn own_log(&self, replica: &Replica<Registers>) -> OwnLog {
        let summary = LogSummary {
            shard: replica.shard(),
            is_durable: true,
            snapshot: self.image.as_ref().and_then(|image| image.position),
            last: replica.executed_position(),
            members: replica.members().clone(),
        };
        OwnLog { summary, records: self.records.clone() }
    }

    /// Whether the write at a timestamp is certainly on the disk.
    pub fn has(&self, at: Timestamp) -> bool {
        let Some(stored) = self.stored else { return false };
        let last = self.image.as_ref().and_then(|image| image.position);
        last.is_some_and(|(last, _)| at <= last)
            || self.records[..stored].iter().any(|record| record.at == at)
    }

    /// Whether all that was executed up to a timestamp is certainly on the disk.
    pub fn has_all_until(&self, at: Timestamp) -> bool {
        if let Some(previous) = &self.previous {
            return previous.has_all_until(at);
        }
        self.stored.is_some_and(|stored| self.records[stored..].iter().all(|one| one.at > at))
    }

    /// Makes the next image count if all others have stored what it holds, by `is_stored`. Returns
    /// its last timestamp.
    pub fn install(&mut self, is_stored: impl Fn(Timestamp) -> bool) -> Option<Timestamp> {
        let last = |image: &Image| image.position.map(|(at, _)| at);
        let next = self.next_image.take_if(|image| last(image).is_some_and(&is_stored))?;
        let count = self.records.partition_point(|record| record.number <= next.number);
        self.records.drain(..count);
        self.stored = self.stored.map(|stored| stored.saturating_sub(count));
        let at = last(&next);
        self.image = Some(next);
        at
    }
}
