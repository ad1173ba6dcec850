//! Threads that execute commands.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// A job of a worker.
type Job = Box<dyn FnOnce() + Send>;

/// A pool of threads with one queue. The queue is as long as the limits of all connections allow.
pub struct Workers {
    /// `None` once the pool stops.
    jobs: Option<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts threads.
    ///
    /// # Errors
    /// If the system has no thread left.
    pub fn start(count: usize) -> io::Result<Workers> {
        let (jobs, queue) = channel::<Job>();
        let queue = Arc::new(Mutex::new(queue));
        let mut workers = Workers { jobs: Some(jobs), threads: Vec::new() };
        for _ in 0..count {
            let queue = Arc::clone(&queue);
            let thread = thread::Builder::new().name("block-worker".into());
            workers.threads.push(thread.spawn(move || work(&queue))?);
        }
        Ok(workers)
    }

    /// Queues a job.
    pub fn submit(&self, job: impl FnOnce() + Send + 'static) {
        if let Some(jobs) = &self.jobs {
            // The threads are gone only if all have panicked; the job is dropped, and reports that.
            let _ = jobs.send(Box::new(job));
        }
    }
}

/// Completes all queued jobs.
impl Drop for Workers {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // A job may have the last reference to its own pool; its thread ends by itself.
            let is_own = thread.thread().id() == thread::current().id();
            if !is_own && thread.join().is_err() {
                tracing::error!("a thread of a block device has panicked");
            }
        }
    }
}

fn work(queue: &Mutex<Receiver<Job>>) {
    loop {
        // The lock is held while waiting: the next job wakes one thread.
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match job {
            Ok(job) => job(),
            Err(_) => return,
        }
    }
}
