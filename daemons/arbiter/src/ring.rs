//! A worker's place in the ring of cores: where its words come from and go to.

use onepipe_arbiter::{
    AllocatedBatch, ArbiterConfig, ArbiterError, Dispatcher, Flow, Worker, WorkerCommand,
    WorkerQueues,
};
use rtrb::{Consumer, Producer, RingBuffer};

/// Flows that are taken at a time.
const CHUNK: usize = 512;
/// Batches of a worker that are on their way: one that is read and one that is written.
const BATCHES: usize = 2;

/// A worker, and the ends of the rings by which it is joined to the others and to the desk. Whoever
/// has it gives it turns, on a core of its own.
#[derive(Debug)]
pub struct RingWorker {
    worker: Worker,
    commands: Consumer<WorkerCommand>,
    /// New flows, handed on before the batch in which they count is ordered.
    fresh: Consumer<Flow>,
    flows_in: Consumer<Flow>,
    flows_out: Producer<Flow>,
    /// Batches that have been read, to be written again.
    read: Consumer<Box<AllocatedBatch>>,
    written: Producer<Box<AllocatedBatch>>,
    /// A batch has ended and is not written yet.
    has_unwritten: bool,
}

/// The other ends of a worker's rings.
#[derive(Debug)]
pub struct WorkerRing {
    commands: Producer<WorkerCommand>,
    fresh: Producer<Flow>,
    read: Producer<Box<AllocatedBatch>>,
    written: Consumer<Box<AllocatedBatch>>,
}

/// The posts of all workers, where a [`Dispatcher`]'s orders go.
#[derive(Debug)]
pub struct WorkerRings {
    rings: Vec<WorkerRing>,
    /// Whose batch is read next: the clerk hears of them in order.
    next: usize,
}

/// What a turn of a [`RingWorker`] has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepResult {
    /// It has done something.
    pub is_busy: bool,
    /// The next worker has the last flow of a batch now.
    pub has_forwarded: bool,
    /// A batch was written.
    pub has_written: bool,
}

/// Places for so many workers, one at least, and the posts from which they are ordered about.
///
/// # Errors
/// When a setting makes no sense.
pub fn worker_ring(
    config: &ArbiterConfig,
    workers: usize,
) -> Result<(Vec<RingWorker>, WorkerRings), ArbiterError> {
    let workers = workers.max(1);
    let pairs_max = config.allocator.pairs_max as usize;
    // All flows there are, and an end behind those of each batch under way.
    let (mut flows_out, flows_in): (Vec<_>, Vec<_>) =
        (0..workers).map(|_| RingBuffer::new(pairs_max + workers)).unzip();
    // What a worker reads from, the one before it writes to.
    flows_out.rotate_left(1);
    // Nobody is before the first.
    for flow in Worker::initial_flows() {
        flows_out[workers - 1].push(flow).expect("the ring is empty");
    }
    // Those of who has begun anew may be new when others take their places.
    let fresh_max = pairs_max * (1 + config.allocator.return_batches as usize);
    let mut worker_ring = Vec::with_capacity(workers);
    let mut rings = Vec::with_capacity(workers);
    for (at, (flows_in, flows_out)) in flows_in.into_iter().zip(flows_out).enumerate() {
        let (to_worker, commands) = RingBuffer::new(Dispatcher::COMMANDS_MAX);
        let (to_admit, fresh) = RingBuffer::new(fresh_max);
        let (mut to_write, read) = RingBuffer::new(BATCHES);
        let (written, to_read) = RingBuffer::new(BATCHES);
        for _ in 0..BATCHES {
            let batch = Box::new(AllocatedBatch::new(&config.allocator));
            to_write.push(batch).expect("there is room for all");
        }
        rings.push(WorkerRing {
            commands: to_worker,
            fresh: to_admit,
            read: to_write,
            written: to_read,
        });
        worker_ring.push(RingWorker {
            worker: Worker::new(config, at, workers)?,
            commands,
            fresh,
            flows_in,
            flows_out,
            read,
            written,
            has_unwritten: false,
        });
    }
    Ok((worker_ring, WorkerRings { rings, next: 0 }))
}

impl RingWorker {
    /// Does what can be done now. Never blocks.
    pub fn turn(&mut self) -> StepResult {
        let mut done = StepResult::default();
        if self.has_unwritten && !self.write(&mut done) {
            return done;
        }
        done.is_busy |= self.take_orders();
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

    /// Writes the batch that has ended, if one that was read is back.
    fn write(&mut self, done: &mut StepResult) -> bool {
        let Ok(mut batch) = self.read.pop() else { return false };
        self.worker.write(&mut batch);
        // Who has nothing else to do writes the schedule: what comes of it is the same.
        if self.commands.is_empty() {
            batch.build_schedule();
        }
        self.written.push(batch).expect("there are no more batches than places for them");
        self.has_unwritten = false;
        done.has_written = true;
        done.is_busy = true;
        true
    }

    /// Takes orders of the batch that is next, or open.
    fn take_orders(&mut self) -> bool {
        let Ok(chunk) = self.commands.read_chunk(self.commands.slots()) else { return false };
        let (first, second) = chunk.as_slices();
        let mut taken = self.worker.on_commands(first);
        taken += self.worker.on_commands(second);
        chunk.commit(taken);
        taken > 0
    }

    /// Takes flows of the batch before, some at a time, that the worker behind has something to do.
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

    /// Takes new flows, as many as it lacks or some of them.
    fn take_fresh(&mut self) {
        let chunk = self.fresh.read_chunk((self.worker.missing() as usize).min(CHUNK));
        let chunk = chunk.expect("they were handed on before the batch was ordered");
        let (first, second) = chunk.as_slices();
        self.worker.on_fresh(first);
        self.worker.on_fresh(second);
        chunk.commit_all();
    }

    /// Sends on what must wait for the next batch.
    fn forward(&mut self) {
        push_all(&mut self.flows_out, self.worker.forwarded());
        self.worker.clear_forwarded();
    }
}

/// # Panics
/// When there is no room.
fn push_all(ring: &mut Producer<Flow>, flows: &[Flow]) {
    let mut chunk = ring.write_chunk(flows.len()).expect("there is room for all flows there are");
    let (first, second) = chunk.as_mut_slices();
    let (own, rest) = flows.split_at(first.len());
    first.copy_from_slice(own);
    second.copy_from_slice(rest);
    chunk.commit_all();
}

impl WorkerRings {
    /// Orders that there is room for, whoever they are for.
    pub fn command_space(&self) -> usize {
        self.rings.iter().map(|post| post.commands.slots()).min().unwrap_or(0)
    }

    /// Whether a batch was given out, the next in order, that was not read.
    pub fn has_written(&self) -> bool {
        self.rings[self.next].written.slots() > 0
    }

    /// Reads the next batch, if there is one, and gives it back. `read` also hears whose it was.
    pub fn read<R>(
        &mut self,
        read: impl FnOnce(&mut Self, &mut AllocatedBatch, usize) -> R,
    ) -> Option<R> {
        let at = self.next;
        let mut batch = self.rings[at].written.pop().ok()?;
        let said = read(self, &mut batch, at);
        let read = &mut self.rings[at].read;
        read.push(batch).expect("there are no more batches than places for them");
        self.next = (at + 1) % self.rings.len();
        Some(said)
    }
}

impl WorkerQueues for WorkerRings {
    /// # Panics
    /// When there is no room.
    fn command(&mut self, worker: usize, command: WorkerCommand) {
        let commands = &mut self.rings[worker].commands;
        commands.push(command).expect("whoever commands looks for room first");
    }

    fn admit(&mut self, worker: usize, flows: &[Flow]) {
        push_all(&mut self.rings[worker].fresh, flows);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use onepipe_arbiter::{Allocator, Command, Config, Demand, Timeslot};
    use onepipe_base::ProcessId;

    use super::*;

    const NODES: u32 = 48;
    const BATCHES: u64 = 400;

    /// What somebody wants before each batch; always the same.
    fn demands() -> impl Iterator<Item = Vec<Demand>> {
        let mut state = 1u64;
        let mut draw = move |below: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040);
            (state >> 33) as u32 % below
        };
        (0..BATCHES).map(move |_| {
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
                    // To itself nobody may send, which is refused.
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
        let mut machine = ArbiterConfig::new(ProcessId(NODES), NODES, (NODES, 1), 1_000);
        machine.allocator.return_batches = 2;
        let alone = alone(machine.allocator);
        for workers in 1..4 {
            let (worker_ring, mut rings) = worker_ring(&machine, workers).expect("right");
            let stop = AtomicBool::new(false);
            let together = std::thread::scope(|scope| {
                for mut ring_worker in worker_ring {
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
                while batches.len() < BATCHES as usize {
                    while dispatcher.is_ready()
                        && rings.command_space() > 1
                        && let Some(run_commands) = commands.next()
                    {
                        dispatcher.execute(run_commands, &mut rings);
                    }
                    let said = rings.read(|rings, batch, _| {
                        dispatcher.on_batch_allocated(batch, rings);
                        batch.build_schedule();
                        let summary = batch.summary();
                        assert_eq!(summary.number, batches.len() as u64);
                        let busy = (0..NODES).map(|src| batch.schedule().busy(src)).collect();
                        (summary.granted, busy)
                    });
                    match said {
                        Some(said) => batches.push(said),
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
