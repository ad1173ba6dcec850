//! A node in its thread: drives the pipe, the replica with its state and its journal, and the
//! client.

mod member;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

use onepipe::{EmbeddedPipe, Event, Idleness, ProcessId, Progress, SendError, Service, Timestamp};
use onepipe_base::Mono;
use onepipe_log::{AppendError, LogClient, Reply, ReplyKind, State, StateMessage, View};

use crate::handle::{AppendFailure, OnCommitted, OnEntries, Submission};
use crate::node_thread::Drive;
use crate::options::NodeOptions;
use crate::outbox::{Outbox, Source};
use crate::read_index::{ReadIndexes, Times};
use crate::reads::Reads;
use crate::shared::{NodeStats, Shared};
pub(crate) use member::Member;

/// Number of submissions that are taken over between two turns of the pipe.
const TAKEN_MAX: usize = 256;
/// How often the counters are published, and the disk is looked at.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(100);
/// Bytes of a message that are not those of an entry, at most.
const OVERHEAD_BYTES: usize = 1 << 10;

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
    member: Option<Member<S>>,
    client: LogClient,
    open: BTreeMap<u64, OnCommitted>,
    reads: Reads,
    read_indexes: ReadIndexes,
    replicas: Vec<ProcessId>,
    /// All reliable messages below were handled.
    barrier: Option<Timestamp>,
    outbox: Outbox,
    submissions: Receiver<Submission>,
    shared: Arc<Shared>,
    _left: Sender<()>,
    began: Instant,
    published: Instant,
    appended: u64,
}

impl<S: State> Driven<S> {
    pub fn new(
        mut pipe: EmbeddedPipe,
        options: &NodeOptions,
        member: Option<Member<S>>,
        Shares { submissions, shared, left }: Shares,
    ) -> Self {
        let view = View::first(options.replicas.iter().copied());
        let client = LogClient::new(pipe.now().as_ns(), view, options.client);
        let now = Instant::now();
        Self {
            pipe,
            member,
            client,
            open: BTreeMap::new(),
            reads: Reads::default(),
            read_indexes: ReadIndexes::default(),
            replicas: options.replicas.iter().copied().collect(),
            barrier: None,
            outbox: Outbox::default(),
            submissions,
            shared,
            _left: left,
            began: now,
            published: now,
            appended: 0,
        }
    }

    /// Takes submissions over. Returns whether there was one, and whether no more can come.
    fn take_submissions(&mut self, now: Mono) -> (bool, bool) {
        for taken in 0..TAKEN_MAX {
            match self.submissions.try_recv() {
                Ok(Submission::Append(payload, done)) => self.append(now, payload, done),
                Ok(Submission::Read(index, done)) => self.read(now, index, done),
                Ok(Submission::ReadIndex(done)) if self.member.is_none() => {
                    done(Err("this node has no replica".into()));
                }
                Ok(Submission::ReadIndex(done)) => self.read_indexes.begin(done),
                Ok(Submission::Send(to, message)) => {
                    self.outbox.push_message(Source::State, to, message);
                }
                Err(TryRecvError::Empty) => return (taken > 0, false),
                Err(TryRecvError::Disconnected) => return (taken > 0, true),
            }
        }
        (true, false)
    }

    fn append(&mut self, now: Mono, payload: Vec<u8>, done: OnCommitted) {
        let config = self.pipe.config();
        let of_all = config.send_buffer_bytes_max / self.replicas.len().max(1);
        let max = (config.message_len_max as usize).min(of_all).saturating_sub(OVERHEAD_BYTES);
        let len = payload.len();
        if len > max {
            return done(Err(AppendFailure::TooLong { len, max }));
        }
        match self.client.append(now, payload) {
            Ok(number) => {
                self.open.insert(number, done);
            }
            Err(AppendError::Full(in_flight)) => done(Err(AppendFailure::Busy(in_flight))),
        }
    }

    fn read(&mut self, now: Mono, index: u64, done: OnEntries) {
        // Other replicas send to a replica what is not committed yet, as it may catch up.
        match &self.member {
            Some(member) => done(member.read(index)),
            None => self.reads.begin(now, index, done),
        }
    }

    /// Drives the pipe once. Returns why the node must end, if it must.
    fn poll(&mut self, now: Mono) -> (Progress, Option<Arc<str>>) {
        // All reliable messages below this barrier are handed out in this turn.
        let barrier = self.pipe.commit_barrier();
        let (member, client) = (&mut self.member, &mut self.client);
        let (reads, outbox, replicas) = (&mut self.reads, &mut self.outbox, &self.replicas);
        let mut ended: Option<Arc<str>> = None;
        let progress = self.pipe.poll(|event| match event {
            Event::Message(message) => match ReplyKind::of(message.payload) {
                Some(ReplyKind::Status) => client.on_message(now, message.from, message.payload),
                Some(ReplyKind::Entries) if member.is_none() => {
                    if let Some(Reply::Entries(entries)) = Reply::parse(message.payload) {
                        let _ = reads.on_entries(entries);
                    }
                }
                _ => {
                    let Some(member) = member else { return };
                    let (at, from) = (message.timestamp, message.from);
                    match StateMessage::parse(message.payload) {
                        Some(StateMessage(payload)) if replicas.contains(&from) => {
                            member.on_state_message(from, payload);
                        }
                        Some(_) => {}
                        None => {
                            let is_reliable = message.service == Service::Reliable;
                            member.on_message((is_reliable, at, from), message.payload, outbox);
                        }
                    }
                }
            },
            Event::SendFailed(failed) if failed.service == Service::Reliable => {
                match outbox.on_failed(failed.scattering) {
                    Some((Source::Client, kind)) => client.on_send_failed(kind),
                    Some((source, kind)) => {
                        if let Some(member) = member {
                            member.on_send_failed(source, kind);
                        }
                    }
                    None => {}
                }
            }
            Event::SendFailed(_) => {
                client.on_send_failed(onepipe_log::ScatteringKind::BestEffort);
            }
            Event::ProcessFailed(failed) => {
                if let Some(member) = member {
                    member.on_ended(failed.process, failed.at);
                }
            }
            Event::ProcessLeft(left) => {
                if let Some(member) = member {
                    member.on_ended(left.process, left.at);
                }
            }
            Event::Excluded { void_from } => {
                ended = Some(format!("it was declared failed as of {void_from:?}").into());
            }
            Event::SegmentLost => ended = Some("the shared memory was shortened".into()),
            _ => {}
        });
        if let Some(member) = &mut self.member {
            barrier.into_iter().for_each(|barrier| member.on_barrier(barrier));
        }
        self.barrier = barrier;
        (progress, ended)
    }

    /// Finishes reads of the state that have waited for the log. Returns whether there was one.
    fn finish_reads(&mut self) -> bool {
        if self.read_indexes.is_empty() {
            return false;
        }
        let extent = self.member.as_ref().and_then(Member::extent);
        let (now, received) = (self.pipe.now(), self.pipe.commit_barrier());
        let times = Times { now, received, handled: self.barrier };
        let has_finished = self.read_indexes.advance(times, extent);
        self.pipe.await_commit(self.read_indexes.awaited());
        has_finished
    }

    /// Sends what the machines have to send. Returns whether something was sent.
    fn send(&mut self, now: Mono) -> bool {
        self.client.handle_timeout(now);
        if !self.outbox.is_blocked() {
            if let Some(member) = &mut self.member {
                member.poll_scatterings(now, &mut self.outbox);
            }
            while let Some(scattering) = self.client.poll_scattering() {
                self.outbox.push(Source::Client, scattering);
            }
            while let Some((to, payload)) = self.reads.poll(now, &self.replicas) {
                self.outbox.push_message(Source::Client, to, payload);
            }
        }
        let (member, client) = (&mut self.member, &mut self.client);
        self.outbox.send(&mut self.pipe, |source, kind, error: SendError| {
            // The machines repeat what is not answered.
            tracing::debug!(%error, "a scattering was refused");
            match (source, member.as_mut()) {
                (Source::Client, _) => client.on_send_failed(kind),
                (source, Some(member)) => member.on_send_failed(source, kind),
                (_, None) => {}
            }
        })
    }

    /// Reports committed entries. Returns whether there was one.
    fn finish(&mut self) -> bool {
        let mut has_finished = false;
        while let Some(committed) = self.client.poll_committed() {
            has_finished = true;
            self.appended += 1;
            if let Some(member) = &mut self.member {
                let position = committed.position;
                member.on_committed(position.index.saturating_add(1), position.checksum);
            }
            if let Some(done) = self.open.remove(&committed.number) {
                done(Ok(committed));
            }
        }
        has_finished
    }

    fn publish(&mut self, now: Instant) -> Result<(), Arc<str>> {
        if now.saturating_duration_since(self.published) < PUBLISH_INTERVAL {
            return Ok(());
        }
        self.published = now;
        if let Some(member) = &mut self.member {
            member.advance_disk()?;
        }
        self.shared.publish(self.stats());
        Ok(())
    }

    fn stats(&self) -> NodeStats {
        let stats = self.member.as_ref().map(Member::stats).unwrap_or_default();
        let (number, members) = (self.client.view().number, self.client.view().members.len());
        let is_client = self.member.is_none();
        NodeStats {
            appended: self.appended,
            view: if is_client { number } else { stats.view },
            members: if is_client { members } else { stats.members },
            ..stats
        }
    }

    /// Returns what a turn of the pipe that did `progress` means for idling. A deadline of a
    /// machine comes sooner than the end of a wait.
    fn idleness(&self, progress: Progress) -> Idleness {
        let has_deadline = self.client.poll_timeout().is_some()
            || self.member.as_ref().is_some_and(Member::has_deadline)
            || !self.reads.is_empty()
            || !self.read_indexes.is_empty()
            || self.outbox.is_blocked();
        match self.pipe.idleness(progress) {
            Idleness::Waits if has_deadline => Idleness::Polls,
            idleness => idleness,
        }
    }

    /// Returns the time of the machines.
    fn mono(&self, now: Instant) -> Mono {
        let elapsed = now.saturating_duration_since(self.began);
        Mono::from_ns(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl<S: State> Drive for Driven<S> {
    fn turn(&mut self) -> Result<Idleness, Arc<str>> {
        if self.shared.is_stopping() {
            return Err("it was stopped".into());
        }
        let now = Instant::now();
        let mono = self.mono(now);
        let (has_taken, is_closed) = self.take_submissions(mono);
        if is_closed {
            return Err("it was stopped".into());
        }
        let (progress, ended) = self.poll(mono);
        if let Some(reason) = ended {
            return Err(reason);
        }
        let has_advanced = match &mut self.member {
            Some(member) => member.advance()?,
            None => false,
        };
        let has_read = self.finish_reads();
        self.publish(now)?;
        let has_sent = self.send(mono);
        let has_finished = self.finish();
        match has_taken || has_advanced || has_read || has_sent || has_finished {
            true => Ok(Idleness::Busy),
            false => Ok(self.idleness(progress)),
        }
    }

    fn pipe(&mut self) -> &mut EmbeddedPipe {
        &mut self.pipe
    }

    fn end(self: Box<Self>, reason: Arc<str>) {
        let mut this = *self;
        this.shared.publish(this.stats());
        this.shared.end(Arc::clone(&reason));
        for done in this.open.into_values() {
            done(Err(AppendFailure::Ended(Arc::clone(&reason))));
        }
        this.reads.fail(&reason);
        this.read_indexes.fail(&reason);
        while let Ok(submission) = this.submissions.try_recv() {
            submission.fail(&reason);
        }
        // What is committed becomes readable by this.
        this.client.close();
        while let Some(scattering) = this.client.poll_scattering() {
            this.outbox.push(Source::Client, scattering);
        }
        // When the whole program stops, the view remains.
        if let Some(member) = this.member.as_mut().filter(|_| this.shared.is_leaving()) {
            member.leave(&mut this.outbox);
        }
        this.outbox.send(&mut this.pipe, |_, _, _| {});
        // The journal is closed, and another program may open it, before the process has left.
        drop(this.member);
        if let Err(error) = this.pipe.leave(|_| {}) {
            tracing::warn!(%error, "the node's process did not leave in order");
        }
    }
}
