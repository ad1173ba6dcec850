//! Workers connected by rings: commands in, flows from worker to worker, batches out.

use onepipe_arbiter::{
    AllocatedBatch, ArbiterConfig, ArbiterError, Dispatcher, Flow, Worker, WorkerCommand,
    WorkerQueues,
};
use rtrb::{Consumer, Producer, RingBuffer};

/// Maximum number of flows taken at a time.
const CHUNK: usize = 512;
/// Batch buffers per worker: one being read and one being written.
const BUFFERS_PER_WORKER: usize = 2;

/// A worker with its ends of the rings to other workers and to the dispatcher. The caller runs it
/// on a core of its own.
#[derive(Debug)]
pub struct RingWorker {
    worker: Worker,
    commands: Consumer<WorkerCommand>,
    /// New flows, admitted before the command of the batch that counts them.
    fresh: Consumer<Flow>,
    flows_in: Consumer<Flow>,
    flows_out: Producer<Flow>,
    /// Batch buffers that were read and can be reused.
    free: Consumer<Box<AllocatedBatch>>,
    written: Producer<Box<AllocatedBatch>>,
    /// A batch has ended and waits for a buffer.
    has_unwritten: bool,
}

/// The other ends of a worker's rings.
#[derive(Debug)]
pub struct DispatcherEnds {
    commands: Producer<WorkerCommand>,
    fresh: Producer<Flow>,
    free: Producer<Box<AllocatedBatch>>,
    written: Consumer<Box<AllocatedBatch>>,
}

/// The rings to all workers, used by a [`Dispatcher`].
#[derive(Debug)]
pub struct WorkerRings {
    rings: Vec<DispatcherEnds>,
    /// The worker of the next batch to read: results are read in order.
    next: usize,
}

/// The outcome of a turn of a [`RingWorker`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnResult {
    /// There was something to do.
    pub is_busy: bool,
    /// All flows of a batch were forwarded to the next worker.
    pub has_forwarded: bool,
    /// A batch was written.
    pub has_written: bool,
}

/// Creates `workers` (at least 1) workers in a ring, and the rings to them.
///
/// # Errors
/// When a setting is out of range.
pub fn connect_workers(
    config: &ArbiterConfig,
    workers: usize,
) -> Result<(Vec<RingWorker>, WorkerRings), ArbiterError> {
    let workers = workers.max(1);
    let pairs_max = config.allocator.pairs_max as usize;
    // All flows, and an end marker for each batch in flight.
    let (mut flows_out, flows_in): (Vec<_>, Vec<_>) =
        (0..workers).map(|_| RingBuffer::new(pairs_max + workers)).unzip();
    // Each worker reads what the previous one writes.
    flows_out.rotate_left(1);
    // The first worker starts without a predecessor.
    for flow in Worker::initial_flows() {
        flows_out[workers - 1].push(flow).expect("the ring is empty");
    }
    // Flows of a reset endpoint may still be queued when new ones take their places.
    let fresh_max = pairs_max * (1 + config.allocator.renew_after_batches as usize);
    let mut ring_workers = Vec::with_capacity(workers);
    let mut rings = Vec::with_capacity(workers);
    for (at, (flows_in, flows_out)) in flows_in.into_iter().zip(flows_out).enumerate() {
        let (to_worker, commands) = RingBuffer::new(Dispatcher::COMMANDS_MAX);
        let (to_admit, fresh) = RingBuffer::new(fresh_max);
        let (mut to_write, free) = RingBuffer::new(BUFFERS_PER_WORKER);
        let (written, to_read) = RingBuffer::new(BUFFERS_PER_WORKER);
        for _ in 0..BUFFERS_PER_WORKER {
            let batch = Box::new(AllocatedBatch::new(&config.allocator));
            to_write.push(batch).expect("the ring holds all buffers");
        }
        rings.push(DispatcherEnds {
            commands: to_worker,
            fresh: to_admit,
            free: to_write,
            written: to_read,
        });
        ring_workers.push(RingWorker {
            worker: Worker::new(config, at, workers)?,
            commands,
            fresh,
            flows_in,
            flows_out,
            free,
            written,
            has_unwritten: false,
        });
    }
    Ok((ring_workers, WorkerRings { rings, next: 0 }))
}

impl RingWorker {
    /// Does what can be done now. Never blocks.
    pub fn turn(&mut self) -> TurnResult {
        let mut done = TurnResult::default();
        if self.has_unwritten && !self.write(&mut done) {
            return done;
        }
        done.is_busy |= self.take_commands();
        if self.worker.is_open() {
            done.is_busy |= self.take_flows();
            while self.worker.missing() > 0 {
                self.take_fresh();
                self.forward();
                done.is_busy = true;
            }
            if self.worker.is_complete() {
                self.worker.finish();
                self.forward();
                self.has_unwritten = true;
                done.has_forwarded = true;
                done.is_busy = true;
            }
        }
        if self.has_unwritten {
            self.write(&mut done);
        }
        done
    }

    /// Writes the finished batch if a buffer is free.
    fn write(&mut self, done: &mut TurnResult) -> bool {
        let Ok(mut batch) = self.free.pop() else { return false };
        self.worker.write(&mut batch);
        // An idle worker fills the schedule; the result is the same wherever that is done.
        if self.commands.is_empty() {
            batch.build_schedule();
        }
        self.written.push(batch).expect("the ring holds all buffers");
        self.has_unwritten = false;
        done.has_written = true;
        done.is_busy = true;
        true
    }

    /// Takes commands of the current or next batch.
    fn take_commands(&mut self) -> bool {
        let Ok(chunk) = self.commands.read_chunk(self.commands.slots()) else { return false };
        let (first, second) = chunk.as_slices();
        let mut taken = self.worker.on_commands(first);
        taken += self.worker.on_commands(second);
        chunk.commit(taken);
        taken > 0
    }

    /// Takes flows of the previous batch, a chunk at a time so that the next worker can start.
    fn take_flows(&mut self) -> bool {
        let count = self.flows_in.slots().min(CHUNK);
        let Ok(chunk) = self.flows_in.read_chunk(count) else { return false };
        let (first, second) = chunk.as_slices();
        let mut taken = self.worker.on_flows(first);
        taken += self.worker.on_flows(second);
        chunk.commit(taken);
        self.forward();
        taken > 0
    }

    /// Takes new flows, at most a chunk.
    fn take_fresh(&mut self) {
        let chunk = self.fresh.read_chunk((self.worker.missing() as usize).min(CHUNK));
        let chunk = chunk.expect("admitted before their command");
        let (first, second) = chunk.as_slices();
        self.worker.on_fresh(first);
        self.worker.on_fresh(second);
        chunk.commit_all();
    }

    /// Forwards flows that must wait for the next batch.
    fn forward(&mut self) {
        push_all(&mut self.flows_out, self.worker.forwarded());
        self.worker.clear_forwarded();
    }
}

/// # Panics
/// When the ring is full.
fn push_all(ring: &mut Producer<Flow>, flows: &[Flow]) {
    let mut chunk = ring.write_chunk(flows.len()).expect("the ring holds all flows");
    let (first, second) = chunk.as_mut_slices();
    let (own, rest) = flows.split_at(first.len());
    first.copy_from_slice(own);
    second.copy_from_slice(rest);
    chunk.commit_all();
}

impl WorkerRings {
    /// Returns the number of commands that fit any of the queues.
    pub fn command_space(&self) -> usize {
        self.rings.iter().map(|ring| ring.commands.slots()).min().unwrap_or(0)
    }

    /// Whether the next batch in order is ready to be read.
    pub fn has_written(&self) -> bool {
        self.rings[self.next].written.slots() > 0
    }

    /// Reads the next batch, if it is ready, and recycles its buffer. `read` also gets the index of
    /// its worker.
    pub fn read<R>(
        &mut self,
        read: impl FnOnce(&mut Self, &mut AllocatedBatch, usize) -> R,
    ) -> Option<R> {
        let at = self.next;
        let mut batch = self.rings[at].written.pop().ok()?;
        let result = read(self, &mut batch, at);
        let free = &mut self.rings[at].free;
        free.push(batch).expect("the ring holds all buffers");
        self.next = (at + 1) % self.rings.len();
        Some(result)
    }
}

impl WorkerQueues for WorkerRings {
    /// # Panics
    /// When the queue is full.
    fn command(&mut self, worker: usize, command: WorkerCommand) {
        let commands = &mut self.rings[worker].commands;
        commands.push(command).expect("the caller checks command_space");
    }

    fn admit(&mut self, worker: usize, flows: &[Flow]) {
        push_all(&mut self.rings[worker].fresh, flows);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use onepipe_arbiter::{Allocator, Command, Config, Core, Demand, Timeslot};
    use onepipe_base::ProcessId;

    use super::*;

    const NODES: u32 = 48;
    const BUFFERS_PER_WORKER: u64 = 400;

    /// Returns the same pseudo-random demands for each batch.
    fn demands() -> impl Iterator<Item = Vec<Demand>> {
        let mut state = 1u64;
        let mut draw = move |below: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040);
            (state >> 33) as u32 % below
        };
        (0..BUFFERS_PER_WORKER).map(move |_| {
            let one = |_| match draw(20) {
                0 => Demand::Forget(draw(NODES)),
                _ => Demand::Want { src: draw(NODES), dst: draw(NODES), slots: 1 + draw(90) },
            };
            (0..60).map(one).collect()
        })
    }

    fn alone(config: Config) -> Vec<(u32, Vec<u64>)> {
        let mut allocator = Allocator::new(config).expect("right");
        let mut schedule = onepipe_arbiter::Schedule::new(NODES);
        let mut give = |demands: Vec<Demand>| {
            for demand in demands {
                match demand {
                    Demand::Forget(src) => allocator.forget(src),
                    // Some demands are from an endpoint to itself, which is rejected.
                    Demand::Want { src, dst, slots } => {
                        let _ = allocator.request(src, dst, slots);
                    }
                }
            }
            let batch = allocator.next_batch();
            schedule.fill(batch.grants());
            let busy = (0..NODES).map(|src| schedule.busy(src)).collect();
            (batch.granted(), busy)
        };
        demands().map(&mut give).collect()
    }

    #[test]
    fn threads_grant_the_same_as_one_allocator() {
        let mut machine = ArbiterConfig::new(ProcessId(NODES), Core::racks(NODES, NODES, 1), 1_000);
        machine.allocator.renew_after_batches = 2;
        let alone = alone(machine.allocator);
        for workers in 1..4 {
            let (ring_workers, mut rings) = connect_workers(&machine, workers).expect("right");
            let stop = AtomicBool::new(false);
            let together = std::thread::scope(|scope| {
                for mut ring_worker in ring_workers {
                    let stop = &stop;
                    scope.spawn(move || {
                        while !stop.load(Ordering::Acquire) {
                            if !ring_worker.turn().is_busy {
                                std::thread::yield_now();
                            }
                        }
                    });
                }
                let mut dispatcher = Dispatcher::new(&machine.allocator, workers).expect("right");
                let mut batches = Vec::new();
                let mut commands = demands().enumerate().flat_map(|(batch, demands)| {
                    let start = Command::Batch(Timeslot(batch as u64 * 64));
                    demands.into_iter().map(Command::Demand).chain([start])
                });
                while batches.len() < BUFFERS_PER_WORKER as usize {
                    while dispatcher.is_ready()
                        && rings.command_space() > 1
                        && let Some(command) = commands.next()
                    {
                        dispatcher.execute(command, &mut rings);
                    }
                    let result = rings.read(|rings, batch, _| {
                        dispatcher.on_batch_allocated(batch, rings);
                        batch.build_schedule();
                        let summary = batch.summary();
                        assert_eq!(summary.number, batches.len() as u64);
                        let busy = (0..NODES).map(|src| batch.schedule().busy(src)).collect();
                        (summary.granted, busy)
                    });
                    match result {
                        Some(result) => batches.push(result),
                        None => std::thread::yield_now(),
                    }
                }
                stop.store(true, Ordering::Release);
                batches
            });
            let other = (0..alone.len()).find(|at| alone[*at] != together[*at]);
            assert_eq!(other, None, "with {workers} workers");
        }
    }
}
