//! A worker's place in the ring of cores: where its words come from and go to.

use onepipe_arbiter::{Allocated, ArbiterConfig, ArbiterError, Clerk, Flow, Hands, Order, Worker};
use rtrb::{Consumer, Producer, RingBuffer};

/// Flows that are taken at a time.
const CHUNK: usize = 512;
/// Batches of a worker that are on their way: one that is read and one that is written.
const BATCHES: usize = 2;

/// A worker, and the ends of the rings by which it is joined to the others and to the desk. Whoever
/// has it gives it turns, on a core of its own.
#[derive(Debug)]
pub struct Place {
    worker: Worker,
    orders: Consumer<Order>,
    /// New flows, handed on before the batch in which they count is ordered.
    fresh: Consumer<Flow>,
    flows_in: Consumer<Flow>,
    flows_out: Producer<Flow>,
    /// Batches that have been read, to be written again.
    read: Consumer<Box<Allocated>>,
    written: Producer<Box<Allocated>>,
    /// A batch has ended and is not written yet.
    is_behind: bool,
}

/// The other ends of a worker's rings.
#[derive(Debug)]
pub struct Post {
    orders: Producer<Order>,
    fresh: Producer<Flow>,
    read: Producer<Box<Allocated>>,
    written: Consumer<Box<Allocated>>,
}

/// The posts of all workers, where a [`Clerk`]'s orders go.
#[derive(Debug)]
pub struct Posts {
    posts: Vec<Post>,
    /// Whose batch is read next: the clerk hears of them in order.
    next: usize,
}

/// What a turn of a [`Place`] has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// It has done something.
    pub is_busy: bool,
    /// The next worker has the last flow of a batch now.
    pub has_handed_on: bool,
    /// A batch was written.
    pub has_written: bool,
}

/// Places for so many workers, one at least, and the posts from which they are ordered about.
///
/// # Errors
/// When a setting makes no sense.
pub fn places(config: &ArbiterConfig, workers: usize) -> Result<(Vec<Place>, Posts), ArbiterError> {
    let workers = workers.max(1);
    let pairs_max = config.allocator.pairs_max as usize;
    // All flows there are, and an end behind those of each batch under way.
    let (mut flows_out, flows_in): (Vec<_>, Vec<_>) =
        (0..workers).map(|_| RingBuffer::new(pairs_max + workers)).unzip();
    // What a worker reads from, the one before it writes to.
    flows_out.rotate_left(1);
    // Nobody is before the first.
    for flow in Worker::first_flows() {
        flows_out[workers - 1].push(flow).expect("the ring is empty");
    }
    // Those of who has begun anew may be new when others take their places.
    let fresh_max = pairs_max * (1 + config.allocator.return_batches as usize);
    let mut places = Vec::with_capacity(workers);
    let mut posts = Vec::with_capacity(workers);
    for (at, (flows_in, flows_out)) in flows_in.into_iter().zip(flows_out).enumerate() {
        let (to_worker, orders) = RingBuffer::new(Clerk::ORDERS_MAX);
        let (to_admit, fresh) = RingBuffer::new(fresh_max);
        let (mut to_write, read) = RingBuffer::new(BATCHES);
        let (written, to_read) = RingBuffer::new(BATCHES);
        for _ in 0..BATCHES {
            let batch = Box::new(Allocated::new(&config.allocator));
            to_write.push(batch).expect("there is room for all");
        }
        posts.push(Post { orders: to_worker, fresh: to_admit, read: to_write, written: to_read });
        places.push(Place {
            worker: Worker::new(config, at, workers)?,
            orders,
            fresh,
            flows_in,
            flows_out,
            read,
            written,
            is_behind: false,
        });
    }
    Ok((places, Posts { posts, next: 0 }))
}

impl Place {
    /// Does what can be done now. Never blocks.
    pub fn turn(&mut self) -> Done {
        let mut done = Done::default();
        if self.is_behind && !self.write(&mut done) {
            return done;
        }
        done.is_busy |= self.take_orders();
        if self.worker.is_open() {
            done.is_busy |= self.take_flows();
            while self.worker.lacks() > 0 {
                self.take_fresh();
                self.hand_on();
                done.is_busy = true;
            }
            if self.worker.is_whole() {
                self.worker.finish();
                self.hand_on();
                self.is_behind = true;
                done.has_handed_on = true;
                done.is_busy = true;
            }
        }
        if self.is_behind {
            self.write(&mut done);
        }
        done
    }

    /// Writes the batch that has ended, if one that was read is back.
    fn write(&mut self, done: &mut Done) -> bool {
        let Ok(mut batch) = self.read.pop() else { return false };
        self.worker.write(&mut batch);
        // Who has nothing else to do writes the schedule: what comes of it is the same.
        if self.orders.is_empty() {
            batch.spread();
        }
        self.written.push(batch).expect("there are no more batches than places for them");
        self.is_behind = false;
        done.has_written = true;
        done.is_busy = true;
        true
    }

    /// Takes orders of the batch that is next, or open.
    fn take_orders(&mut self) -> bool {
        let Ok(chunk) = self.orders.read_chunk(self.orders.slots()) else { return false };
        let (first, second) = chunk.as_slices();
        let mut taken = self.worker.on_orders(first);
        taken += self.worker.on_orders(second);
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

    /// Takes new flows, as many as it lacks or some of them.
    fn take_fresh(&mut self) {
        let chunk = self.fresh.read_chunk((self.worker.lacks() as usize).min(CHUNK));
        let chunk = chunk.expect("they were handed on before the batch was ordered");
        let (first, second) = chunk.as_slices();
        self.worker.on_fresh(first);
        self.worker.on_fresh(second);
        chunk.commit_all();
    }

    /// Sends on what must wait for the next batch.
    fn hand_on(&mut self) {
        push_all(&mut self.flows_out, self.worker.onward());
        self.worker.clear_onward();
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

impl Posts {
    /// Orders that there is room for, whoever they are for.
    pub fn room(&self) -> usize {
        self.posts.iter().map(|post| post.orders.slots()).min().unwrap_or(0)
    }

    /// Whether a batch was given out, the next in order, that was not read.
    pub fn has_written(&self) -> bool {
        self.posts[self.next].written.slots() > 0
    }

    /// Reads the next batch, if there is one, and gives it back. `read` also hears whose it was.
    pub fn read<R>(
        &mut self,
        read: impl FnOnce(&mut Self, &mut Allocated, usize) -> R,
    ) -> Option<R> {
        let at = self.next;
        let mut batch = self.posts[at].written.pop().ok()?;
        let said = read(self, &mut batch, at);
        let read = &mut self.posts[at].read;
        read.push(batch).expect("there are no more batches than places for them");
        self.next = (at + 1) % self.posts.len();
        Some(said)
    }
}

impl Hands for Posts {
    /// # Panics
    /// When there is no room.
    fn order(&mut self, worker: usize, order: Order) {
        let orders = &mut self.posts[worker].orders;
        orders.push(order).expect("whoever commands looks for room first");
    }

    fn admit(&mut self, worker: usize, flows: &[Flow]) {
        push_all(&mut self.posts[worker].fresh, flows);
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
            (batch.given(), busy)
        };
        demands().map(&mut give).collect()
    }

    #[test]
    fn threads_give_out_what_one_does() {
        let mut machine = ArbiterConfig::new(ProcessId(NODES), NODES, (NODES, 1), 1_000);
        machine.allocator.return_batches = 2;
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
                let mut clerk = Clerk::new(&machine.allocator, workers).expect("right");
                let mut batches = Vec::new();
                let mut commands = demands().enumerate().flat_map(|(batch, demands)| {
                    let start = Command::Batch(Timeslot(batch as u64 * 64));
                    demands.into_iter().map(Command::Demand).chain([start])
                });
                while batches.len() < BATCHES as usize {
                    while clerk.is_ready()
                        && posts.room() > 1
                        && let Some(command) = commands.next()
                    {
                        clerk.obey(command, &mut posts);
                    }
                    let said = posts.read(|posts, batch, _| {
                        clerk.on_allocated(batch, posts);
                        batch.spread();
                        let given = batch.given();
                        assert_eq!(given.number, batches.len() as u64);
                        let busy = (0..NODES).map(|src| batch.schedule().busy(src)).collect();
                        (given.given, busy)
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
