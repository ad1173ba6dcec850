//! What a member of a group does with what its user asks for, and with what the machine tells.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use onepipe_bulk::{Event, Group as Machine, Outcome, SendError};
use onepipe_transport_bulk::{Bytes, Lender};

use super::GroupObject;
use super::options::OnObject;
use super::shared::{Shared, State, Wish};
use crate::{GroupEnd, MemberFailure};

/// What whoever drives a member knows of it.
pub(super) struct Worker {
    pub shared: Arc<Shared>,
    pub members: Vec<SocketAddr>,
    pub memory_bytes_max: u64,
    pub on_object: Option<OnObject>,
    /// Where objects lie already, if they do.
    pub lender: Option<Lender>,
    /// Objects that have no memory yet, and their bytes.
    pub wanted: VecDeque<(u32, u64)>,
    /// Bytes of objects that have memory and are not stable.
    pub under_way_bytes: u64,
}

impl Worker {
    /// Does what was asked for since the last turn.
    pub fn command(&mut self, group: &mut Machine<Bytes>) {
        let mut state = self.shared.lock();
        while let Some(object) = state.outbox.pop_front() {
            match group.send(object) {
                Ok(_) => {}
                Err(unsent) if unsent.error == SendError::Full => {
                    state.outbox.push_front(unsent.memory);
                    break;
                }
                Err(unsent) => {
                    // Who has sent it is told why when it sends again, or closes.
                    state.under_way -= 1;
                    state.give(unsent.memory);
                }
            }
        }
        match state.wish {
            Wish::Live => {}
            // Others than the root wait for it to close.
            Wish::Close if state.outbox.is_empty() => _ = group.close(),
            Wish::Close => {}
            Wish::Leave => group.leave(),
        }
        if state.wish != Wish::Live {
            // Nobody asks for it any more.
            state.inbox.clear();
            state.inbox_bytes = 0;
        }
        while let Some((object, bytes)) = self.wanted.front().copied() {
            let used = state.inbox_bytes + self.under_way_bytes;
            if used > 0 && used + bytes > self.memory_bytes_max {
                return;
            }
            self.wanted.pop_front();
            let Some(memory) = self.memory(&mut state, object, bytes) else {
                group.decline(object);
                continue;
            };
            // What is not taken is not wanted any more.
            if group.provide(object, memory).is_ok() {
                self.under_way_bytes += bytes;
            }
        }
    }

    /// Memory for an object: what was given, if it fits; else where it lies already, or new.
    fn memory(&self, state: &mut State, object: u32, bytes: u64) -> Option<Bytes> {
        if let Some(lender) = &self.lender {
            let count = usize::try_from(bytes).ok()?;
            if let Some(given) = state.pooled(count) {
                return Some(given.into());
            }
            if let Some(page) = lender.page(object, count) {
                return Some(page.into());
            }
        }
        state.memory(bytes).map(Bytes::from)
    }

    pub fn on_event(&mut self, group: &mut Machine<Bytes>, event: Event<Bytes>) {
        match event {
            Event::Announced { object, bytes } => {
                self.wanted.push_back((object, bytes));
                self.command(group);
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
                // The root takes nothing more: it is closed, so that all come to an end.
                if group.config().own == 0 && state.wish == Wish::Live {
                    state.wish = Wish::Close;
                }
                drop(state);
                self.shared.tell();
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

    fn on_stable(&mut self, group: &Machine<Bytes>, number: u32, bytes: Bytes) {
        let mut state = self.shared.lock();
        state.stable = number + 1;
        if group.config().own == 0 {
            state.under_way -= 1;
            state.give(bytes);
        } else {
            self.under_way_bytes -= bytes.len() as u64;
            if state.wish == Wish::Live {
                state.inbox_bytes += bytes.len() as u64;
                state.inbox.push_back(GroupObject { number, bytes });
            } else {
                state.give(bytes);
            }
        }
        drop(state);
        self.shared.tell();
    }

    pub fn note_progress(&self, group: &Machine<Bytes>) {
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
        self.shared.tell();
    }
}
