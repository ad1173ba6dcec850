//! Threads that drive nodes of an application.
//!
//! A thread gives each of its nodes a turn after another, and idles once for all. What one sends to
//! the next is there when the next has its turn, so a transaction costs neither a wake-up nor a
//! core that polls for the barrier of a thread that has no core. So nodes share a thread unless
//! there are cores for more.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use onepipe::{EmbeddedPipe, Idleness, Rest};

/// A node that a thread drives.
pub trait Drive: Send {
    /// Does what there is to do. Never blocks. Returns what that means for idling.
    ///
    /// # Errors
    /// Why the node must end.
    fn turn(&mut self) -> Result<Idleness, Arc<str>>;
    /// Returns the pipe, to wait for.
    fn pipe(&mut self) -> &mut EmbeddedPipe;
    /// Fails what is open, and leaves the fabric. Blocks until the other processes have answered.
    fn end(self: Box<Self>, reason: Arc<str>);
}

/// Makes a node in the thread that will drive it. Returns none if that fails.
pub type Job = Box<dyn FnOnce() -> Option<Box<dyn Drive>> + Send>;

/// A thread that drives nodes. It ends with its last node, once this handle is dropped.
#[derive(Debug)]
pub struct NodeThread(Sender<Job>);

impl NodeThread {
    /// Starts a thread for nodes of this application, which is part of its name.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn start(application: &'static str) -> io::Result<Self> {
        let (jobs, received) = channel();
        let thread = std::thread::Builder::new().name(format!("{application}-node"));
        let mut nodes = Nodes { application, members: Vec::new(), rest: Rest::new(1) };
        thread.spawn(move || nodes.drive(&received))?;
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

/// The nodes of a thread.
struct Nodes {
    application: &'static str,
    members: Vec<Member>,
    rest: Rest,
}

impl Nodes {
    /// Drives all nodes until none is left and none can come.
    fn drive(&mut self, jobs: &Receiver<Job>) {
        loop {
            let job = match self.members.is_empty() {
                true => jobs.recv().map_err(|_| TryRecvError::Disconnected),
                false => jobs.try_recv(),
            };
            match job {
                Ok(job) => {
                    self.members.extend(job().map(Member));
                    self.rest = Rest::new(self.members.len().max(1));
                    continue;
                }
                Err(TryRecvError::Disconnected) if self.members.is_empty() => return,
                Err(_) => {}
            }
            self.turn();
        }
    }

    /// Gives each node a turn, then idles as all of them allow.
    fn turn(&mut self) {
        let mut idleness = Idleness::Waits;
        let mut index = 0;
        while let Some(member) = self.members.get_mut(index) {
            match member.0.turn() {
                Ok(of_member) => {
                    idleness = idleness.min(of_member);
                    index += 1;
                }
                Err(reason) => self.end(index, reason),
            }
        }
        if !self.members.is_empty() {
            self.rest.rest(&mut self.members, idleness);
        }
    }

    /// Ends a node in a thread of its own: it leaves once the others have answered it, which may be
    /// nodes of this thread.
    fn end(&mut self, index: usize, reason: Arc<str>) {
        let Member(node) = self.members.swap_remove(index);
        let thread = std::thread::Builder::new().name(format!("{}-leave", self.application));
        if let Err(error) = thread.spawn(move || node.end(reason)) {
            // The node was dropped: its pipe has left, or given up.
            tracing::warn!(%error, "no thread for a node to leave in order");
        }
    }
}
