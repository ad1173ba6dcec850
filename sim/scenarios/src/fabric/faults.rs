//! Faults of single processes and controllers: crashes, restarts, and slow applications.

use onepipe_base::ProcessId;
use onepipe_sim_network::Fault;

use super::Fabric;
use crate::{HostedMachine, Node};

impl Fabric {
    /// Crashes a process or a controller; a host with processes keeps running.
    pub fn crash_process(&mut self, id: u32) {
        self.set_lenient();
        let (node, port) = self.location(id);
        if let Some(Node::Controller(..)) = self.network.machine(node) {
            return self.network.inject(Fault::Crash(node));
        }
        self.network.command(node, |at, machine, app| {
            if let Node::Host(host) = machine
                && let Some(HostedMachine::Process(_)) = host.stop(port)
            {
                app.checker.at_ns(at.instant.as_ns());
                app.checker.crashed(ProcessId(id));
            }
        });
    }

    /// Cancels all reliable scatterings of a process that have no outcome yet.
    pub fn cancel_all(&mut self, id: u32) {
        let (node, port) = self.location(id);
        self.network.command(node, |_, machine, _| {
            if let Some(process) = machine.process_mut(port) {
                for open in process.endpoint.open_scatterings() {
                    process.endpoint.cancel(open.scattering);
                }
            }
        });
    }

    /// Checks that every reliable scattering submitted more than `us` microseconds ago has ended.
    pub fn expect_ended(&mut self, us: u64) {
        let now_ns = self.now().as_ns();
        let since_ns = now_ns.saturating_sub(us * 1_000);
        for id in 0..self.members() {
            let open = self.process(id).map(|process| process.endpoint.open_scatterings());
            let checker = &mut self.network.application.checker;
            checker.at_ns(now_ns);
            for open in open.unwrap_or_default() {
                let scattering = (open.scattering.0, open.is_recalled);
                checker.still_open(ProcessId(id), scattering, since_ns);
            }
        }
    }

    /// Runs the fabric until every process that takes part is registered with the controllers.
    /// Longer than three times the bound of the recovery is a violation.
    pub fn expect_registered(&mut self) {
        let slice_us = 3 * self.liveness_bound_ns() / 100 / 1_000;
        for _ in 0..100 {
            if self.unregistered().is_none() || self.network.is_out_of_steps() {
                return;
            }
            self.run_us(slice_us + 1);
        }
        let now_ns = self.now().as_ns();
        if let Some(id) = self.unregistered() {
            let checker = &mut self.network.application.checker;
            checker.at_ns(now_ns);
            checker.unregistered(ProcessId(id));
        }
    }

    /// Returns a process that runs, does not leave and is not registered.
    fn unregistered(&self) -> Option<u32> {
        (0..self.members()).find(|id| {
            self.process(*id).is_some_and(|process| {
                let endpoint = &process.endpoint;
                !process.is_leaving() && !endpoint.has_left() && !endpoint.is_registered()
            })
        })
    }

    /// Crashes a process permanently: the liveness check ignores it.
    pub fn remove_process(&mut self, id: u32) {
        self.crash_process(id);
        self.removed.insert(id);
    }

    /// Whether the process was removed permanently.
    pub fn is_removed(&self, id: u32) -> bool {
        self.removed.contains(&id)
    }

    /// Lets the process send `frames` more frames, and crashes it when it is to send the next one.
    /// Beacons are sent and do not count.
    pub fn crash_process_after(&mut self, id: u32, frames: u32) {
        self.set_lenient();
        let (node, port) = self.location(id);
        self.network.command(node, |_, machine, _| {
            if let Some(process) = machine.process_mut(port) {
                process.crash_after(frames);
            }
        });
    }

    /// Lets the process send `frames` more frames, and lets it leave gracefully before it sends the
    /// next one. Beacons are sent and do not count.
    pub fn leave_after(&mut self, id: u32, frames: u32) {
        let (node, port) = self.location(id);
        self.network.command(node, |_, machine, _| {
            if let Some(process) = machine.process_mut(port) {
                process.leave_after(frames);
            }
        });
    }

    /// Lets the controller write `records` more records, and crashes it at the one that follows: if
    /// `is_written`, after the store has written that record and before the controller learns of
    /// it; otherwise before the store has the record.
    pub fn crash_controller_at(&mut self, id: u32, records: u32, is_written: bool) {
        self.set_lenient();
        let index = id.checked_sub(self.members()).expect("the id is a controller's");
        if let Some(control_plane) = &mut self.network.application.control_plane {
            control_plane.crash_at(index as usize, records, is_written);
        }
    }

    /// Restarts a process or a controller that has crashed or left, if its host is up.
    pub fn restart_process(&mut self, id: u32) {
        let (node, port) = self.location(id);
        if id >= self.members() && self.topology().processes_per_host() == 1 {
            return self.network.inject(Fault::Restart(node));
        }
        self.network.command(node, |mut at, machine, app| {
            let left = machine.process(port).filter(|process| process.endpoint.has_left());
            let has_left = left.is_some();
            if let Some(left) = left {
                // The process may not have been inspected since.
                app.checker.at_ns(at.instant.as_ns());
                app.on_left(ProcessId(id), left.endpoint.is_leave_unacknowledged());
            }
            if let Node::Host(host) = machine
                && (has_left || host.process(port).is_none())
            {
                host.start(port, app.build_hosted(ProcessId(id)));
                match id.checked_sub(app.members) {
                    None => at.alarm(0, u32::from(port.0)),
                    Some(index) => app.start_campaign(&mut at, index as usize, port),
                }
            }
        });
    }

    /// Stops a process, or lets it run again; its host keeps running.
    pub fn set_stopped(&mut self, id: u32, is_stopped: bool) {
        if is_stopped {
            self.set_lenient();
        }
        let (node, port) = self.location(id);
        self.network.command(node, |_, machine, _| {
            if let Some(process) = machine.process_mut(port) {
                process.set_stopped(is_stopped);
            }
        });
    }

    /// Stops or resumes the release of received messages at a process.
    pub fn set_slow(&mut self, id: u32, is_slow: bool) {
        let (node, port) = self.location(id);
        self.network.command(node, |_, machine, app| {
            let state = &mut app.states[id as usize];
            state.is_slow = is_slow;
            if let Some(process) = machine.process_mut(port)
                && !is_slow
            {
                state.unreleased.drain(..).for_each(|delivery| process.release(delivery));
            }
        });
    }
}
