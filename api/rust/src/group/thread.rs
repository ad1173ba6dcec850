//! The thread that drives a member of a group.

use onepipe_transport_clock::reduce_wakeup_latency;

use super::member_driver::MemberDriver;
use super::shared::Shared;
use crate::{GroupEnd, Idle};

/// Longest wait between checks of the state, in ns; the doorbell ends it earlier.
const WAIT_NS: u64 = 100_000_000;

/// Marks the group as ended when the thread ends, even by a panic, and notifies waiting threads.
struct EndGuard<'a>(&'a Shared);

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_over = true;
        state.ended.get_or_insert(Err(GroupEnd::Left));
        drop(state);
        self.0.notify();
    }
}

/// Runs until the group has ended and all members know.
pub(super) fn run(mut member_driver: MemberDriver, idle: Idle) {
    let shared = member_driver.shared().clone();
    let _end_guard = EndGuard(&shared);
    reduce_wakeup_latency();
    let wait_ns = if idle == Idle::Backoff { WAIT_NS } else { 0 };
    while !member_driver.is_over() {
        if !member_driver.turn(wait_ns) && idle == Idle::Yield {
            std::thread::yield_now();
        }
    }
}
