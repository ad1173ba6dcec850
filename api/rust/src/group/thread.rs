//! The thread that drives a member of a group.

use onepipe_transport_clock::reduce_wakeup_latency;

use super::member_driver::MemberDriver;
use super::shared::Shared;
use crate::{GroupEnd, Idle};

/// The longest wait for something that the doorbell tells of.
const WAIT_NS: u64 = 100_000_000;

/// Whoever waits for the thread is told that it is over, even if it has panicked.
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

/// Works until the group is over, and everybody knows.
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
