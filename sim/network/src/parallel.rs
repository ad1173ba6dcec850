//! Runs the nodes of a network on several threads.
//!
//! A round of lookahead windows has three stages, with a barrier after each: nodes of the first
//! colour receive what the others have sent; they run; the nodes of the second colour receive and
//! run. No node of a stage sends to another one of the same stage, so it does not matter which
//! thread runs which node, nor when. Each thread first runs its own nodes, hosts with the switches
//! above them, whose state and frames are in the cache of its core; then it takes over nodes that
//! other threads have not begun.
//!
//! # Invariants
//! - A node receives the frames of its neighbours in the order of the neighbours, as if they had
//!   run one after the other, and the frames of one neighbour in the order in which they were sent.
//! - Observations of the application at other nodes are handled between two rounds, in the order of
//!   these nodes.
//! - The trace has the events of each window together, in the order of the nodes.

use std::any::Any;
use std::cmp::Reverse;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, MutexGuard};
use std::thread;

use onepipe_base::Machine;
use onepipe_sim_engine::{Instant, Trace};

use crate::lookahead::Lookahead;
use crate::part::{Departure, Part, Shared};
use crate::run::{Run, Scratch};
use crate::{Divide, DividedApplication, Network};

/// Stages of a round.
const STAGES: usize = 3;
/// The task of appending events to the trace, instead of the position of a node.
const APPEND_TRACES: usize = usize::MAX;

impl<M: Machine + Send, A: Divide<M>> Network<M, A> {
    /// Lets the network run on as many threads as [`crate::Config::threads`] says.
    pub fn allow_threads(&mut self) {
        if self.shared.config.threads.is_some() {
            self.run_divided = Some(Self::run_divided_until);
        }
    }

    /// Handles all events up to and including `limit` on several threads, or in order if the
    /// network or the application cannot be divided.
    fn run_divided_until(&mut self, limit: Instant) {
        let Some(mut lookahead) = self.lookahead.take() else { return self.run_in_order(limit) };
        let mut is_divided = lookahead.first_colour().is_some();
        while is_divided {
            let fault_at = lookahead.faults.earliest().filter(|fault_at| *fault_at <= limit);
            let Some(mut applications) = self.application.divide() else {
                is_divided = false;
                break;
            };
            let end = fault_at.unwrap_or(limit.after(1));
            let outcome = self.run_rounds(&lookahead, &mut applications, end);
            self.application.unite(applications);
            if let Err(panic) = outcome {
                resume_unwind(panic);
            }
            let Some(fault_at) = fault_at else { break };
            self.run_faults(&mut lookahead, fault_at);
        }
        self.lookahead = Some(lookahead);
        if !is_divided {
            self.run_in_order(limit);
        }
    }

    /// Runs rounds of windows until no event before `end` is left.
    fn run_rounds(
        &mut self,
        lookahead: &Lookahead,
        applications: &mut [A::Part],
        end: Instant,
    ) -> Result<(), Box<dyn Any + Send>> {
        let threads = self.shared.config.threads.map_or(1, usize::from);
        let cells = self.parts.iter_mut().zip(applications);
        let cells = cells.map(|(part, application)| {
            Mutex::new(Cell { part, application, trace: Trace::recording() })
        });
        let rounds = Rounds {
            lookahead,
            shared: &self.shared,
            end,
            first_colour: lookahead.first_colour().expect("checked by the caller"),
            cells: cells.collect(),
            mail: Mail::new(lookahead),
            trace: Mutex::new(&mut self.trace),
            barrier: Barrier::new(threads),
            stages: Stages::new(lookahead, &self.shared, threads),
            first: AtomicU64::new(u64::MAX),
            steps_left: AtomicU64::new(self.scratch.steps_left),
            steps_taken: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            panic: Mutex::new(None),
        };
        let frame_len_max = self.shared.config.frame_len_max;
        let work = |thread| {
            let mut scratch = Scratch::new(frame_len_max, 0);
            rounds.work(thread, &mut scratch);
            scratch.stats
        };
        let stats = thread::scope(|scope| {
            let spawn = |thread| scope.spawn(move || work(thread));
            let others: Vec<_> = (1..threads).map(spawn).collect();
            let own = work(0);
            let others = others.into_iter().map(|thread| thread.join());
            let others = others.map(|stats| stats.expect("a thread catches panics of machines"));
            others.chain([own]).collect::<Vec<_>>()
        });
        rounds.append_traces(0..lookahead.len());
        self.scratch.steps_left = rounds.steps_left.load(Ordering::Relaxed);
        let panic = rounds.panic.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        stats.iter().for_each(|stats| self.scratch.stats.add(stats));
        panic.map_or(Ok(()), Err)
    }
}

/// A node with its application, and its events since the last round.
struct Cell<'a, M, P> {
    part: &'a mut Part<M>,
    application: &'a mut P,
    trace: Trace,
}

/// What nodes send to each other.
struct Mail<O> {
    /// Frames of each pair of neighbours, by sending node.
    frames: Vec<Mutex<Vec<Departure>>>,
    /// The index in `frames` of the first pair of each sending node.
    first_pair: Vec<usize>,
    /// The pairs of each receiving node, in the order in which their senders run.
    incoming: Vec<Vec<usize>>,
    /// Observations that concern each node, with the positions of the nodes that have made them.
    observations: Vec<Mutex<Vec<(usize, O)>>>,
}

impl<O> Mail<O> {
    fn new(lookahead: &Lookahead) -> Self {
        let nodes = lookahead.len();
        let (mut frames, mut first_pair) = (Vec::new(), Vec::new());
        for node in 0..nodes {
            first_pair.push(frames.len());
            frames.extend(lookahead.neighbours(node).iter().map(|_| Mutex::default()));
        }
        let mut incoming = vec![Vec::new(); nodes];
        for &sender in lookahead.order() {
            let pairs = first_pair[sender as usize]..;
            for (pair, to) in pairs.zip(lookahead.neighbours(sender as usize)) {
                incoming[*to as usize].push(pair);
            }
        }
        let observations = (0..nodes).map(|_| Mutex::default()).collect();
        Self { frames, first_pair, incoming, observations }
    }
}

/// The rounds of a run, shared by all threads.
struct Rounds<'a, M: Machine, P: DividedApplication<M>> {
    lookahead: &'a Lookahead,
    shared: &'a Shared,
    end: Instant,
    /// Number of nodes of the first colour.
    first_colour: usize,
    /// Each node. A lock is free when it is taken, except between a node and the thread that
    /// appends its events to the trace.
    cells: Vec<Mutex<Cell<'a, M, P>>>,
    mail: Mail<P::Observation>,
    trace: Mutex<&'a mut Trace>,
    barrier: Barrier,
    stages: Stages,
    /// Lower bound of the next event of any node, in ps.
    first: AtomicU64,
    /// Remaining steps, and those taken in this round.
    steps_left: AtomicU64,
    steps_taken: AtomicU64,
    /// Whether a machine or the application has panicked.
    has_failed: AtomicBool,
    /// Whether all threads are to stop. It changes only before the barrier of the first stage, so
    /// that all threads see the same value after it.
    is_over: AtomicBool,
    /// The first panic.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl<M: Machine, P: DividedApplication<M>> Rounds<'_, M, P> {
    /// Works until no event before the end is left.
    fn work(&self, thread: usize, scratch: &mut Scratch) {
        let nodes = self.lookahead.len();
        loop {
            self.stage(0, thread, |position| self.prepare(position));
            let start = Instant::from_ps(self.first.load(Ordering::Relaxed));
            if start >= self.end || self.is_over.load(Ordering::Relaxed) {
                return;
            }
            // The events of one colour are appended to the trace while the other one runs.
            let is_last = self.stage(1, thread, |position| match position {
                APPEND_TRACES => self.append_traces(self.first_colour..nodes),
                position => self.run(position, start, scratch),
            });
            if is_last {
                self.first.store(u64::MAX, Ordering::Relaxed);
            }
            let is_last = self.stage(2, thread, |position| match position {
                APPEND_TRACES => self.append_traces(0..self.first_colour),
                position => {
                    self.receive(position);
                    self.run(position, start, scratch);
                }
            });
            if is_last {
                let taken = self.steps_taken.swap(0, Ordering::Relaxed);
                let left = self.steps_left.load(Ordering::Relaxed).saturating_sub(taken);
                self.steps_left.store(left, Ordering::Relaxed);
            }
        }
    }

    /// Does the tasks of a stage, and waits for all threads. Returns true on one of them. After a
    /// panic the remaining tasks are skipped.
    fn stage(&self, stage: usize, thread: usize, mut act: impl FnMut(usize)) -> bool {
        let done = catch_unwind(AssertUnwindSafe(|| {
            while let Some(task) = self.stages.next(stage, thread)
                && !self.has_failed.load(Ordering::Relaxed)
            {
                act(task);
            }
        }));
        if let Err(panic) = done {
            self.has_failed.store(true, Ordering::Relaxed);
            lock(&self.panic).get_or_insert(panic);
        }
        if stage == 0 && self.has_failed.load(Ordering::Relaxed) {
            self.is_over.store(true, Ordering::Relaxed);
        }
        let is_last = self.barrier.wait().is_leader();
        if is_last {
            // No thread takes a task of this stage before two further barriers.
            self.stages.restart(stage);
        }
        is_last
    }

    /// Passes frames and observations to a node between two rounds, and notes its next event.
    fn prepare(&self, position: usize) {
        let node = self.lookahead.order()[position] as usize;
        if position < self.first_colour {
            self.receive(position);
        }
        let mut cell = lock(&self.cells[node]);
        let mut observations = lock(&self.mail.observations[node]);
        // Stable: the observations of one node stay in their order.
        observations.sort_by_key(|(from, _)| *from);
        for (_, observation) in observations.drain(..) {
            cell.application.handle_observation(observation);
        }
        if let Some(earliest) = cell.part.queue.earliest() {
            self.first.fetch_min(earliest.as_ps(), Ordering::Relaxed);
        }
    }

    /// Passes frames to a node in the order of their senders.
    fn receive(&self, position: usize) {
        let node = self.lookahead.order()[position] as usize;
        let mut cell = lock(&self.cells[node]);
        for &pair in &self.mail.incoming[node] {
            cell.part.receive(&mut lock(&self.mail.frames[pair]));
        }
    }

    /// Runs a node for one window.
    fn run(&self, position: usize, first: Instant, scratch: &mut Scratch) {
        let node = self.lookahead.order()[position] as usize;
        let window_end = self.lookahead.window(node, first, self.end);
        if window_end <= first {
            return;
        }
        let mut cell = lock(&self.cells[node]);
        let Cell { part, application, trace } = &mut *cell;
        let (part, application) = (&mut **part, &mut **application);
        let steps = self.steps_left.load(Ordering::Relaxed);
        scratch.steps_left = steps;
        let mut run = Run { part, shared: self.shared, application, trace, scratch };
        run.run_until(Instant::from_ps(window_end.as_ps() - 1));
        self.steps_taken.fetch_add(steps - scratch.steps_left, Ordering::Relaxed);
        for (index, frames) in cell.part.outboxes.iter_mut().enumerate() {
            if !frames.is_empty() {
                let mut mail = lock(&self.mail.frames[self.mail.first_pair[node] + index]);
                // The receiver has emptied it.
                std::mem::swap(&mut *mail, frames);
            }
        }
        for (to, observation) in cell.application.take_observations() {
            lock(&self.mail.observations[to.index()]).push((position, observation));
        }
    }

    /// Appends the events of nodes to the trace, in the order in which they run.
    fn append_traces(&self, positions: std::ops::Range<usize>) {
        let mut trace = lock(&self.trace);
        for &node in &self.lookahead.order()[positions] {
            trace.append(&mut lock(&self.cells[node as usize]).trace);
        }
    }
}

/// The tasks of each thread in each stage.
struct Stages {
    /// By stage and thread, the tasks: positions of nodes, and [`APPEND_TRACES`].
    tasks: [Vec<Tasks>; STAGES],
}

/// Tasks of one thread, on a cache line of their own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Tasks {
    tasks: Vec<usize>,
    /// Index of the next task that no thread has taken.
    next: AtomicUsize,
}

impl Stages {
    fn new(lookahead: &Lookahead, shared: &Shared, threads: usize) -> Self {
        let mut tasks = [(); STAGES].map(|()| (0..threads).map(|_| Tasks::default()).collect());
        let owners = owners(lookahead, shared, threads);
        let first_colour = lookahead.first_colour().unwrap_or(0);
        for (position, &node) in lookahead.order().iter().enumerate() {
            let owner = owners[node as usize];
            let stage = if position < first_colour { 1 } else { 2 };
            for stage in [0, stage] {
                let tasks: &mut Vec<Tasks> = &mut tasks[stage];
                tasks[owner].tasks.push(position);
            }
        }
        // The last thread has the fewest nodes if they cannot be divided evenly.
        tasks[1..].iter_mut().for_each(|tasks| tasks[threads - 1].tasks.push(APPEND_TRACES));
        Self { tasks }
    }

    /// Returns the next task for a thread: its own, or one that another thread has not taken.
    fn next(&self, stage: usize, thread: usize) -> Option<usize> {
        let tasks = &self.tasks[stage];
        let (others, own) = tasks.split_at(thread);
        own.iter().chain(others).find_map(|tasks| {
            let next = tasks.next.fetch_add(1, Ordering::Relaxed);
            tasks.tasks.get(next).copied()
        })
    }

    /// Makes the tasks of a stage available again.
    fn restart(&self, stage: usize) {
        self.tasks[stage].iter().for_each(|tasks| tasks.next.store(0, Ordering::Relaxed));
    }
}

/// Divides the nodes among threads: equally many hosts each, and every switch to the thread with
/// most of its neighbours, the one with fewer nodes if there are several.
fn owners(lookahead: &Lookahead, shared: &Shared, threads: usize) -> Vec<usize> {
    let nodes = lookahead.len();
    let hosts = shared.hosts;
    let mut owners: Vec<Option<usize>> = vec![None; nodes];
    let mut owned = vec![0; threads];
    for (host, owner) in owners.iter_mut().take(hosts).enumerate() {
        let thread = host * threads / hosts;
        *owner = Some(thread);
        owned[thread] += 1;
    }
    // Switches are counted from the hosts upwards.
    for switch in hosts..nodes {
        let mut near = vec![0; threads];
        for &neighbour in lookahead.neighbours(switch) {
            if let Some(thread) = owners[neighbour as usize] {
                near[thread] += 1;
            }
        }
        let best = (0..threads).max_by_key(|&thread| (near[thread], Reverse(owned[thread])));
        let thread = best.unwrap_or(0);
        owners[switch] = Some(thread);
        owned[thread] += 1;
    }
    owners.into_iter().map(|owner| owner.unwrap_or(0)).collect()
}

/// Locks a mutex. After a panic under it the run ends, so its content does not matter.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
