//! Threads that drive nodes.
//!
//! A thread gives each of its nodes a turn after another. What one sends to the next is there when
//! the next has its turn, so a transaction costs neither a wake-up nor a core that polls for the
//! barrier of a thread that has no core. So nodes share a thread unless there are cores for more.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use onepipe::{EmbeddedPipe, Idleness, Rest};

/// What a node's turn has left to do.
pub(crate) enum Turn {
    /// What the turn means for idling.
    Idle(Idleness),
    /// The node must end, for this reason.
    Ended(Arc<str>),
}

/// A node that a thread drives.
pub(crate) trait Drive: Send {
    /// Does what there is to do. Never blocks.
    fn turn(&mut self) -> Turn;
    /// Returns the pipe, to wait for.
    fn pipe(&mut self) -> &mut EmbeddedPipe;
    /// Fails what is open, and leaves the fabric. Blocks until the other processes have answered.
    fn end(self: Box<Self>, reason: Arc<str>);
}

/// Makes a node in the thread that will drive it. Returns none if that fails.
pub(crate) type Job = Box<dyn FnOnce() -> Option<Box<dyn Drive>> + Send>;

/// A thread that drives nodes. It ends with its last node, once this handle is dropped.
pub(crate) struct NodeThread {
    jobs: Sender<Job>,
}

impl NodeThread {
    /// Starts a thread.
    pub fn start() -> io::Result<Self> {
        let (jobs, received) = channel();
        let thread = std::thread::Builder::new().name("kv-node".into());
        thread.spawn(move || drive(&received))?;
        Ok(Self { jobs })
    }

    /// Adds a node. A thread that has nodes already, and nothing to do, finds it after 100 ms.
    pub fn add(&self, job: Job) {
        // The thread ends only after this handle, unless it panics: then the job is dropped, which
        // its maker finds out.
        let _ = self.jobs.send(job);
    }
}

/// A node of a thread.
struct Member(Box<dyn Drive>);

impl AsMut<EmbeddedPipe> for Member {
    fn as_mut(&mut self) -> &mut EmbeddedPipe {
        self.0.pipe()
    }
}

/// Drives all nodes until none is left and none can come.
fn drive(jobs: &Receiver<Job>) {
    let mut members: Vec<Member> = Vec::new();
    let mut rest = Rest::new(1);
    let mut is_open = true;
    while is_open || !members.is_empty() {
        if members.is_empty() {
            match jobs.recv() {
                Ok(job) => members.extend(job().map(Member)),
                Err(_) => is_open = false,
            }
            continue;
        }
        while is_open {
            match jobs.try_recv() {
                Ok(job) => {
                    members.extend(job().map(Member));
                    rest = Rest::new(members.len());
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => is_open = false,
            }
        }
        turn(&mut members, &mut rest);
    }
}

/// Gives each node a turn, then idles as all of them allow.
fn turn(members: &mut Vec<Member>, rest: &mut Rest) {
    let mut idleness = Idleness::Waits;
    let mut index = 0;
    while let Some(member) = members.get_mut(index) {
        match member.0.turn() {
            Turn::Idle(of_member) => {
                idleness = idleness.min(of_member);
                index += 1;
            }
            Turn::Ended(reason) => end(members.swap_remove(index), reason),
        }
    }
    rest.rest(members, idleness);
}

/// Ends a node in a thread of its own: it leaves once the others have answered it, which may be
/// nodes of this thread.
fn end(Member(node): Member, reason: Arc<str>) {
    let thread = std::thread::Builder::new().name("kv-leave".into());
    if let Err(error) = thread.spawn(move || node.end(reason)) {
        // The node was dropped: its pipe has left, or given up.
        tracing::warn!(%error, "no thread for a node to leave in order");
    }
}
