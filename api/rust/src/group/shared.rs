//! What a group shares with its thread.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use onepipe_bulk::OBJECTS_MAX;
use onepipe_transport_bulk::ObjectBytes;

use super::{GroupObject, GroupProgress};
use crate::{GroupEnd, MemberFailure};

/// Pieces of memory in the pool: as many objects may be under way, and be received meanwhile.
const POOL_MAX: usize = 2 * OBJECTS_MAX as usize;

/// What the thread is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Command {
    /// To go on.
    #[default]
    Run,
    /// To end the group when all that was sent is everywhere.
    Close,
    /// To leave it now.
    Leave,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// What was sent and the thread has not taken yet.
    pub outbox: VecDeque<ObjectBytes>,
    /// Objects that were sent and are not yet everywhere.
    pub in_flight: u32,
    /// How many were sent in all.
    pub sent: u32,
    /// What has come and was not received yet, and its bytes.
    pub inbox: VecDeque<GroupObject>,
    pub inbox_bytes: u64,
    /// Memory for what comes.
    pub pool: Vec<Vec<u8>>,
    pub command: Command,
    pub progress: GroupProgress,
    pub failures: Vec<MemberFailure>,
    /// Objects that every survivor has.
    pub stable: u32,
    /// How it has ended, once it has.
    pub ended: Option<Result<(), GroupEnd>>,
    /// The thread is over.
    pub is_over: bool,
}

impl State {
    /// Memory of so many bytes: from the pool what is just large enough, or new. `None` when there
    /// is not so much.
    pub fn memory(&mut self, bytes: u64) -> Option<Vec<u8>> {
        let bytes = usize::try_from(bytes).ok()?;
        self.pooled(bytes).or_else(|| {
            // Memory that is not there is an answer, and not the end of the program.
            Vec::<u8>::new().try_reserve_exact(bytes).ok()?;
            Some(vec![0; bytes])
        })
    }

    /// As [`State::memory`], from the pool alone.
    pub fn pooled(&mut self, bytes: usize) -> Option<Vec<u8>> {
        let fits = |(_, memory): &(usize, &Vec<u8>)| memory.capacity() >= bytes;
        let best = self.pool.iter().enumerate().filter(fits).min_by_key(|(_, it)| it.capacity());
        let (at, _) = best?;
        let mut memory = self.pool.swap_remove(at);
        // Bytes of before are written over; only those that never were are made now.
        memory.truncate(bytes);
        memory.resize(bytes, 0);
        Some(memory)
    }

    /// Takes an object that is sent. Answers its number.
    pub fn enqueue(&mut self, object: ObjectBytes) -> u32 {
        let number = self.sent;
        self.outbox.push_back(object);
        self.sent += 1;
        self.in_flight += 1;
        number
    }

    /// The next object that has come.
    pub fn take(&mut self) -> Option<GroupObject> {
        let object = self.inbox.pop_front()?;
        self.inbox_bytes -= object.bytes.len() as u64;
        Some(object)
    }

    /// Why nothing more is sent, if so.
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

    /// Keeps memory for later, but no more than may be under way.
    pub fn offer_buffer(&mut self, memory: impl Into<ObjectBytes>) {
        let ObjectBytes::Private(memory) = memory.into() else {
            // A page serves again when nobody has it any more.
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
    /// The lock. Who panicked with it had changed one thing at a time, so what it guards is whole.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change.
    pub fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Something has changed.
    pub fn notify(&self) {
        self.changed.notify_all();
    }
}
