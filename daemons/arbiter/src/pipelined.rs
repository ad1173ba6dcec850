//! An arbiter whose batches are allocated by worker threads.

use onepipe_arbiter::{ArbiterEvent, Command, ControlPlane, Demand, Dispatcher};
use onepipe_base::{Machine, Mono, Now, Port, Transmit, Verdict};
use onepipe_transport_driver::DrivenMachine;

use crate::ring::WorkerRings;
use crate::worker_pool::WorkerPool;

/// The control plane, with a dispatcher and workers that execute its commands. Makes no decisions
/// of its own.
#[derive(Debug)]
pub(crate) struct PipelinedArbiter {
    control_plane: ControlPlane,
    dispatcher: Dispatcher,
    pool: WorkerPool,
    rings: WorkerRings,
}

impl PipelinedArbiter {
    pub(crate) fn new(
        control_plane: ControlPlane,
        dispatcher: Dispatcher,
        pool: WorkerPool,
        rings: WorkerRings,
    ) -> Self {
        Self { control_plane, dispatcher, pool, rings }
    }

    pub(crate) fn control_plane(&self) -> &ControlPlane {
        &self.control_plane
    }

    /// Executes commands of the control plane while the worker queues have space; the rest stays
    /// in the control plane.
    fn run_commands(&mut self, now: Now) {
        let mut command_space = self.rings.command_space();
        // A batch takes up to two commands.
        while command_space > 1
            && self.dispatcher.is_ready()
            && let Some(command) = self.control_plane.poll_command(now.mono)
        {
            let (number, worker) = (self.dispatcher.number(), self.dispatcher.next());
            if let Some(refused) = self.dispatcher.execute(command, &mut self.rings) {
                self.control_plane.on_refused(number, refused);
            }
            match command {
                Command::Demand(Demand::Want { .. }) | Command::Overload => {}
                Command::Demand(Demand::Forget(_)) | Command::Avoid { .. } => command_space -= 1,
                Command::Batch(_) => {
                    command_space -= 2;
                    self.pool.wake(worker);
                }
            }
        }
    }

    /// Passes finished batches to the dispatcher and the control plane.
    fn read_batches(&mut self, now: Now) {
        let Self { control_plane, dispatcher, pool, rings } = self;
        let mut read = || {
            rings.read(|rings, batch, worker| {
                let last = dispatcher.last();
                // This comes first, as a later batch may wait for it.
                if dispatcher.on_batch_allocated(batch, rings) {
                    pool.wake(last);
                }
                batch.build_schedule();
                control_plane.on_batch_granted(now, batch.summary(), batch.schedule(), &*batch);
                worker
            })
        };
        while let Some(worker) = read() {
            // The worker may have waited for a free batch buffer.
            pool.wake(worker);
        }
    }
}

impl Machine for PipelinedArbiter {
    type Event = ArbiterEvent;

    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        let verdict = self.control_plane.handle_frame(now, port, frame);
        self.run_commands(now);
        verdict
    }

    fn handle_timeout(&mut self, now: Now) {
        self.pool.assert_alive();
        self.read_batches(now);
        self.control_plane.handle_timeout(now);
        self.run_commands(now);
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        self.control_plane.poll_transmit(now, slot)
    }

    fn poll_event(&mut self) -> Option<ArbiterEvent> {
        self.control_plane.poll_event()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        if self.rings.has_written() {
            return Some(Mono::from_ns(0));
        }
        self.control_plane.poll_timeout()
    }
}

impl DrivenMachine for PipelinedArbiter {}
