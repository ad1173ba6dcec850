//! The thread that drives a member of a group.

use std::ops::ControlFlow;

use onepipe_transport_driver::{DrivenService, StopFlag};

use super::member_driver::MemberDriver;
use super::shared::Command;
use crate::{GroupEnd, Idle};

/// Longest wait between checks of the state, in ns; the doorbell ends it earlier.
const WAIT_NS: u64 = 100_000_000;

/// The member that a thread drives. A stop makes it leave.
pub(super) struct Thread {
    pub member_driver: MemberDriver,
    pub idle: Idle,
}

impl DrivenService for Thread {
    /// Breaks once the group has ended and all members know.
    fn step(&mut self, stop: &StopFlag) -> ControlFlow<()> {
        if self.member_driver.is_over() {
            return ControlFlow::Break(());
        }
        if stop.is_set() {
            self.member_driver.shared().lock().command = Command::Leave;
        }
        let wait_ns = if self.idle == Idle::Backoff { WAIT_NS } else { 0 };
        if !self.member_driver.turn(wait_ns) && self.idle == Idle::Yield {
            std::thread::yield_now();
        }
        ControlFlow::Continue(())
    }

    fn on_end(&mut self) {
        let shared = self.member_driver.shared();
        let mut state = shared.lock();
        state.is_over = true;
        state.ended.get_or_insert(Err(GroupEnd::Left));
        drop(state);
        shared.notify();
    }
}
