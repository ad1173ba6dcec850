//! Executes the user's commands on the machine and handles the machine's events.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use onepipe_bulk::{Event, Group as Machine, Outcome, SendError};
use onepipe_transport_bulk::{ObjectBytes, PageIndex};

use super::GroupObject;
use super::options::OnObject;
use super::shared::{Command, Shared, State};
use crate::{GroupEnd, MemberFailure};

/// The driver's side of a member.
pub(super) struct Worker {
    pub shared: Arc<Shared>,
    pub members: Vec<SocketAddr>,
    pub memory_bytes_max: u64,
    pub on_object: Option<OnObject>,
    /// Over shared memory: the pages on which objects lie.
    pub page_index: Option<PageIndex>,
    /// Announced objects without memory yet, and their lengths.
    pub wanted: VecDeque<(u32, u64)>,
    /// Bytes of objects that have memory and are not stable.
    pub in_flight_bytes: u64,
}

impl Worker {
    /// Executes the commands given since the last turn.
    pub fn apply_commands(&mut self, group: &mut Machine<ObjectBytes>) {
        let mut state = self.shared.lock();
        while let Some(object) = state.outbox.pop_front() {
            match group.send(object) {
                Ok(_) => {}
                Err(unsent) if unsent.error == SendError::Full => {
                    state.outbox.push_front(unsent.memory);
                    break;
                }
                Err(unsent) => {
                    // The reason is returned by the next `send`, or by `close`.
                    state.in_flight -= 1;
                    state.offer_buffer(unsent.memory);
                }
            }
        }
        match state.command {
            Command::Run => {}
            // Only the root can close a group; the other members wait for the root to close it.
            Command::Close if state.outbox.is_empty() => _ = group.close(),
            Command::Close => {}
            Command::Leave => group.leave(),
        }
        if state.command != Command::Run {
            // The objects will not be received any more.
            state.inbox.clear();
            state.inbox_bytes = 0;
        }
        while let Some((object, bytes)) = self.wanted.front().copied() {
            let used = state.inbox_bytes + self.in_flight_bytes;
            if used > 0 && used + bytes > self.memory_bytes_max {
                return;
            }
            self.wanted.pop_front();
            let Some(memory) = self.alloc(&mut state, object, bytes) else {
                group.decline(object);
                continue;
            };
            // An object that the machine refuses is not wanted any more.
            if group.provide(object, memory).is_ok() {
                self.in_flight_bytes += bytes;
            }
        }
    }

    /// Returns memory for an object: an offered buffer that fits, else its page, else a new buffer.
    fn alloc(&self, state: &mut State, object: u32, bytes: u64) -> Option<ObjectBytes> {
        if let Some(page_index) = &self.page_index {
            let count = usize::try_from(bytes).ok()?;
            if let Some(given) = state.pooled(count) {
                return Some(given.into());
            }
            if let Some(page) = page_index.page(object, count) {
                return Some(page.into());
            }
        }
        state.alloc_buffer(bytes).map(ObjectBytes::from)
    }

    pub fn on_event(&mut self, group: &mut Machine<ObjectBytes>, event: Event<ObjectBytes>) {
        match event {
            Event::Announced { object, bytes } => {
                self.wanted.push_back((object, bytes));
                self.apply_commands(group);
            }
            Event::Delivered { object } => {
                if let (Some(on_object), Some(bytes)) = (&mut self.on_object, group.bytes(object)) {
                    on_object(object, bytes);
                }
            }
            Event::Stable { object, memory } => self.on_stable(group, object, memory),
            Event::Lost { object } => self.wanted.retain(|(wanted, _)| *wanted != object),
            Event::Failed(failure) => {
                let address = self.members[failure.rank as usize];
                let (rank, by, reason) = (failure.rank, failure.by, failure.reason);
                let mut state = self.shared.lock();
                state.failures.push(MemberFailure { rank, address, by, reason });
                // The root sends nothing more: close the group, so that all members end.
                if group.config().own == 0 && state.command == Command::Run {
                    state.command = Command::Close;
                }
                drop(state);
                self.shared.notify();
            }
            Event::Closed(outcome) => {
                let state = self.shared.lock();
                let (failures, objects) = (state.failures.clone(), state.stable);
                drop(state);
                self.finish(match outcome {
                    Outcome::Complete => Ok(()),
                    Outcome::Failed => Err(GroupEnd::Failed { failures, objects }),
                    Outcome::Refused(_) => Err(GroupEnd::Excluded),
                    Outcome::Left => Err(GroupEnd::Left),
                });
            }
            _ => {}
        }
    }

    fn on_stable(&mut self, group: &Machine<ObjectBytes>, number: u32, bytes: ObjectBytes) {
        let mut state = self.shared.lock();
        state.stable = number + 1;
        if group.config().own == 0 {
            state.in_flight -= 1;
            state.offer_buffer(bytes);
        } else {
            self.in_flight_bytes -= bytes.len() as u64;
            if state.command == Command::Run {
                state.inbox_bytes += bytes.len() as u64;
                state.inbox.push_back(GroupObject { number, bytes });
            } else {
                state.offer_buffer(bytes);
            }
        }
        drop(state);
        self.shared.notify();
    }

    pub fn note_progress(&self, group: &Machine<ObjectBytes>) {
        let own = group.config().own;
        let complete = group.completed_by(own).unwrap_or(0);
        let mut state = self.shared.lock();
        let progress = &mut state.progress;
        progress.objects.resize(self.members.len(), 0);
        for (rank, objects) in (0..).zip(&mut progress.objects) {
            *objects = group.completed_by(rank).unwrap_or(0);
        }
        progress.blocks = group.progress(complete).unwrap_or((0, 0));
    }

    pub fn finish(&self, ended: Result<(), GroupEnd>) {
        self.shared.lock().ended.get_or_insert(ended);
        self.shared.notify();
    }
}
