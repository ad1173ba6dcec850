//! Both sides of catching up: the replica that has no state, and the one of its shard that sends
//! it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{Mono, ProcessId, ScatteringId, Timestamp};

use crate::State;
use crate::catch_up::{CatchUp, CatchUpOptions, Delivered, Progress};
use crate::feed::{Feed, FeedId, FeedMessage, Part};
use crate::members::Members;
use crate::placement::Placement;
use crate::replica::{Replica, ReplicaOptions};
use crate::reply::Answer;
use crate::request::{OPENING, Request, RequestKind};
use crate::scattering::ReplicaScattering;
use crate::start::StartMessage;

impl<S: State> Replica<S> {
    /// Creates a replica of `shard` on `process` that has no state, while the shard may have gone
    /// on: it catches up from another replica, and serves when it was admitted. `state` is replaced
    /// by that of the other one.
    pub fn returning(
        (process, shard): (ProcessId, u16),
        placement: Placement,
        state: S,
        options: ReplicaOptions,
        catch_up: CatchUpOptions,
    ) -> Self {
        let replica = Self::new(shard, state, options).with_placement(process, placement.clone());
        let catch_up = CatchUp::new(process, shard, placement, catch_up);
        Self { catch_up: Some(Box::new(catch_up)), ..replica }
    }

    /// Sets the session of this process, and with which processes and sessions the store has
    /// started ([`crate::Start`]): the replica answers this to others that start.
    pub fn set_founders(&mut self, session: u64, founders: Vec<(ProcessId, u64)>) {
        (self.session, self.founders) = (session, founders);
    }

    /// Returns whether the replica has caught up, and executes writes.
    pub fn is_serving(&self) -> bool {
        self.catch_up.is_none()
    }

    /// Makes a replica that starts catch up instead of executing what its log holds, with the
    /// members as far as they are known.
    pub fn into_returning(
        self,
        process: ProcessId,
        mut placement: Placement,
        members: &Members,
        options: CatchUpOptions,
    ) -> Self {
        placement.merge(members);
        Self::returning((process, self.shard), placement, self.state, self.options, options)
    }

    /// Returns whether the replica cannot catch up, and others start that might have its state: no
    /// replica that serves has answered them. So this one has to start again with them.
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Returns whether the replica cannot catch up now, as no other one of its shard sends its
    /// state.
    pub fn is_stranded(&self) -> bool {
        self.catch_up.as_ref().is_some_and(|catch_up| catch_up.is_stranded())
    }

    /// Returns the next scattering to other replicas. Its driver calls
    /// [`Replica::on_scattering_submitted`], or [`Replica::on_scattering_refused`] if the fabric
    /// does not accept it now.
    pub fn poll_scattering(&mut self, now: Mono) -> Option<ReplicaScattering> {
        if let Some(unsent) = self.unsent.pop_front() {
            return Some(unsent);
        }
        if let Some(catch_up) = &mut self.catch_up
            && let Some(scattering) = catch_up.poll_scattering(now)
        {
            return Some(scattering);
        }
        if let Some(scattering) = self.poll_stored() {
            return Some(scattering);
        }
        let part = self.poll_feed()?;
        self.feeds.retain(|feed| !feed.is_ended());
        Some(ReplicaScattering::reliable([part].to_vec()))
    }

    /// Returns the next part for a replica that catches up.
    fn poll_feed(&mut self) -> Option<(ProcessId, Vec<u8>)> {
        (0..self.feeds.len()).find_map(|index| {
            // The image takes the place of a log. Its records may be the only ones that say what
            // other shards have to execute, until all have stored that.
            let unsent = self.feeds[index].unsent_image().filter(|_| self.options.is_durable);
            if unsent.is_some_and(|last| !self.stored_by_all(last)) {
                return None;
            }
            let feed = &mut self.feeds[index];
            Some((feed.to, feed.poll()?))
        })
    }

    /// Notes that the fabric has accepted a scattering.
    pub fn on_scattering_submitted(&mut self, scattering: &ReplicaScattering, id: ScatteringId) {
        if let Some(catch_up) = self.catch_up.as_mut().filter(|_| scattering.is_admission) {
            catch_up.on_admit_submitted(id);
        }
    }

    /// Notes that the fabric does not accept a scattering now. It is the next one again.
    pub fn on_scattering_refused(&mut self, scattering: ReplicaScattering) {
        self.unsent.push_front(scattering);
    }

    /// Notes that a reliable scattering of this process was not delivered, or may not have been.
    pub fn on_send_failed(&mut self, id: ScatteringId) {
        if let Some(catch_up) = &mut self.catch_up {
            catch_up.on_send_failed(id);
        }
    }

    /// Handles deadlines that have passed.
    pub fn handle_timeout(&mut self, now: Mono) {
        if let Some(catch_up) = &mut self.catch_up {
            catch_up.handle_timeout(now);
        }
    }

    /// Returns when [`Replica::handle_timeout`] is to be called.
    pub fn poll_timeout(&self) -> Option<Mono> {
        self.catch_up.as_ref()?.poll_timeout()
    }

    /// Returns, once, the image that was loaded from another replica, and the number of its last
    /// record: it is to be stored before the next records, in place of all earlier ones. What the
    /// replica has executed since is in its records, as other shards may need these.
    pub fn poll_image(&mut self) -> Option<(u64, Vec<u8>)> {
        self.image_to_store.take()
    }

    /// Handles a request while the replica catches up.
    pub(super) fn on_early_request(
        &mut self,
        at: Timestamp,
        from: ProcessId,
        request: &Request<'_>,
        payload: &[u8],
    ) {
        let Some(catch_up) = &mut self.catch_up else { return };
        let is_own = request.session == catch_up.session();
        let is_own = is_own && from == catch_up.process() && request.kind == RequestKind::Admit;
        if is_own && catch_up.on_own_admit(request.number, at) {
            return;
        }
        let (is_admitted, is_stranded) = (catch_up.admitted().is_some(), catch_up.is_stranded());
        match request.kind {
            RequestKind::Fetch => {
                let id = FeedId { session: request.session, number: request.number };
                self.send_to_peer(from, FeedMessage::Absent.to_bytes(id));
            }
            RequestKind::Admit | RequestKind::Write if is_admitted => {
                let retained = catch_up.retain(Delivered { at, from, payload: payload.to_vec() });
                if let Some(given_up) = retained {
                    given_up.iter().for_each(|one| self.answer_delivered_absent(one));
                } else if is_stranded && request.kind == RequestKind::Write {
                    self.answer_stranded(from, request);
                }
            }
            RequestKind::Admit => {}
            _ if is_admitted && is_stranded => self.answer_stranded(from, request),
            RequestKind::StrictRead | RequestKind::SnapshotRead(_) if is_admitted => {
                self.on_request(at, from, request, payload);
            }
            RequestKind::Ask if is_admitted => {}
            _ => self.answer_absent(from, at, request),
        }
    }

    /// Answers that the replica cannot catch up, as no other one of its shard sends its state.
    /// Without an answer the client would wait for ever.
    fn answer_stranded(&mut self, from: ProcessId, request: &Request<'_>) {
        let reply = Self::encode(self.shard, request, request.attempt, Answer::Stranded);
        self.queue(0, from, reply);
    }

    /// Answers that this process has no state just below its commit barrier: its admission lies at
    /// or above that. The timestamp of a best-effort request would not do, as it may be above that
    /// of an admission that is not delivered yet.
    fn answer_absent(&mut self, from: ProcessId, requested: Timestamp, request: &Request<'_>) {
        if let Some(barrier) = self.barrier {
            let at = match makes(Mistake::AbsentTooLate) {
                true => requested,
                false => barrier.saturating_sub_ns(1),
            };
            let reply = Self::encode(self.shard, request, request.attempt, Answer::Absent(at));
            self.queue(0, from, reply);
        }
    }

    /// Handles a request for the state of this replica.
    pub(super) fn on_fetch(&mut self, from: ProcessId, request: &Request<'_>) {
        self.feeds.retain(|feed| feed.to != from);
        let id = FeedId { session: request.session, number: request.number };
        let admitted = self.members.admitted(from);
        let admitted = admitted.filter(|at| request.view.is_some_and(|known| *at >= known));
        let mut image = Vec::new();
        self.save(&mut image);
        self.feeds.push(Feed::new((from, id), (image, self.executed()), admitted));
        self.await_stored_images();
    }

    /// Handles a request for admission.
    pub(super) fn on_admit(&mut self, at: Timestamp, from: ProcessId, request: &Request<'_>) {
        if request.number == OPENING {
            // Each founder sends one, and the first one has opened the store.
            return;
        }
        if request.view < self.members.view() {
            let id = FeedId { session: request.session, number: request.number };
            let members = self.members.to_bytes();
            return self.send_to_peer(from, FeedMessage::Outdated(&members).to_bytes(id));
        }
        self.members.on_admitted(from, at);
        self.has_new_members = true;
        let is_fed = |feed: &&mut Feed| feed.is_to(from, request.session);
        let feed = self.feeds.iter_mut().find(is_fed);
        if let Some(feed) = feed {
            feed.on_admitted(at);
        }
    }

    fn send_to_peer(&mut self, to: ProcessId, payload: Vec<u8>) {
        self.unsent.push_back(ReplicaScattering::reliable([(to, payload)].to_vec()));
    }

    /// Handles a message of another replica. Returns false if it is malformed.
    pub(super) fn on_peer_message(
        &mut self,
        sent: Timestamp,
        from: ProcessId,
        payload: &[u8],
    ) -> bool {
        if let Some((session, message)) = StartMessage::parse(payload) {
            let is_start = matches!(message, StartMessage::Starts | StartMessage::States { .. });
            self.is_lost |= is_start && self.is_stranded();
            if is_start && self.is_serving() && !self.founders.is_empty() {
                let founders = self.founders.clone();
                let payload = StartMessage::Serves { to: session, founders }.to_bytes(self.session);
                self.unsent.push_back(ReplicaScattering::best_effort([(from, payload)].to_vec()));
            }
            return true;
        }
        let Some((id, message)) = FeedMessage::parse(payload) else { return false };
        if self.safe_point.on_message(sent, from, &message) {
            return true;
        }
        let Some(catch_up) = &mut self.catch_up else { return true };
        if id.session != catch_up.session() {
            return true;
        }
        match message {
            FeedMessage::Part(part) => self.on_part(from, id, part),
            FeedMessage::Absent => catch_up.on_peer_lost(from),
            FeedMessage::AskStored(_) | FeedMessage::Stored(_) => {}
            FeedMessage::Outdated(members) => {
                let Some(members) = crate::Members::from_bytes(members) else { return false };
                if catch_up.on_outdated(id.number, &members) {
                    let retained = catch_up.take_retained();
                    retained.iter().for_each(|one| self.answer_delivered_absent(one));
                }
            }
        }
        true
    }

    fn answer_delivered_absent(&mut self, delivered: &Delivered) {
        let request = Request::parse(&delivered.payload);
        if let Some(request) = request.filter(|request| request.kind == RequestKind::Write) {
            self.answer_absent(delivered.from, delivered.at, &request);
        }
    }

    fn on_part(&mut self, from: ProcessId, id: FeedId, part: Part<'_>) {
        let Some(catch_up) = &mut self.catch_up else { return };
        let catch_up_admitted = catch_up.admitted();
        match catch_up.on_part(from, id, &part) {
            Progress::Ignored => return,
            Progress::More => {}
            Progress::Loaded(image) => {
                if !self.load(&image) {
                    self.stats.malformed += 1;
                    return;
                }
                self.records.clear();
                // Nothing is stored until the image is.
                self.written = 0;
                self.unstored.clear();
                self.unstored.push_back((Timestamp::from_ns(0), self.recorded));
                if let Some(catch_up) = &mut self.catch_up {
                    catch_up.placement.merge(&self.members);
                }
                self.image_to_store =
                    Some((self.recorded, image)).filter(|_| self.options.is_durable);
            }
        }
        for record in part.records {
            self.execute_again(&record);
            if self.options.is_durable {
                self.unstored.push_back((record.at, record.number));
                self.records.push_back(record);
            }
        }
        let is_early = makes(Mistake::ServedBeforeCaughtUp) && part.is_image_complete;
        let early = catch_up_admitted.filter(|_| is_early);
        if let Some(admitted) = part.admitted.or(early)
            && self.catch_up.as_mut().is_some_and(|catch_up| catch_up.on_feed_ended(admitted))
        {
            self.finish_catching_up(admitted);
        }
    }

    /// Begins to serve: executes what was delivered since the admission.
    fn finish_catching_up(&mut self, admitted: Timestamp) {
        let Some(mut catch_up) = self.catch_up.take() else { return };
        // A later admission among what was delivered takes effect where it stands: writes before it
        // have an older view, and are valid.
        self.members.merge_until(catch_up.placement.members(), admitted);
        self.members.on_admitted(catch_up.process(), admitted);
        self.has_new_members = true;
        let executed = self.executed;
        let is_new = |delivered: &Delivered| {
            delivered.at > admitted && Some((delivered.at, delivered.from)) > executed
        };
        for Delivered { at, from, payload } in
            catch_up.take_retained().iter().filter(|one| is_new(one))
        {
            if let Some(request) = Request::parse(payload) {
                self.on_request(*at, *from, &request, payload);
            }
        }
        if let Some(barrier) = self.barrier {
            self.advance(barrier);
        }
    }

    /// Notes that a process has ended, as a peer and as a member.
    pub(super) fn end_peer(&mut self, process: ProcessId, at: Timestamp) {
        if self.safe_point.may_hold_replica(process) {
            self.members.on_ended(process, at);
            self.has_new_members = true;
        }
        self.feeds.retain(|feed| feed.to != process);
        if let Some(catch_up) = &mut self.catch_up {
            catch_up.placement.on_ended(process, at);
            catch_up.on_peer_lost(process);
        }
    }
}
