//! A replica that returns without its state: what it has received from a peer, and its admission.
//!
//! ```text
//!  fetch a peer's state ──► execute what the peer executes ──► be admitted at T
//!                                                                   │
//!  serve ◄── execute what was delivered since T ◄── the peer's last part, up to T
//! ```
//!
//! The shard goes on meanwhile. Before T clients do not send writes to this replica, after T all
//! do: a write that was sent with an older view is refused by all replicas of all shards, as each
//! of them has the admission before or after the write.

use alloc::vec::Vec;

use onepipe_base::{Mono, ProcessId, ScatteringId, Timestamp};

use crate::feed::{FeedId, Part};
use crate::members::Members;
use crate::placement::Placement;
use crate::request::{Request, RequestKind};
use crate::scattering::ReplicaScattering;

/// Limit on the doublings of the timeout, one for each that has passed without a part.
const DOUBLINGS_MAX: u32 = 6;

/// How a replica catches up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CatchUpOptions {
    /// A number that no other incarnation of the process ever has, such as the time of its start.
    pub session: u64,
    /// Time without a part or an answer after which another peer is asked, in ns. The time doubles
    /// with each attempt, up to the 64-fold.
    pub timeout_ns: u64,
    /// Limit on the bytes of requests that are retained from the admission on, until the replica
    /// has what came before. Beyond it the replica gives its admission up, and starts over.
    pub retained_bytes_max: usize,
}

impl CatchUpOptions {
    /// Returns options that retain 256 MiB.
    pub fn new(session: u64, timeout_ns: u64) -> Self {
        Self { session, timeout_ns, retained_bytes_max: 256 << 20 }
    }
}

/// A write or an admission that was delivered since the own admission.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Delivered {
    pub at: Timestamp,
    pub from: ProcessId,
    pub payload: Vec<u8>,
}

/// What is to be done after a part of the feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The part is not the next one of the feed.
    Ignored,
    /// The image is complete, and is to be loaded.
    Loaded(Vec<u8>),
    /// The part goes on.
    More,
}

/// The state of a replica that catches up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CatchUp {
    process: ProcessId,
    shard: u16,
    options: CatchUpOptions,
    pub placement: Placement,
    /// Number of the current request for a peer's state.
    fetch_number: u64,
    /// The peer that the current request was sent to.
    peer: Option<ProcessId>,
    /// Number of the next part of the feed.
    sequence: u32,
    /// The bytes of the image so far.
    image: Vec<u8>,
    is_loaded: bool,
    /// Whether the peer had nothing more to send, so that the replica may be admitted.
    is_current: bool,
    /// Number of the last request for admission.
    admit_number: u64,
    /// The scattering of that request.
    admit_scattering: Option<ScatteringId>,
    /// When another request for admission may follow, unless this one was answered.
    admit_again_at: Option<Mono>,
    /// Number and timestamp of the first request for admission that was delivered to this process
    /// itself. The other replicas may have refused it.
    admitted: Option<(u64, Timestamp)>,
    delivered: Vec<Delivered>,
    /// Number of bytes in `delivered`.
    retained_bytes: usize,
    /// Number of timeouts since the last part. Each doubles the timeout.
    failures: u32,
    /// Number of requests for a peer's state since the last part.
    unanswered_fetches: u64,
    /// Time of the last call that was given one.
    now: Mono,
    deadline: Option<Mono>,
    must_fetch: bool,
    must_admit: bool,
}

impl CatchUp {
    pub fn new(
        process: ProcessId,
        shard: u16,
        placement: Placement,
        options: CatchUpOptions,
    ) -> Self {
        Self {
            process,
            shard,
            options,
            placement,
            fetch_number: 0,
            peer: None,
            sequence: 0,
            image: Vec::new(),
            is_loaded: false,
            is_current: false,
            admit_number: 0,
            admit_scattering: None,
            admit_again_at: None,
            admitted: None,
            delivered: Vec::new(),
            retained_bytes: 0,
            failures: 0,
            unanswered_fetches: 0,
            now: Mono::from_ns(0),
            deadline: None,
            must_fetch: true,
            must_admit: false,
        }
    }

    pub fn process(&self) -> ProcessId {
        self.process
    }

    pub fn session(&self) -> u64 {
        self.options.session
    }

    /// Returns when the replica was admitted, as far as it knows: what is delivered later is
    /// retained.
    pub fn admitted(&self) -> Option<Timestamp> {
        self.admitted.map(|(_, at)| at)
    }

    /// Returns the next scattering to be sent.
    pub fn poll_scattering(&mut self, now: Mono) -> Option<ReplicaScattering> {
        self.now = now;
        if core::mem::take(&mut self.must_fetch) {
            self.deadline = Some(now.after_ns(self.timeout_ns()));
            return self.begin_fetch();
        }
        if core::mem::take(&mut self.must_admit) {
            self.deadline = Some(now.after_ns(self.timeout_ns()));
            self.admit_again_at = self.deadline;
            self.admit_number += 1;
            let view = self.placement.members().view();
            let payload = self.request(RequestKind::Admit, self.admit_number, view);
            let own = [self.process];
            let all = self.placement.all_up().filter(|process| *process != self.process);
            let messages = all.chain(own).map(|to| (to, payload.clone())).collect();
            return Some(ReplicaScattering { is_reliable: true, messages, is_admission: true });
        }
        None
    }

    fn begin_fetch(&mut self) -> Option<ReplicaScattering> {
        self.fetch_number += 1;
        self.unanswered_fetches += 1;
        (self.sequence, self.is_loaded, self.is_current) = (0, false, false);
        self.image.clear();
        self.peer = self.choose_peer();
        let payload = self.request(RequestKind::Fetch, self.fetch_number, self.admitted());
        self.peer.map(|peer| ReplicaScattering::best_effort([(peer, payload)].to_vec()))
    }

    /// Returns the current timeout, in ns. With a fixed one below the latency, every part would
    /// belong to an earlier request, and be ignored.
    fn timeout_ns(&self) -> u64 {
        self.options.timeout_ns << self.failures.min(DOUBLINGS_MAX)
    }

    /// Returns the peer for the current request. Every second request goes to any replica, not only
    /// to one that is up: a replica that has failed may have been admitted again without the
    /// knowledge of this process.
    fn choose_peer(&self) -> Option<ProcessId> {
        let is_up = |process: &ProcessId| self.placement.members().is_up(*process);
        let mut others = self.placement.replicas(self.shard).to_vec();
        others.retain(|process| *process != self.process);
        if self.fetch_number % 2 == 1 && others.iter().any(is_up) {
            others.retain(is_up);
        }
        others.get((self.fetch_number / 2 % others.len().max(1) as u64) as usize).copied()
    }

    fn request(&self, kind: RequestKind, number: u64, view: Option<Timestamp>) -> Vec<u8> {
        let (session, attempt, finished, parts) = (self.session(), 0, 0, Vec::new());
        let mut payload = Vec::new();
        Request { kind, session, number, attempt, finished, view, parts }.write(&mut payload);
        payload
    }

    /// Notes that the reliable scattering of the admission was accepted by the fabric.
    pub fn on_admit_submitted(&mut self, id: ScatteringId) {
        self.admit_scattering = Some(id);
    }

    /// Notes that a reliable scattering was not delivered, or may not have been. If it was the
    /// admission, another one follows after the timeout.
    pub fn on_send_failed(&mut self, id: ScatteringId) {
        if self.admit_scattering == Some(id) {
            (self.admit_scattering, self.admit_again_at) = (None, None);
        }
    }

    /// Notes that the own request for admission was delivered to this process. Returns whether it
    /// is the first one that may count.
    pub fn on_own_admit(&mut self, number: u64, at: Timestamp) -> bool {
        let is_first = self.admitted.is_none();
        if is_first {
            self.admitted = Some((number, at));
        }
        is_first
    }

    /// Retains a request that was delivered since the admission. Returns whether that is too much:
    /// then the replica starts over, and all that it has retained is returned. Other processes
    /// notice by its answers that it is no member.
    #[must_use]
    pub fn retain(&mut self, delivered: Delivered) -> Option<Vec<Delivered>> {
        self.retained_bytes += delivered.payload.len();
        self.delivered.push(delivered);
        if self.retained_bytes <= self.options.retained_bytes_max {
            return None;
        }
        // A part of the current feed would end the catching up.
        (self.admitted, self.peer, self.must_fetch) = (None, None, true);
        Some(self.take_retained())
    }

    /// Returns what was retained.
    pub fn take_retained(&mut self) -> Vec<Delivered> {
        self.retained_bytes = 0;
        core::mem::take(&mut self.delivered)
    }

    /// Handles a part of a feed.
    pub fn on_part(&mut self, from: ProcessId, id: FeedId, part: &Part<'_>) -> Progress {
        let now = self.now;
        let expected = FeedId { session: self.session(), number: self.fetch_number };
        if id != expected || Some(from) != self.peer || part.sequence != self.sequence {
            // A part is missing if this one is later: the timeout asks again.
            return Progress::Ignored;
        }
        (self.failures, self.unanswered_fetches) = (0, 0);
        self.deadline = Some(now.after_ns(self.timeout_ns()));
        self.sequence += 1;
        self.is_current |= part.is_current;
        let is_unanswered = self.admit_again_at.is_none_or(|again_at| again_at <= now);
        self.must_admit |= self.is_current && part.admitted.is_none() && is_unanswered;
        if self.is_loaded {
            return Progress::More;
        }
        self.image.extend_from_slice(part.image);
        if part.is_image_complete {
            self.is_loaded = true;
            return Progress::Loaded(core::mem::take(&mut self.image));
        }
        Progress::More
    }

    /// Handles the end of the feed, as the replica was admitted. Returns whether all that was
    /// delivered since is retained. If this admission was given up, another one is needed.
    pub fn on_feed_ended(&mut self, admitted: Timestamp) -> bool {
        let is_retained = self.admitted().is_some_and(|since| since <= admitted);
        self.must_fetch |= !is_retained;
        is_retained
    }

    /// Handles that a request for admission was refused, as its view was outdated. Returns whether
    /// this was the admission since which writes are retained: they are of no use, as no client
    /// has learnt of the admission.
    pub fn on_outdated(&mut self, number: u64, members: &Members) -> bool {
        let view = self.placement.members().view();
        self.placement.merge(members);
        // Without a later view the store has not been opened: the next request waits.
        let is_later = self.placement.members().view() > view;
        let known = self.placement.members().admitted(self.process);
        let was_accepted = self.admitted.is_some_and(|(_, at)| known >= Some(at));
        self.must_admit |= number == self.admit_number && !was_accepted && is_later;
        let was_refused = self.admitted.is_some_and(|(tentative, _)| number >= tentative);
        if was_accepted || !was_refused {
            return false;
        }
        self.admitted = None;
        true
    }

    /// Asks another peer, as this one has no state, or has ended. Once all have been asked, the
    /// next request waits for the timeout.
    pub fn on_peer_lost(&mut self, peer: ProcessId) {
        if self.peer == Some(peer) {
            self.peer = None;
            self.must_fetch = self.unanswered_fetches <= self.others();
        }
    }

    /// Returns the number of other replicas of the shard.
    fn others(&self) -> u64 {
        self.placement.replicas(self.shard).len() as u64 - 1
    }

    /// Whether no replica of the shard sends its state, although each was asked at least twice
    /// since the last part.
    pub fn is_stranded(&self) -> bool {
        self.unanswered_fetches > 4 * self.others()
    }

    pub fn handle_timeout(&mut self, now: Mono) {
        self.now = now;
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        self.deadline = None;
        self.failures += 1;
        self.must_fetch = true;
        self.must_admit = self.is_current;
    }

    pub fn poll_timeout(&self) -> Option<Mono> {
        self.deadline
    }
}
