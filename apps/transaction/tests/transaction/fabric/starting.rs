//! The driver of a replica that starts with its disk.

use onepipe_base::{ProcessId, Timestamp};
use onepipe_transaction::{Phase, Placement, Record, Replica, Role, Start};

use super::disk::Disk;
use super::random::Random;
use super::registers::Registers;

/// A process that starts.
pub struct Starting {
    pub start: Start,
    /// The replica as of the end of its log.
    pub replica: Replica<Registers>,
    /// The session in which the replica takes part in the start: a start-over raises it.
    session: u64,
    is_cut: bool,
    is_ready: bool,
}

impl Starting {
    pub fn new(
        (process, shard): (ProcessId, u16),
        session: u64,
        placement: &Placement,
        disk: &Disk,
        interval_ns: u64,
    ) -> Self {
        let replica = disk.replay(shard, None);
        let own = disk.own_log(&replica);
        let start = Start::new(process, session, placement, own, interval_ns);
        Self { start, replica, session, is_cut: false, is_ready: false }
    }

    /// Completes the log as its role demands.
    pub fn advance(&mut self, disk: &mut Disk, random: &mut Random) {
        if self.session != self.start.session() {
            // The founders start over: so does the log.
            disk.retain_previous();
            let replica = disk.replay(self.replica.shard(), None);
            self.start.set_own(disk.own_log(&replica));
            (self.replica, self.session) = (replica, self.start.session());
            (self.is_cut, self.is_ready) = (false, false);
        }
        let Phase::Founds(Some(role)) = self.start.phase() else { return };
        if self.is_ready {
            return;
        }
        if let Role::Complete { before } = role {
            if let Some(before) = before
                && !self.is_cut
            {
                self.cut(disk, before);
            }
            while let Some(record) = self.start.next_missing() {
                let number = self.replica.recorded() + 1;
                self.add(disk, Record { number, ..record });
            }
            if !self.start.is_log_complete() || random.percent(50) {
                return;
            }
            disk.store();
        }
        self.is_ready = true;
        self.start.set_ready();
    }

    /// Begins a log without the records from `before` on. The others remain records, as other
    /// shards may need them, too.
    fn cut(&mut self, disk: &mut Disk, before: Timestamp) {
        self.replica = disk.replay(self.replica.shard(), Some(before));
        let records = disk.records.iter().filter(|record| record.at < before).cloned().collect();
        disk.replace(disk.image.clone(), records);
        self.is_cut = true;
    }

    fn add(&mut self, disk: &mut Disk, record: Record) {
        self.replica.replay(&record);
        disk.records.push(record);
    }
}
