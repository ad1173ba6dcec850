//! The thread that drives a member of a group.

use onepipe_transport_clock::sharpen_timers;

use super::driven::Driven;
use super::shared::Shared;
use crate::{GroupEnd, Idle};

/// The longest wait for something that the doorbell tells of.
const WAIT_NS: u64 = 100_000_000;

/// Whoever waits for the thread is told that it is over, even if it has panicked.
struct LastWord<'a>(&'a Shared);

impl Drop for LastWord<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_over = true;
        state.ended.get_or_insert(Err(GroupEnd::Left));
        drop(state);
        self.0.tell();
    }
}

/// Works until the group is over, and everybody knows.
pub(super) fn run(mut driven: Driven, idle: Idle) {
    let shared = driven.shared().clone();
    let _last_word = LastWord(&shared);
    sharpen_timers();
    let wait_ns = if idle == Idle::Backoff { WAIT_NS } else { 0 };
    while !driven.is_over() {
        if !driven.turn(wait_ns) && idle == Idle::Yield {
            std::thread::yield_now();
        }
    }
}
