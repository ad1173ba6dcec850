//! Counters of a server.

use std::sync::atomic::{AtomicU64, Ordering};

use onepipe_block::Command;

use crate::blocks::Reply;

/// What a server has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerStats {
    /// Number of connections, with those that have ended.
    pub connections: u64,
    /// Number of reads.
    pub reads: u64,
    /// Number of bytes that reads asked for.
    pub read_bytes: u64,
    /// Number of writes.
    pub writes: u64,
    /// Number of bytes in writes.
    pub written_bytes: u64,
    /// Number of flushes.
    pub flushes: u64,
    /// Number of trims, writes of zeroes, hints, and queries of the status.
    pub others: u64,
    /// Number of requests that the device has failed to execute.
    pub failed: u64,
}

/// Counts the requests of all connections.
#[derive(Debug, Default)]
pub struct Counters {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    flushes: AtomicU64,
    others: AtomicU64,
    failed: AtomicU64,
}

impl Counters {
    /// Counts a request that begins.
    pub fn on_begin(&self, command: &Command) {
        match command {
            Command::Read(range) => {
                add(&self.reads, 1);
                add(&self.read_bytes, range.length.into());
            }
            Command::Write { data, .. } => {
                add(&self.writes, 1);
                add(&self.written_bytes, data.len() as u64);
            }
            Command::Flush => add(&self.flushes, 1),
            Command::Trim { .. }
            | Command::WriteZeroes { .. }
            | Command::Cache(_)
            | Command::Status(_) => {
                add(&self.others, 1);
            }
        }
    }

    /// Counts a failure.
    pub fn on_reply(&self, reply: &Reply) {
        if reply.is_err() {
            add(&self.failed, 1);
        }
    }

    /// Returns the counters.
    pub fn read(&self, connections: u64) -> ServerStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ServerStats {
            connections,
            reads: get(&self.reads),
            read_bytes: get(&self.read_bytes),
            writes: get(&self.writes),
            written_bytes: get(&self.written_bytes),
            flushes: get(&self.flushes),
            others: get(&self.others),
            failed: get(&self.failed),
        }
    }
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}
