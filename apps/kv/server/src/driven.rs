//! The thread of a node: drives the pipe, the replica and the client.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use onepipe::{EmbeddedPipe, Event, Message, ProcessId, Progress, SendError, Service};
use onepipe_base::Mono;
use onepipe_kv::{Plan, Store};
use onepipe_transaction::{
    Client, Finished, Kind, OutgoingReply, ReadMode, Replica, ReplicaOptions, Reply, SubmitError,
    TransactionError, TransactionId,
};

use crate::backend::{BackendError, OnReplies, Replies};
use crate::disk_watch::DiskWatch;
use crate::options::NodeOptions;
use crate::shared::{NodeStats, Shared, Submission};
use crate::storage::LogWriter;

/// Number of transactions that are taken over between two turns of the pipe.
const TAKEN_MAX: usize = 256;
/// How often the counters are published.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(100);

/// What the thread of a node owns.
pub(crate) struct Driven {
    pipe: EmbeddedPipe,
    replica: Option<Replica<Store>>,
    log: Option<LogWriter>,
    client: Client,
    reads: ReadMode,
    submissions: Receiver<Submission>,
    open: BTreeMap<TransactionId, (Plan, OnReplies)>,
    /// A reply that the pipe did not accept, as its buffer was full.
    unsent: Option<OutgoingReply>,
    shared: Arc<Shared>,
    began: Instant,
    published: Instant,
    finished: u64,
    disk_watch: Option<DiskWatch>,
}

impl Driven {
    pub(crate) fn new(
        mut pipe: EmbeddedPipe,
        options: &NodeOptions,
        stored: Option<(Replica<Store>, LogWriter)>,
        (submissions, shared): (Receiver<Submission>, Arc<Shared>),
    ) -> Self {
        let placement = options.placement.clone();
        let empty = |shard| Replica::new(shard, Store::default(), ReplicaOptions::default());
        let (replica, log) = match stored {
            Some((replica, log)) => (Some(replica), Some(log)),
            None => (placement.shard_of(pipe.process()).map(empty), None),
        };
        // No other client of this process ever has this session. Incarnations count seconds: two
        // starts within a second would share one, and the writes of the second pass for repeated.
        let session = pipe.now().as_ns();
        let client = Client::new(session, placement, options.client);
        let now = Instant::now();
        let disk_watch = log.is_some().then(|| DiskWatch::new(now));
        Self {
            pipe,
            replica,
            log,
            client,
            reads: options.reads,
            submissions,
            open: BTreeMap::new(),
            unsent: None,
            shared,
            began: now,
            published: now,
            finished: 0,
            disk_watch,
        }
    }

    pub(crate) fn run(mut self) {
        let reason = loop {
            if self.shared.is_stopping.load(Ordering::Acquire) {
                break Arc::from("it was stopped");
            }
            let (has_taken, is_closed) = self.take_submissions();
            if is_closed {
                break Arc::from("it was stopped");
            }
            let (progress, ended) = self.turn();
            if let Some(reason) = ended {
                break reason;
            }
            if let Some(reason) = self.store() {
                break reason;
            }
            let has_sent = self.send();
            let has_finished = self.finish();
            self.publish();
            if has_taken || has_sent || has_finished {
                continue;
            }
            if self.replica.as_ref().is_some_and(|replica| replica.waiting_reads() > 0) {
                // In shared memory a rising barrier wakes nobody.
                std::thread::yield_now();
            } else {
                self.pipe.rest(progress);
            }
        };
        self.end(reason);
    }

    /// Takes transactions over. Returns whether there was one, and whether no more can come.
    fn take_submissions(&mut self) -> (bool, bool) {
        for taken in 0..TAKEN_MAX {
            match self.submissions.try_recv() {
                Ok(submission) => self.submit(submission),
                Err(TryRecvError::Empty) => return (taken > 0, false),
                Err(TryRecvError::Disconnected) => return (taken > 0, true),
            }
        }
        (true, false)
    }

    fn submit(&mut self, Submission { commands, on_replies }: Submission) {
        let plan = Plan::new(&commands, self.client.placement().shards());
        if plan.parts().is_empty() {
            // Every command is refused.
            return on_replies(replies_of(&plan, &[]));
        }
        let kind = match plan.is_read_only() {
            true => Kind::Read(self.reads),
            false => Kind::Write,
        };
        match self.client.submit(kind, plan.parts().to_vec()) {
            Ok(transaction) => {
                self.open.insert(transaction, (plan, on_replies));
            }
            Err(SubmitError::Full(open)) => on_replies(Err(BackendError::Busy(open))),
            Err(error) => on_replies(Err(BackendError::Results(error.to_string()))),
        }
    }

    /// Drives the pipe once. Returns why the node must end, if it must.
    fn turn(&mut self) -> (Progress, Option<Arc<str>>) {
        // Everything below this barrier is handed out in this turn.
        let barrier = self.pipe.commit_barrier();
        let (replica, client) = (&mut self.replica, &mut self.client);
        let mut ended: Option<Arc<str>> = None;
        let progress = self.pipe.poll(|event| match event {
            Event::Message(message) => {
                if Reply::is_reply(message.payload) {
                    client.on_message(message.from, message.payload);
                } else if let Some(replica) = replica {
                    let is_reliable = message.service == Service::Reliable;
                    let (timestamp, from) = (message.timestamp, message.from);
                    replica.on_message(is_reliable, timestamp, from, message.payload);
                }
            }
            Event::SendFailed(failed) => {
                client.on_send_failed(failed.service == Service::Reliable, failed.scattering);
            }
            Event::ProcessFailed(failed) => {
                on_process_ended(replica, client, failed.process);
            }
            Event::ProcessLeft(left) => on_process_ended(replica, client, left.process),
            Event::Excluded { void_from } => {
                ended = Some(format!("it was declared failed as of {void_from:?}").into());
            }
            Event::SegmentLost => ended = Some("the shared memory was shortened".into()),
            _ => {}
        });
        if let (Some(replica), Some(barrier)) = (replica, barrier) {
            replica.on_barrier(barrier);
        }
        (progress, ended)
    }

    /// Stores what the replica has executed. Returns why the node must end, if it must.
    fn store(&mut self) -> Option<Arc<str>> {
        let (Some(replica), Some(log)) = (&mut self.replica, &self.log) else { return None };
        while let Some(record) = replica.poll_record() {
            if let Err(error) = log.append(&record) {
                return Some(format!("the log cannot be written: {error}").into());
            }
        }
        replica.on_stored(log.acknowledged());
        None
    }

    /// Sends what the machines have to send. Returns whether something was sent.
    fn send(&mut self) -> bool {
        let mut has_sent = false;
        while let Some(reply) =
            self.unsent.take().or_else(|| self.replica.as_mut().and_then(Replica::poll_reply))
        {
            let message = Message { to: reply.to, payload: &reply.payload };
            match self.pipe.scatter(&[message]) {
                Ok(_) => {}
                Err(error) if is_too_large(&error) => {
                    // A store limits its results, so that this does not happen.
                    tracing::error!(%error, "a reply was dropped");
                    continue;
                }
                Err(_) => {
                    self.unsent = Some(reply);
                    return has_sent;
                }
            }
            has_sent = true;
        }
        let now = self.now();
        self.client.handle_timeout(now);
        let barrier = self.pipe.commit_barrier();
        while let Some(scattering) = self.client.poll_scattering(now, barrier) {
            let messages: Vec<Message<'_>> = (scattering.messages.iter())
                .map(|(to, payload)| Message { to: *to, payload })
                .collect();
            let sent = match scattering.is_reliable {
                true => self.pipe.scatter_reliably(&messages),
                false => self.pipe.scatter(&messages),
            };
            match sent {
                Ok(id) => self.client.on_submitted(&scattering, id),
                Err(error) if is_too_large(&error) => self.client.on_too_large(&scattering),
                Err(_) => {
                    self.client.on_refused(&scattering);
                    return has_sent;
                }
            }
            has_sent = true;
        }
        has_sent
    }

    /// Reports finished transactions. Returns whether there was one.
    fn finish(&mut self) -> bool {
        let mut has_finished = false;
        while let Some(Finished { transaction, outcome }) = self.client.poll_finished() {
            has_finished = true;
            self.finished += 1;
            let Some((plan, on_replies)) = self.open.remove(&transaction) else { continue };
            on_replies(match outcome {
                Ok(committed) => replies_of(&plan, &committed.results),
                Err(TransactionError::Unavailable(shard)) => Err(BackendError::Unavailable(shard)),
                Err(TransactionError::Refused(_)) => Err(BackendError::Busy(self.open.len())),
                Err(TransactionError::TooLarge) => Err(BackendError::TooLarge),
            });
        }
        has_finished
    }

    fn publish(&mut self) {
        if self.published.elapsed() >= PUBLISH_INTERVAL {
            self.published = Instant::now();
            self.watch_disk();
            self.shared.publish(self.stats());
        }
    }

    /// Publishes whether the disk takes what is written, and lets it try again if it has failed.
    fn watch_disk(&mut self) {
        let (Some(log), Some(watch)) = (&self.log, &mut self.disk_watch) else { return };
        let failure = log.retry();
        let progress = (log.appended(), log.acknowledged());
        self.shared.set_disk_failure(watch.observe(Instant::now(), progress, failure));
    }

    fn stats(&self) -> NodeStats {
        let replica = self.replica.as_ref().map(Replica::stats).unwrap_or_default();
        let client = self.client.stats();
        NodeStats {
            shard: self.replica.as_ref().map(Replica::shard),
            writes: replica.writes,
            reads: replica.reads,
            transactions: self.finished,
            retried: client.retried,
            disagreements: client.disagreements,
        }
    }

    fn now(&self) -> Mono {
        Mono::from_ns(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Fails what is open, and leaves the fabric.
    fn end(self, reason: Arc<str>) {
        self.shared.publish(self.stats());
        self.shared.end(reason.clone());
        for (_, on_replies) in self.open.into_values() {
            on_replies(Err(BackendError::Ended(reason.clone())));
        }
        while let Ok(submission) = self.submissions.try_recv() {
            (submission.on_replies)(Err(BackendError::Ended(reason.clone())));
        }
        if let Err(error) = self.pipe.leave(|_| {}) {
            tracing::warn!(%error, "the node's process did not leave in order");
        }
    }
}

/// Returns whether the fabric can never send what it has refused.
fn is_too_large(error: &SendError) -> bool {
    matches!(error, SendError::MessageTooLarge { .. } | SendError::ScatteringTooLarge { .. })
}

fn on_process_ended(replica: &mut Option<Replica<Store>>, client: &mut Client, ended: ProcessId) {
    client.on_process_ended(ended);
    if let Some(replica) = replica {
        replica.on_process_ended(ended);
    }
}

fn replies_of(plan: &Plan, results: &[(u16, Vec<u8>)]) -> Replies {
    let results: Vec<(u16, &[u8])> =
        results.iter().map(|(shard, results)| (*shard, results.as_slice())).collect();
    plan.replies(&results).map_err(|error| BackendError::Results(error.to_string()))
}
