//! Socket counters of a run.

use std::sync::{Mutex, MutexGuard, PoisonError};

use onepipe_transport_amcast::Mesh;

/// Sums over all sockets and the whole run, including its warm-up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    messages: u64,
    frames: u64,
    bytes: u64,
    datagrams: u64,
    syscalls: u64,
    dropped: u64,
    retransmitted: u64,
    /// Sum of the client's messages in flight at the end of each poll, and number of polls.
    in_flight_samples: (u64, u64),
}

impl Traffic {
    /// Adds the counters of a thread that has ended, which has retransmitted this many packets.
    pub(super) fn add(&mut self, mesh: &Mesh, retransmitted: u64) {
        let stats = mesh.stats();
        self.frames += stats.frames_sent;
        self.bytes += stats.bytes_sent;
        self.datagrams += stats.gso_batches_sent;
        self.syscalls += stats.sends + stats.receives;
        self.dropped += u64::from(mesh.kernel_drops().unwrap_or_default());
        self.retransmitted += retransmitted;
    }

    /// Adds the client's samples of messages in flight: their sum and their number.
    pub(super) fn add_in_flight(&mut self, sum: u64, polls: u64) {
        self.in_flight_samples = (self.in_flight_samples.0 + sum, self.in_flight_samples.1 + polls);
    }

    /// Sets the number of messages delivered at the slowest receiver.
    pub(super) fn with_messages(self, messages: u64) -> Self {
        Self { messages, ..self }
    }

    pub(super) fn messages(self) -> u64 {
        self.messages
    }

    /// Returns all counters per message.
    pub(super) fn per_message(self) -> impl Iterator<Item = (&'static str, f64, &'static str)> {
        let messages = self.messages.max(1) as f64;
        let all = [
            ("frames", self.frames, "/msg"),
            ("bytes", self.bytes, "/msg"),
            ("datagrams", self.datagrams, "/msg"),
            ("system calls", self.syscalls, "/msg"),
            ("dropped datagrams", self.dropped, "/msg"),
            ("retransmitted", self.retransmitted, "/msg"),
        ];
        let in_flight = self.in_flight_samples.0 as f64 / self.in_flight_samples.1.max(1) as f64;
        let all = all.into_iter().map(move |(name, sum, unit)| (name, sum as f64 / messages, unit));
        all.chain([("in flight", in_flight, "msg")])
    }
}

/// Locks the counters, also after a thread has panicked.
pub(super) fn lock(traffic: &Mutex<Traffic>) -> MutexGuard<'_, Traffic> {
    traffic.lock().unwrap_or_else(PoisonError::into_inner)
}
