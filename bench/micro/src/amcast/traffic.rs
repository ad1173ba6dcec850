//! What the sockets of a run have done.

use std::sync::{Mutex, MutexGuard, PoisonError};

use onepipe_transport_amcast::Mesh;

/// Sums over all sockets and the whole of a run, its beginning included.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    messages: u64,
    frames: u64,
    bytes: u64,
    datagrams: u64,
    syscalls: u64,
    dropped: u64,
    retransmitted: u64,
    /// Messages that the client had on their way at the end of each of its turns, and its turns.
    in_flight_samples: (u64, u64),
}

impl Traffic {
    /// Somebody has ended, who has said `retransmitted` packets again.
    pub(super) fn add(&mut self, mesh: &Mesh, retransmitted: u64) {
        let stats = mesh.stats();
        self.frames += stats.frames_sent;
        self.bytes += stats.bytes_sent;
        self.datagrams += stats.trains_sent;
        self.syscalls += stats.sends + stats.receives;
        self.dropped += u64::from(mesh.kernel_drops().unwrap_or_default());
        self.retransmitted += retransmitted;
    }

    /// The client has seen messages on their way, `seen` at `samples` looks together.
    pub(super) fn add_in_flight(&mut self, seen: u64, samples: u64) {
        self.in_flight_samples =
            (self.in_flight_samples.0 + seen, self.in_flight_samples.1 + samples);
    }

    /// Of so many messages, delivered at the slowest receiver.
    pub(super) fn with_messages(self, messages: u64) -> Self {
        Self { messages, ..self }
    }

    pub(super) fn messages(self) -> u64 {
        self.messages
    }

    /// All of it, a message.
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

/// What whoever panicked has left is summed up as well.
pub(super) fn lock(traffic: &Mutex<Traffic>) -> MutexGuard<'_, Traffic> {
    traffic.lock().unwrap_or_else(PoisonError::into_inner)
}
