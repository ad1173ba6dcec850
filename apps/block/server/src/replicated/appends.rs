//! Writes: entries that are appended to the log.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use onepipe_block::{ErrorCode, Failure, Outcome};
use onepipe_log_server::LogHandle;

use super::reads::Reads;
use crate::blocks::Completion;

/// Appends the entries of writes, and completes these when all replicas have them.
pub struct Appends {
    /// The nodes of the replicas. What one of them has appended is applied there at once when it is
    /// committed; others find out by its next message. So one is used as long as it is up.
    nodes: Mutex<Vec<(u32, LogHandle)>>,
    reads: Arc<Reads>,
    /// Limit on the entries in flight; others wait.
    in_flight_max: usize,
    /// Limit on the bytes of entries that the images have not made durable; others wait.
    bytes_max: usize,
    state: Mutex<State>,
    /// Signalled when no entry is in flight.
    drained: Condvar,
}

#[derive(Default)]
struct State {
    in_flight: usize,
    /// Bytes of the entries in flight, and of those in `undurable`.
    bytes: usize,
    /// Committed entries that are not durable in all images, with their lengths: the replicas have
    /// them in memory.
    undurable: VecDeque<(u64, usize)>,
    /// A thread is appending what waits, and goes on as long as the limit allows.
    is_advancing: bool,
    /// Nothing is appended while a node is being stopped.
    is_paused: bool,
    waiting: VecDeque<(Vec<u8>, Arc<Write>)>,
}

/// A write of one or more entries.
struct Write(Mutex<Progress>);

struct Progress {
    /// Entries that are not committed.
    left: usize,
    failure: Option<Failure>,
    completion: Option<Completion>,
}

impl Appends {
    pub fn new(
        nodes: Vec<(u32, LogHandle)>,
        reads: Arc<Reads>,
        (in_flight_max, bytes_max): (usize, usize),
    ) -> Appends {
        let (nodes, state) = (Mutex::new(nodes), Mutex::default());
        Appends { nodes, reads, in_flight_max, bytes_max, state, drained: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a write. It is complete when all its entries are committed: all replicas have stored
    /// them.
    pub fn begin(self: &Arc<Appends>, entries: Vec<Vec<u8>>, completion: Completion) {
        let progress =
            Progress { left: entries.len(), failure: None, completion: Some(completion) };
        let write = Arc::new(Write(Mutex::new(progress)));
        let entries = entries.into_iter().map(|entry| (entry, Arc::clone(&write)));
        self.lock().waiting.extend(entries);
        self.advance();
    }

    /// Appends entries that wait, as many as the limit allows.
    fn advance(self: &Arc<Appends>) {
        // An append that is complete at once calls this function again.
        if std::mem::replace(&mut self.lock().is_advancing, true) {
            return;
        }
        while let Some((entry, write)) = self.next() {
            let appends = Arc::clone(self);
            let len = entry.len();
            self.node().append(
                entry,
                Box::new(move |result| {
                    let result = result.map(|committed| committed.position.index + 1);
                    let position = result.as_ref().ok().copied();
                    write.on_entry(&appends.reads, result.map_err(|error| failure(&error)));
                    appends.on_end(position, len);
                }),
            );
        }
    }

    /// Returns the first node that is up.
    fn node(&self) -> LogHandle {
        let nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        let is_up = |(_, node): &&(u32, LogHandle)| node.ended().is_none();
        // A node that has ended reports why.
        nodes.iter().find(is_up).or(nodes.first()).expect("one node remains").1.clone()
    }

    /// Notes that an entry is committed at a position, or has failed.
    fn on_end(self: &Arc<Appends>, position: Option<u64>, len: usize) {
        let mut state = self.lock();
        state.in_flight -= 1;
        match position {
            Some(position) => state.undurable.push_back((position, len)),
            None => state.bytes -= len,
        }
        if state.in_flight == 0 {
            self.drained.notify_all();
        }
        drop(state);
        self.advance();
    }

    /// Returns the position of the first entry that is not known to be durable in all images.
    pub fn first_undurable(&self) -> Option<u64> {
        self.lock().undurable.front().map(|(position, _)| *position)
    }

    /// Notes that all entries up to a position are durable in the images.
    pub fn on_durable(self: &Arc<Appends>, until: u64) {
        let mut state = self.lock();
        while let Some((_, len)) = state.undurable.pop_front_if(|one| one.0 <= until) {
            state.bytes -= len;
        }
        drop(state);
        self.advance();
    }

    /// Pauses, waits until no entry is in flight, and uses other nodes from then on. Goes on after
    /// [`Appends::resume`]. An entry in flight when its node stops would be in the log or not.
    pub fn pause_with(&self, nodes: Vec<(u32, LogHandle)>) {
        assert!(!nodes.is_empty(), "one node remains");
        let mut state = self.lock();
        state.is_paused = true;
        while state.in_flight > 0 {
            state = self.drained.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        *self.nodes.lock().unwrap_or_else(PoisonError::into_inner) = nodes;
    }

    /// Goes on after a pause.
    pub fn resume(self: &Arc<Appends>) {
        self.lock().is_paused = false;
        self.advance();
    }

    /// Adds a node, which is used when those before have ended.
    pub fn add_node(&self, replica: u32, node: LogHandle) {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner).push((replica, node));
    }

    /// Returns the nodes, with the numbers of their replicas.
    pub fn nodes(&self) -> Vec<(u32, LogHandle)> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the next entry to append. After `None` another thread may append.
    fn next(&self) -> Option<(Vec<u8>, Arc<Write>)> {
        let mut state = self.lock();
        let has_capacity = state.in_flight < self.in_flight_max
            && state.bytes < self.bytes_max
            && !state.is_paused;
        let next = if has_capacity { state.waiting.pop_front() } else { None };
        state.is_advancing = next.is_some();
        state.in_flight += usize::from(next.is_some());
        state.bytes += next.as_ref().map_or(0, |(entry, _)| entry.len());
        next
    }
}

fn failure(error: &impl std::error::Error) -> Failure {
    Failure::new(ErrorCode::Io, format!("a write may be lost: {error}"))
}

impl Write {
    fn on_entry(&self, reads: &Reads, result: Result<u64, Failure>) {
        let mut progress = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            // Before the reply: a read that follows it waits for this position.
            Ok(position) => reads.on_acknowledged(position),
            Err(failure) => progress.failure = Some(failure),
        }
        progress.left -= 1;
        if progress.left > 0 {
            return;
        }
        let reply = progress.failure.take().map_or(Ok(Outcome::Done), Err);
        let completion = progress.completion.take();
        drop(progress);
        if let Some(completion) = completion {
            completion.complete(reply);
        }
    }
}
