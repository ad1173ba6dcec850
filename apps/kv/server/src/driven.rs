//! A node in its thread: drives the pipe, the replica and the client.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

use onepipe::{
    EmbeddedPipe, Event, Idleness, Message, ProcessId, Progress, ScatteringId, SendError, Service,
    Timestamp,
};
use onepipe_base::Mono;
use onepipe_log_server::Drive;
use onepipe_transaction::{
    Client, Finished, Kind, OutgoingReply, ReadMode, Replica, Reply, State, SubmitError,
    TransactionError, TransactionId,
};

use crate::backend::{BackendError, OnResults};
use crate::disk_watch::DiskWatch;
use crate::options::NodeOptions;
use crate::shared::{NodeStats, Shared, Submission};
use crate::starting::{Held, Starting};
use crate::storage::ReplicaLog;
use crate::wake_batch;

/// Number of transactions that are taken over between two turns of the pipe.
const TAKEN_MAX: usize = 256;
/// How often the counters are published.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(100);

/// What a node shares with its handles.
pub(crate) struct Shares {
    pub submissions: Receiver<Submission>,
    pub shared: Arc<Shared>,
    /// Dropped when the node has left the fabric.
    pub left: Sender<()>,
}

/// What the thread of a node owns.
pub(crate) struct Driven<S> {
    pipe: EmbeddedPipe,
    replica: Option<Replica<S>>,
    log: Option<Box<ReplicaLog>>,
    /// The replica until it serves or catches up.
    starting: Option<Box<Starting<S>>>,
    client: Client,
    reads: ReadMode,
    submissions: Receiver<Submission>,
    _left: Sender<()>,
    open: BTreeMap<TransactionId, OnResults>,
    /// A reply that the pipe did not accept, as its buffer was full.
    unsent: Option<OutgoingReply>,
    shared: Arc<Shared>,
    began: Instant,
    published: Instant,
    finished: u64,
    disk_watch: Option<DiskWatch>,
}

impl<S: State> Driven<S> {
    pub(crate) fn new(
        mut pipe: EmbeddedPipe,
        options: &NodeOptions,
        held: Held<S>,
        Shares { submissions, shared, left }: Shares,
    ) -> Self {
        let (replica, log, starting) = match held {
            Held::Nothing => (None, None, None),
            Held::Replica(replica, log) => (Some(*replica), log, None),
            Held::Starting(starting, log) => (None, log, Some(starting)),
        };
        // No other client of this process ever has this session. Incarnations count seconds: two
        // starts within a second would share one, and the writes of the second pass for repeated.
        let session = pipe.now().as_ns();
        let client = Client::new(session, options.placement.clone(), options.client);
        let now = Instant::now();
        let disk_watch = log.is_some().then(|| DiskWatch::new(now));
        Self {
            pipe,
            replica,
            log,
            starting,
            client,
            reads: options.reads,
            submissions,
            _left: left,
            open: BTreeMap::new(),
            unsent: None,
            shared,
            began: now,
            published: now,
            finished: 0,
            disk_watch,
        }
    }

    /// Returns what a turn of the pipe that did `progress` means for idling.
    fn idleness(&self, progress: Progress) -> Idleness {
        let has_reads = self.replica.as_ref().is_some_and(|replica| replica.waiting_reads() > 0);
        match self.pipe.idleness(progress) {
            // In shared memory a rising barrier ends no wait.
            Idleness::Waits if has_reads => Idleness::Polls,
            idleness => idleness,
        }
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

    fn submit(&mut self, Submission { is_read_only, parts, on_results }: Submission) {
        let kind = match is_read_only {
            true => Kind::Read(self.reads),
            false => Kind::Write,
        };
        match self.client.submit(kind, parts) {
            Ok(transaction) => {
                self.open.insert(transaction, on_results);
            }
            Err(SubmitError::Full(open)) => on_results(Err(BackendError::Busy(open))),
            Err(error) => on_results(Err(BackendError::Results(error.to_string()))),
        }
    }

    /// Drives the pipe once. Returns why the node must end, if it must.
    fn poll(&mut self, now: Mono) -> (Progress, Option<Arc<str>>) {
        // All reliable messages below this barrier are handed out in this turn.
        let barrier = self.pipe.commit_barrier();
        let (replica, client) = (&mut self.replica, &mut self.client);
        let starting = &mut self.starting;
        let shared = &self.shared;
        let mut ended: Option<Arc<str>> = None;
        let progress = self.pipe.poll(|event| match event {
            Event::Message(message) => {
                if Reply::is_reply(message.payload) {
                    client.on_message(now, message.from, message.payload);
                    return;
                }
                let is_reliable = message.service == Service::Reliable;
                let (timestamp, from) = (message.timestamp, message.from);
                if let Some(of_node) = starting {
                    of_node.start.on_message(is_reliable, timestamp, from, message.payload);
                    // Messages after the one that opened the store are for the replica.
                    if let Some(started) = of_node.take_replica() {
                        (*replica, *starting) = (Some(started), None);
                        shared.set_waiting(Vec::new());
                    }
                } else if let Some(replica) = replica {
                    replica.on_message(is_reliable, timestamp, from, message.payload);
                }
            }
            Event::SendFailed(failed) => {
                if let Some(replica) = replica
                    && failed.service == Service::Reliable
                {
                    replica.on_send_failed(failed.scattering);
                }
                client.on_send_failed(failed.service == Service::Reliable, failed.scattering);
            }
            Event::ProcessFailed(failed) => {
                let ended = (failed.process, failed.at);
                on_process_ended((replica, starting), client, ended);
            }
            Event::ProcessLeft(left) => {
                on_process_ended((replica, starting), client, (left.process, left.at));
            }
            Event::Excluded { void_from } => {
                ended = Some(format!("it was declared failed as of {void_from:?}").into());
            }
            Event::SegmentLost => ended = Some("the shared memory was shortened".into()),
            _ => {}
        });
        if let Some(barrier) = barrier {
            if let Some(replica) = replica {
                replica.on_barrier(barrier);
            } else if let Some(starting) = starting {
                starting.start.on_barrier(barrier);
            }
        }
        if replica.as_ref().is_some_and(Replica::is_lost) {
            ended = Some("no other replica sends the state of its shard: start it again".into());
        }
        (progress, ended)
    }

    /// Advances the start of the replica. Returns whether there was something to do, or why the
    /// node must end.
    fn advance_start(&mut self) -> Result<bool, Arc<str>> {
        let Some(starting) = &mut self.starting else { return Ok(false) };
        starting.advance(self.log.as_deref_mut(), self.pipe.now())
    }

    /// Stores what the replica has executed. Returns why the node must end, if it must.
    fn store(&mut self) -> Option<Arc<str>> {
        let (Some(replica), Some(log)) = (&mut self.replica, &mut self.log) else { return None };
        log.store(replica).err().map(Arc::from)
    }

    /// Sends what the machines have to send. Returns whether something was sent.
    fn send(&mut self, now: Mono) -> bool {
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
        has_sent |= self.send_to_replicas(now);
        self.client.handle_timeout(now);
        let barrier = self.pipe.commit_barrier();
        while let Some(scattering) = self.client.poll_scattering(now, barrier) {
            match scatter(&mut self.pipe, scattering.is_reliable, &scattering.messages) {
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

    /// Sends the messages of the start, or of the replica, to other replicas. Returns whether
    /// something was sent.
    fn send_to_replicas(&mut self, now: Mono) -> bool {
        let mut has_sent = false;
        if let Some(starting) = &mut self.starting {
            while let Some(scattering) = starting.start.poll_scattering(now) {
                // A scattering that the fabric does not accept is repeated in the next interval.
                has_sent |=
                    scatter(&mut self.pipe, scattering.is_reliable, &scattering.messages).is_ok();
            }
            self.shared.set_waiting(starting.start.missing());
        }
        let Some(replica) = &mut self.replica else { return has_sent };
        replica.handle_timeout(now);
        while let Some(scattering) = replica.poll_scattering(now) {
            match scatter(&mut self.pipe, scattering.is_reliable, &scattering.messages) {
                Ok(id) => replica.on_scattering_submitted(&scattering, id),
                Err(SendError::BufferFull { .. }) => {
                    replica.on_scattering_refused(scattering);
                    return has_sent;
                }
                // The replica repeats what is not answered.
                Err(_) => {}
            }
            has_sent = true;
        }
        self.shared.is_serving.store(replica.is_serving(), Ordering::Relaxed);
        has_sent
    }

    /// Reports finished transactions. Returns whether there was one.
    fn finish(&mut self) -> bool {
        wake_batch::batch(|| self.report())
    }

    fn report(&mut self) -> bool {
        let mut has_finished = false;
        while let Some(Finished { transaction, outcome }) = self.client.poll_finished() {
            has_finished = true;
            self.finished += 1;
            let Some(on_results) = self.open.remove(&transaction) else { continue };
            on_results(match outcome {
                Ok(committed) => Ok(committed.results),
                Err(TransactionError::Unavailable(shard)) => Err(BackendError::Unavailable(shard)),
                Err(TransactionError::Refused(_)) => Err(BackendError::Busy(self.open.len())),
                Err(TransactionError::Restarted) => Err(BackendError::Restarted),
                Err(TransactionError::TooLarge) => Err(BackendError::TooLarge),
            });
        }
        has_finished
    }

    fn publish(&mut self, now: Instant) {
        if now.saturating_duration_since(self.published) >= PUBLISH_INTERVAL {
            self.published = now;
            self.watch_disk(now);
            if let (Some(replica), Some(log)) = (&mut self.replica, &mut self.log) {
                log.advance(now, replica);
            }
            self.shared.publish(self.stats());
        }
    }

    /// Publishes whether the disk takes what is written, and lets it try again if it has failed.
    fn watch_disk(&mut self, now: Instant) {
        let (Some(log), Some(watch)) = (&self.log, &mut self.disk_watch) else { return };
        let Some(log) = log.open_writer() else { return };
        let failure = log.retry();
        let progress = (log.appended(), log.acknowledged());
        self.shared.set_disk_failure(watch.observe(now, progress, failure));
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
            log: self.log.as_ref().map(|log| log.stats()).unwrap_or_default(),
        }
    }

    /// Returns the time of the machines.
    fn mono(&self, now: Instant) -> Mono {
        let elapsed = now.saturating_duration_since(self.began);
        Mono::from_ns(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl<S: State + Send + 'static> Drive for Driven<S> {
    fn turn(&mut self) -> Result<Idleness, Arc<str>> {
        if self.shared.is_stopping.load(Ordering::Acquire) {
            return Err(Arc::from("it was stopped"));
        }
        let (has_taken, is_closed) = self.take_submissions();
        if is_closed {
            return Err(Arc::from("it was stopped"));
        }
        let now = Instant::now();
        let mono = self.mono(now);
        let (progress, ended) = self.poll(mono);
        if let Some(reason) = ended.or_else(|| self.store()) {
            return Err(reason);
        }
        let has_advanced = self.advance_start()?;
        // First, as a snapshot or an image may lead to a question for other replicas.
        self.publish(now);
        let has_sent = self.send(mono) || has_advanced;
        let has_finished = self.finish();
        match has_taken || has_sent || has_finished {
            true => Ok(Idleness::Busy),
            false => Ok(self.idleness(progress)),
        }
    }

    fn pipe(&mut self) -> &mut EmbeddedPipe {
        &mut self.pipe
    }

    fn end(self: Box<Self>, reason: Arc<str>) {
        let this = *self;
        this.shared.publish(this.stats());
        this.shared.end(reason.clone());
        for on_results in this.open.into_values() {
            on_results(Err(BackendError::Ended(reason.clone())));
        }
        while let Ok(submission) = this.submissions.try_recv() {
            (submission.on_results)(Err(BackendError::Ended(reason.clone())));
        }
        if let Err(error) = this.pipe.leave(|_| {}) {
            tracing::warn!(%error, "the node's process did not leave in order");
        }
    }
}

/// Returns whether the fabric can never send what it has refused.
fn is_too_large(error: &SendError) -> bool {
    matches!(error, SendError::MessageTooLarge { .. } | SendError::ScatteringTooLarge { .. })
}

fn on_process_ended<S: State>(
    (replica, starting): (&mut Option<Replica<S>>, &mut Option<Box<Starting<S>>>),
    client: &mut Client,
    (process, at): (ProcessId, Timestamp),
) {
    client.on_process_ended(process, at);
    if let Some(replica) = replica {
        replica.on_process_ended(process, at);
    } else if let Some(starting) = starting {
        starting.start.on_process_ended(process, at);
    }
}

fn scatter(
    pipe: &mut EmbeddedPipe,
    is_reliable: bool,
    messages: &[(ProcessId, Vec<u8>)],
) -> Result<ScatteringId, SendError> {
    let messages = messages.iter().map(|(to, payload)| Message { to: *to, payload });
    let messages: Vec<Message<'_>> = messages.collect();
    match is_reliable {
        true => pipe.scatter_reliably(&messages),
        false => pipe.scatter(&messages),
    }
}
