//! The state that a group shares with its thread.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use onepipe_bulk::OBJECTS_MAX;
use onepipe_transport_bulk::ObjectBytes;

use super::{GroupObject, GroupProgress};
use crate::{GroupEnd, MemberFailure};

/// Maximum number of pooled buffers: for the objects in flight, and as many being received.
const POOL_MAX: usize = 2 * OBJECTS_MAX as usize;

/// The command to the thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Command {
    /// Keep the member running.
    #[default]
    Run,
    /// End the group once all members have all objects.
    Close,
    /// Leave it now.
    Leave,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// Objects submitted and not taken by the thread yet.
    pub outbox: VecDeque<ObjectBytes>,
    /// Objects submitted and not stable yet.
    pub in_flight: u32,
    /// Number of objects submitted in all.
    pub sent: u32,
    /// Objects not received by the user yet, and their bytes.
    pub inbox: VecDeque<GroupObject>,
    pub inbox_bytes: u64,
    /// Buffers for objects to come.
    pub pool: Vec<Vec<u8>>,
    pub command: Command,
    pub progress: GroupProgress,
    pub failures: Vec<MemberFailure>,
    /// Number of objects that every survivor has.
    pub stable: u32,
    /// The result, once the group has ended.
    pub ended: Option<Result<(), GroupEnd>>,
    /// The thread has ended.
    pub is_over: bool,
}

impl State {
    /// Returns a buffer of the given length: the smallest one of the pool that fits, or a new one.
    /// `None` when there is not enough memory.
    pub fn alloc_buffer(&mut self, bytes: u64) -> Option<Vec<u8>> {
        let bytes = usize::try_from(bytes).ok()?;
        self.pooled(bytes).or_else(|| {
            // Exhausted memory is reported; it must not abort the program.
            Vec::<u8>::new().try_reserve_exact(bytes).ok()?;
            Some(vec![0; bytes])
        })
    }

    /// As [`State::alloc_buffer`], from the pool only.
    pub fn pooled(&mut self, bytes: usize) -> Option<Vec<u8>> {
        let fits = |(_, memory): &(usize, &Vec<u8>)| memory.capacity() >= bytes;
        let best = self.pool.iter().enumerate().filter(fits).min_by_key(|(_, it)| it.capacity());
        let (at, _) = best?;
        let mut memory = self.pool.swap_remove(at);
        // Old bytes will be overwritten; only bytes beyond them are initialised now.
        memory.truncate(bytes);
        memory.resize(bytes, 0);
        Some(memory)
    }

    /// Queues an object for sending and returns its number.
    pub fn enqueue(&mut self, object: ObjectBytes) -> u32 {
        let number = self.sent;
        self.outbox.push_back(object);
        self.sent += 1;
        self.in_flight += 1;
        number
    }

    /// Returns the next received object.
    pub fn take(&mut self) -> Option<GroupObject> {
        let object = self.inbox.pop_front()?;
        self.inbox_bytes -= object.bytes.len() as u64;
        Some(object)
    }

    /// Returns why no object can be sent any more, if so.
    pub fn end_reason(&self) -> Option<GroupEnd> {
        match &self.ended {
            Some(Err(end)) => Some(end.clone()),
            Some(Ok(())) => Some(GroupEnd::Left),
            None if !self.failures.is_empty() => {
                let (failures, objects) = (self.failures.clone(), self.stable);
                Some(GroupEnd::Failed { failures, objects })
            }
            None if self.is_over => Some(GroupEnd::Left),
            None => None,
        }
    }

    /// Adds a buffer to the pool, which is bounded.
    pub fn offer_buffer(&mut self, memory: impl Into<ObjectBytes>) {
        let ObjectBytes::Private(memory) = memory.into() else {
            // A page returns to its pool when it is dropped.
            return;
        };
        self.pool.push(memory);
        if self.pool.len() > POOL_MAX {
            let least = self.pool.iter().enumerate().min_by_key(|(_, memory)| memory.capacity());
            let least = least.map_or(0, |(at, _)| at);
            self.pool.swap_remove(least);
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    /// Locks the state. A thread that panicked while holding the lock changed one field at a time,
    /// so the state is consistent.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a notification.
    pub fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Notifies waiting threads of a change.
    pub fn notify(&self) {
        self.changed.notify_all();
    }
}
