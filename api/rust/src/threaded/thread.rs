//! The thread that drives a pipe while its caller is away.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use onepipe_endpoint::ProcessFailed;
use onepipe_transport_clock::{Clock, SystemClock};
use onepipe_transport_driver::{DrivenService, IdleAction, Progress, StopFlag, Wait};

use super::core::{Callbacks, Core, ThreadState};
use super::events::EventReader;
use super::shared::Shared;
use crate::graceful_leave::GracefulLeave;

/// The state of the thread.
pub(crate) struct Thread {
    shared: Arc<Shared>,
    clock: SystemClock,
    wait_handle: Arc<dyn Wait>,
    leave_timeout: Duration,
    callbacks: Callbacks,
    /// Events for the callback.
    event_reader: EventReader,
    graceful_leave: Option<GracefulLeave>,
}

impl DrivenService for Thread {
    /// Drives the pipe until the caller does, then waits until the caller does not.
    fn step(&mut self, stop: &StopFlag) -> ControlFlow<()> {
        if self.drive(stop) {
            self.run_last_callbacks();
            return ControlFlow::Break(());
        }
        self.shared.stand_by(|| self.clock.read().mono);
        ControlFlow::Continue(())
    }

    fn on_end(&mut self) {
        self.shared.lock().end();
        self.shared.on_progress();
    }
}

impl Thread {
    pub(crate) fn new(
        shared: Arc<Shared>,
        clock: SystemClock,
        wait_handle: Arc<dyn Wait>,
        leave_timeout: Duration,
    ) -> Self {
        Self {
            shared,
            clock,
            wait_handle,
            leave_timeout,
            callbacks: Callbacks::default(),
            event_reader: EventReader::default(),
            graceful_leave: None,
        }
    }

    /// Calls the callbacks for what is left when the pipe has left.
    fn run_last_callbacks(&mut self) {
        loop {
            // The callback needs the lock to be free.
            let Some(failed) = self.shared.lock().next_failure() else { break };
            self.run_failure_callback(failed);
        }
        self.shared.lock().end();
        // What a full batch held back is for the callback as well.
        while self.callbacks.on_event.is_some() && self.shared.lock().fetch(&mut self.event_reader)
        {
            self.run_event_callback();
        }
    }

    /// Drives until the caller takes over. Returns whether the pipe has left.
    fn drive(&mut self, stop: &StopFlag) -> bool {
        let shared = Arc::clone(&self.shared);
        let mut is_first = true;
        loop {
            let Some(mut core) = shared.lock_for_thread() else { return false };
            if core.has_ended() {
                return true;
            }
            let is_thread_driven = shared.is_thread_driven();
            let is_relieved = core.thread_state == ThreadState::Standby && !is_first;
            if is_relieved && !is_thread_driven {
                return false;
            }
            core.set_thread_state(ThreadState::Driving);
            is_first = false;
            if is_thread_driven && self.on_commands(&mut core, stop) {
                return true;
            }
            let progress = core.turn();
            let failed = core.next_failure();
            let has_events = match self.callbacks.on_event {
                Some(_) => core.fetch(&mut self.event_reader),
                None => false,
            };
            let action = self.idle_action(&mut core, progress, failed.is_some() || has_events);
            let wait_ns = match action {
                IdleAction::Block => core.begin_wait(),
                _ => None,
            };
            drop(core);
            if is_thread_driven && !progress.is_idle() {
                shared.on_progress();
            }
            if has_events {
                self.run_event_callback();
            }
            if let Some(failed) = failed {
                self.run_failure_callback(failed);
            }
            match (action, wait_ns) {
                (IdleAction::Block, Some(wait_ns)) => self.wait_handle.wait(wait_ns),
                (IdleAction::Yield, _) => std::thread::yield_now(),
                _ => {}
            }
        }
    }

    /// Takes new callbacks, and advances a leave. Returns whether the pipe has left.
    fn on_commands(&mut self, core: &mut Core, stop: &StopFlag) -> bool {
        let Callbacks { on_event, on_process_failed } = std::mem::take(&mut core.callbacks);
        self.callbacks.on_event = on_event.or(self.callbacks.on_event.take());
        self.callbacks.on_process_failed =
            on_process_failed.or(self.callbacks.on_process_failed.take());
        if !stop.is_set() {
            return false;
        }
        let begin = || GracefulLeave::begin(self.leave_timeout);
        core.step_leave(self.graceful_leave.get_or_insert_with(begin))
    }

    /// Returns how to idle after a turn that did `progress`; `is_busy`: callbacks are called.
    fn idle_action(&self, core: &mut Core, progress: Progress, is_busy: bool) -> IdleAction {
        let events = progress.events.max(usize::from(is_busy));
        core.idle_action(Progress { events, ..progress })
    }

    fn run_event_callback(&mut self) {
        if let Some(on_event) = &mut self.callbacks.on_event {
            self.event_reader.events().for_each(on_event);
        }
    }

    fn run_failure_callback(&mut self, failed: ProcessFailed) {
        if let Some(on_process_failed) = &mut self.callbacks.on_process_failed {
            on_process_failed(failed);
        }
        self.shared.lock().on_failure_handled(failed);
        self.shared.on_progress();
    }
}
