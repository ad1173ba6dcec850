//! The thread that drives nodes: it gives each of them a turn after another, and rests once for
//! all. What one sends to the next is there when the next has its turn.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use onepipe::{EmbeddedPipe, Idleness, Rest};

/// A node that a thread drives.
pub(crate) trait Drive: Send {
    /// Does what there is to do. Never blocks. Returns what that means for idling, or why the node
    /// must end.
    fn turn(&mut self) -> Result<Idleness, Arc<str>>;
    /// Returns the pipe, to wait for.
    fn pipe(&mut self) -> &mut EmbeddedPipe;
    /// Fails what is open, and leaves the fabric. Blocks until the other processes have answered.
    fn end(self: Box<Self>, reason: Arc<str>);
}

/// Makes a node in the thread that will drive it. Returns none if that fails.
pub(crate) type Job = Box<dyn FnOnce() -> Option<Box<dyn Drive>> + Send>;

/// A thread that drives nodes. It ends with its last node, once this handle is dropped.
pub(crate) struct NodeThread(Sender<Job>);

impl NodeThread {
    pub fn start() -> io::Result<Self> {
        let (jobs, received) = channel();
        let thread = std::thread::Builder::new().name("log-node".into());
        thread.spawn(move || drive(&received))?;
        Ok(Self(jobs))
    }

    /// Adds a node. A thread that has nodes already, and nothing to do, finds it after 100 ms.
    pub fn add(&self, job: Job) {
        // The thread ends after this handle only, unless it panics: then the job is dropped, which
        // its maker finds out.
        let _ = self.0.send(job);
    }
}

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
    loop {
        let job = match members.is_empty() {
            true => jobs.recv().map_err(|_| TryRecvError::Disconnected),
            false => jobs.try_recv(),
        };
        match job {
            Ok(job) => {
                members.extend(job().map(Member));
                rest = Rest::new(members.len().max(1));
                continue;
            }
            Err(TryRecvError::Disconnected) if members.is_empty() => return,
            Err(_) => {}
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
            Ok(of_member) => {
                idleness = idleness.min(of_member);
                index += 1;
            }
            Err(reason) => end(members.swap_remove(index), reason),
        }
    }
    if !members.is_empty() {
        rest.rest(members, idleness);
    }
}

/// Ends a node in a thread of its own: it leaves once the others have answered it, which may be
/// nodes of this thread.
fn end(Member(node): Member, reason: Arc<str>) {
    let thread = std::thread::Builder::new().name("log-leave".into());
    if let Err(error) = thread.spawn(move || node.end(reason)) {
        // The node was dropped: its pipe has left, or given up.
        tracing::warn!(%error, "no thread for a node to leave in order");
    }
}
