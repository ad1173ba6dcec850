//! A worker's place in the ring of cores: where its words come from and go to.

use onepipe_arbiter::{
    Allocated, ArbiterConfig, ArbiterError, Command, Flow, Ledger, Turn, Worker,
};
use rtrb::{Consumer, Producer, RingBuffer};

/// Flows that are taken from the worker before at a time.
const CHUNK: usize = 512;
/// Batches of a worker that are on their way: one that is read and one that is written.
const BATCHES: usize = 2;

/// A worker, and the ends of the rings by which it is joined to the others and to the desk. Whoever
/// has it gives it turns, on a core of its own.
#[derive(Debug)]
pub struct Place {
    worker: Worker,
    commands: Consumer<Command>,
    flows_in: Consumer<Flow>,
    flows_out: Producer<Flow>,
    ledger_in: Consumer<Ledger>,
    ledger_out: Producer<Ledger>,
    /// Batches that have been read, to be written again.
    read: Consumer<Box<Allocated>>,
    written: Producer<Box<Allocated>>,
    /// A batch has ended and is not written yet.
    is_behind: bool,
}

/// The other ends of a worker's rings.
#[derive(Debug)]
pub struct Post {
    commands: Producer<Command>,
    read: Producer<Box<Allocated>>,
    written: Consumer<Box<Allocated>>,
}

/// What a turn of a [`Place`] has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// It has done something.
    pub is_busy: bool,
    /// The next worker has the ledger now.
    pub has_handed_on: bool,
    /// A batch was written.
    pub has_written: bool,
}

/// Places for so many workers, one at least, and the posts from which they are commanded.
///
/// # Errors
/// When a setting makes no sense.
pub fn places(
    config: &ArbiterConfig,
    workers: usize,
) -> Result<(Vec<Place>, Vec<Post>), ArbiterError> {
    let workers = workers.max(1);
    // All flows there are, and an end behind those of each batch under way.
    let flows_max = config.allocator.pairs_max as usize + workers;
    let (mut flows_out, flows_in): (Vec<_>, Vec<_>) =
        (0..workers).map(|_| RingBuffer::new(flows_max)).unzip();
    let (mut ledger_out, ledger_in): (Vec<_>, Vec<_>) =
        (0..workers).map(|_| RingBuffer::new(1)).unzip();
    // What a worker reads from, the one before it writes to.
    flows_out.rotate_left(1);
    ledger_out.rotate_left(1);
    // Nobody is before the first.
    for flow in Worker::first_flows() {
        flows_out[workers - 1].push(flow).expect("the ring is empty");
    }
    let ledger = Ledger::new(&config.allocator)?;
    ledger_out[workers - 1].push(ledger).expect("the ring is empty");
    let mut places = Vec::with_capacity(workers);
    let mut posts = Vec::with_capacity(workers);
    let ins = flows_in.into_iter().zip(ledger_in);
    let outs = flows_out.into_iter().zip(ledger_out);
    for (at, ((flows_in, ledger_in), (flows_out, ledger_out))) in ins.zip(outs).enumerate() {
        let (to_worker, commands) = RingBuffer::new(Turn::COMMANDS_MAX);
        let (mut to_write, read) = RingBuffer::new(BATCHES);
        let (written, to_read) = RingBuffer::new(BATCHES);
        for _ in 0..BATCHES {
            let batch = Box::new(Allocated::new(config.allocator.nodes));
            to_write.push(batch).expect("there is room for all");
        }
        posts.push(Post { commands: to_worker, read: to_write, written: to_read });
        places.push(Place {
            worker: Worker::new(config, at, workers)?,
            commands,
            flows_in,
            flows_out,
            ledger_in,
            ledger_out,
            read,
            written,
            is_behind: false,
        });
    }
    Ok((places, posts))
}

impl Place {
    /// Does what can be done now. Never blocks.
    pub fn turn(&mut self) -> Done {
        let mut done = Done::default();
        if self.is_behind {
            let Ok(mut batch) = self.read.pop() else { return done };
            self.worker.write(&mut batch);
            self.written.push(batch).expect("there are no more batches than places for them");
            self.is_behind = false;
            done.has_written = true;
            done.is_busy = true;
        }
        if !self.worker.is_open() {
            done.is_busy |= self.take_commands();
        }
        if self.worker.is_open() {
            done.is_busy |= self.take_flows();
            if self.worker.has_all()
                && let Ok(mut ledger) = self.ledger_in.pop()
            {
                self.worker.on_ledger(&mut ledger);
                let is_taken = self.ledger_out.push(ledger).is_ok();
                assert!(is_taken, "there is one ledger, and room for it everywhere");
                self.hand_on();
                self.is_behind = true;
                done.has_handed_on = true;
                done.is_busy = true;
            }
        }
        done
    }

    /// Takes commands until the batch is open.
    fn take_commands(&mut self) -> bool {
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
        self.hand_on();
        taken > 0
    }

    /// Sends on what must wait for the next batch.
    fn hand_on(&mut self) {
        let flows = self.worker.onward();
        let chunk = self
            .flows_out
            .write_chunk_uninit(flows.len())
            .expect("there are no more flows than the ring has room for");
        let _ = chunk.fill_from_iter(flows.iter().copied());
        self.worker.clear_onward();
    }
}

impl Post {
    /// Commands that there is room for.
    pub fn room(&self) -> usize {
        self.commands.slots()
    }

    /// Commands the worker.
    ///
    /// # Panics
    /// When there is no room.
    pub fn command(&mut self, command: Command) {
        self.commands.push(command).expect("whoever commands looks for room first");
    }

    /// Commands the worker, all at once.
    ///
    /// # Panics
    /// When there is no room for so many.
    pub fn command_all(&mut self, commands: impl ExactSizeIterator<Item = Command>) {
        let room = self.commands.write_chunk_uninit(commands.len());
        let room = room.expect("whoever commands looks for room first");
        let _ = room.fill_from_iter(commands);
    }

    /// Whether the worker has given out a batch that was not read.
    pub fn has_written(&self) -> bool {
        self.written.slots() > 0
    }

    /// Reads the next batch of this worker, if there is one.
    pub fn read<R>(&mut self, read: impl FnOnce(&Allocated) -> R) -> Option<R> {
        let batch = self.written.pop().ok()?;
        let said = read(&batch);
        self.read.push(batch).expect("there are no more batches than places for them");
        Some(said)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use onepipe_arbiter::{Allocator, Config, Demand, Timeslot};
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

    fn alone(config: Config) -> Vec<(u32, u64, Vec<u64>)> {
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
            (batch.given(), allocator.wanted(), busy)
        };
        demands().map(&mut give).collect()
    }

    #[test]
    fn threads_give_out_what_one_does() {
        let machine = ArbiterConfig::new(ProcessId(NODES), NODES, (NODES, 1), 1_000);
        let alone = alone(machine.allocator);
        for workers in 1..4 {
            let (places, mut posts) = places(&machine, workers).expect("right");
            let stop = AtomicBool::new(false);
            let together = std::thread::scope(|scope| {
                for mut place in places {
                    let stop = &stop;
                    scope.spawn(move || {
                        while !stop.load(Ordering::Acquire) {
                            if !place.turn().is_busy {
                                std::thread::yield_now();
                            }
                        }
                    });
                }
                let (mut turn, mut reads) = (Turn::new(workers), Turn::new(workers));
                let mut batches = Vec::new();
                let mut commands = demands().enumerate().flat_map(|(batch, demands)| {
                    let start = Command::Batch(Timeslot(batch as u64 * 64));
                    demands.into_iter().map(Command::Demand).chain([start])
                });
                while batches.len() < BATCHES as usize {
                    while posts.iter().all(|post| post.room() > 0)
                        && let Some(command) = commands.next()
                    {
                        turn.of(&command).for_each(|at| posts[at].command(command));
                    }
                    let said = posts[reads.next()].read(|batch| {
                        let given = batch.given();
                        assert_eq!(given.number, batches.len() as u64);
                        let busy = (0..NODES).map(|src| batch.schedule().busy(src)).collect();
                        (given.given, given.wanted, busy)
                    });
                    match said {
                        Some(said) => {
                            batches.push(said);
                            reads.advance();
                        }
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
