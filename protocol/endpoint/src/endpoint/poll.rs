//! Polls frames and events of both services in turn.

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{Now, Timestamp, Transmit};
use onepipe_wire::{HEADER_LEN, Service, seal, seal_unsummed};

use super::{Endpoint, Exclusion};
use crate::channel::Draft;
use crate::{Delivery, Event, Links, Outcome, ReceiveMode, SendFailed};

impl Endpoint {
    //= spec/ordering.md#R87
    /// Returns the next signalling frame, unless a burst can begin that may carry acknowledgements
    /// which are due. Between two such bursts, all signalling frames leave.
    #[inline(never)]
    pub(super) fn poll_burst_or_signal(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        let carries_acks =
            self.best_effort.receiver.has_due_acks() && self.best_effort.wants_data(true);
        if self.is_burst_first && carries_acks {
            self.is_burst_first = false;
            let transmit = self.poll_data_of(Service::BestEffort, now, slot);
            if transmit.is_some() {
                return transmit;
            }
        }
        self.poll_signal(now, slot)
    }

    /// Returns the next signalling frame of either service: acknowledgement, connect, probe or
    /// recall.
    fn poll_signal(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        for service in self.service_order() {
            let end = self.config.frame_len_max_of(service);
            let channel = match service {
                Service::BestEffort => &mut self.best_effort,
                Service::Reliable => &mut self.reliable,
            };
            if !channel.wants_signal() {
                continue;
            }
            let payload = &mut slot[HEADER_LEN..end];
            if let Some(draft) =
                channel.poll_signal(&self.config, now.mono, payload, &mut self.stats)
            {
                return Some(self.seal_frame(now, service, slot, draft));
            }
        }
        None
    }

    /// Returns the next data frame of either service.
    #[inline]
    pub(super) fn poll_data(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        // Almost always one service has data and the other has none.
        if !self.reliable.is_used() || !self.reliable.wants_data(self.may_commit()) {
            return self.poll_data_of(Service::BestEffort, now, slot);
        }
        self.poll_data_in_turn(now, slot)
    }

    #[inline(never)]
    fn poll_data_in_turn(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        let [one, other] = self.service_order();
        match self.poll_data_of(one, now, slot) {
            None => self.poll_data_of(other, now, slot),
            transmit => transmit,
        }
    }

    #[inline]
    fn poll_data_of(&mut self, service: Service, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        // Retransmissions are sent in any case, because commits wait for them.
        let may_send_new = service == Service::BestEffort || self.may_commit();
        let (config, stats) = (&self.config, &mut self.stats);
        let channel = match service {
            Service::BestEffort => &mut self.best_effort,
            Service::Reliable => &mut self.reliable,
        };
        if !channel.wants_data(may_send_new) {
            return None;
        }
        let draft =
            channel.poll_data(config, now.mono, may_send_new, &mut self.timestamps, slot, stats)?;
        // A service keeps its turn until its burst is finished.
        self.next_service = match (service, channel.sender.unfinished_burst()) {
            (Service::BestEffort, Some(_)) | (Service::Reliable, None) => Service::BestEffort,
            _ => Service::Reliable,
        };
        Some(self.seal_frame(now, service, slot, draft))
    }

    //= spec/failure.md#R6
    /// Returns whether new reliable messages may be sent. With controllers, this process must be
    /// registered and must have received a commit barrier from its switch (docs/design/failure.md,
    /// "When does a joiner commit?"). In an overlay the commit barrier is always needed: no
    /// aggregator sees the messages pass (docs/design/overlay.md, "Why is it exact?").
    #[inline]
    pub(super) fn may_commit(&self) -> bool {
        let needs_commit_barrier = match self.config.links {
            Links::Uplink => self.config.controllers.is_some() || self.config.awaits_commits,
            Links::Overlay => true,
            Links::Mesh => false,
        };
        self.control.is_registered() && (!needs_commit_barrier || self.link.receives_commits())
    }

    /// Returns both services in the order in which they are asked. An unfinished best-effort burst
    /// goes first, because every receiver's barrier waits for its last packet.
    #[inline]
    fn service_order(&self) -> [Service; 2] {
        let is_busy = self.best_effort.sender.unfinished_burst().is_some();
        match self.next_service {
            Service::Reliable if !is_busy => [Service::Reliable, Service::BestEffort],
            _ => [Service::BestEffort, Service::Reliable],
        }
    }

    //= spec/ordering.md#R8
    /// Seals a frame with the current promises. The frame that closes a burst already promises what
    /// follows the burst, because a receiver handles the messages of a frame before its promises.
    #[inline]
    pub(super) fn seal_frame(
        &mut self,
        now: Now,
        service: Service,
        slot: &mut [u8],
        draft: Draft,
    ) -> Transmit {
        if service == Service::Reliable
            && let Some(relayed) = self.poll_relay(now, slot, &draft)
        {
            return relayed;
        }
        let promises = self.current_promises();
        let header = draft.header(&self.config, promises);
        let frame_len = match self.config.has_checksums {
            true => seal(slot, header, draft.payload_len),
            false => seal_unsummed(slot, header, draft.payload_len),
        };
        self.stats.frames_sent += 1;
        self.stats.frames_shared += u64::from(draft.opcode.is_shared());
        let port = self.port_to(draft.to);
        let is_direct = self.is_direct(port);
        if self.config.heartbeat_interval_ns > 0 {
            self.require_promise(service, &draft, is_direct);
        }
        if !is_direct {
            self.link.on_sent(now.mono, promises, self.timestamps.is_started());
        }
        Transmit { port, bytes: frame_len }
    }

    /// Returns the timestamp below which reliable messages may be delivered in separate mode.
    #[inline]
    pub(super) fn delivery_barrier(&self) -> Option<Timestamp> {
        let commit = self.commit_barrier()?;
        if makes(Mistake::DeliverBeforeCommit) {
            return Some(self.link.barrier().map_or(commit, |barrier| commit.max(barrier)));
        }
        Some(commit)
    }

    /// Returns the next reliable message in separate mode.
    #[inline(never)]
    pub(super) fn next_reliable(&mut self) -> Option<Delivery> {
        let commit = self.delivery_barrier()?;
        self.reliable.next(&self.config, commit, &mut self.stats)
    }

    //= spec/ordering.md#R24
    /// Returns the next message of both services in their common order.
    #[inline(never)]
    pub(super) fn next_merged(&mut self) -> Option<Delivery> {
        let commit = self.commit_barrier()?;
        let barrier = match self.exclusion {
            // Recovery has resolved messages beyond the last barrier, and nothing else will arrive.
            Exclusion::Recovered(_) | Exclusion::Finished(_) => commit,
            _ => self.link.barrier()?.min(commit),
        };
        self.next_in_order(barrier)
    }

    /// Returns the next message of both services below `barrier`.
    pub(super) fn next_in_order(&mut self, barrier: Timestamp) -> Option<Delivery> {
        let (config, stats) = (&self.config, &mut self.stats);
        // No two scatterings of a process share a timestamp, so these keys never tie.
        let one = self.best_effort.stage(config, barrier, stats);
        let other = self.reliable.stage(config, barrier, stats);
        let is_first = other.is_none() || one.is_some_and(|one| Some(one) < other);
        let channel = if is_first { &mut self.best_effort } else { &mut self.reliable };
        channel.next(config, barrier, stats)
    }

    /// Returns the next event if it is a message that needs neither the delivery filter nor the
    /// merge of both services; [`Endpoint::poll_other_event`] returns all others. Together they are
    /// [`onepipe_base::Machine::poll_event`]. A caller that handles the two apart has no place in
    /// memory where frequent and rare events meet: an event that is written there field by field
    /// and copied whole stalls on store forwarding, which took a third of a receiver's time.
    #[inline(always)]
    pub fn poll_delivery(&mut self) -> Option<Delivery> {
        if self.has_notification() { None } else { self.next_unfiltered() }
    }

    /// Returns the next event after [`Endpoint::poll_delivery`] has returned `None`.
    #[inline(never)]
    pub fn poll_other_event(&mut self) -> Option<Event> {
        if self.has_notification() {
            if let Some(event) = self.poll_notification() {
                return Some(event);
            }
            if self.is_handing_back() {
                return self.next_handed_back();
            }
            // An excluded process delivers what it has received.
            if let Some(delivery) = self.next_unfiltered() {
                return Some(Event::Delivered(delivery));
            }
        }
        self.poll_filtered()
    }

    /// Returns the next message in separate mode, unless it must pass the delivery filter.
    // Inlined, as all callees that make a delivery, for the reason given above.
    #[inline(always)]
    fn next_unfiltered(&mut self) -> Option<Delivery> {
        if self.config.receive_mode != ReceiveMode::Separate {
            return None;
        }
        // Best-effort messages are never recalled, and in separate mode none is staged.
        if let Some(barrier) = self.link.barrier()
            && let Some(delivery) = self.best_effort.receiver.next(barrier)
        {
            self.stats.messages_delivered += 1;
            self.check_delivery(&delivery);
            return Some(delivery);
        }
        if self.reliable.is_used()
            && self.reliable.is_unfiltered()
            && let Some(commit) = self.delivery_barrier()
            && let Some(delivery) = self.reliable.receiver.next(commit)
        {
            self.stats.messages_delivered += 1;
            self.check_delivery(&delivery);
            return Some(delivery);
        }
        None
    }

    /// Returns whether a notification (a failure, a lost link, or a message without an order)
    /// precedes the next message of the order.
    #[inline]
    pub(super) fn has_notification(&self) -> bool {
        let failed_messages =
            self.best_effort.sender.failures.len() + self.reliable.sender.failures.len();
        let lost_peers = self.lost_links.len() + self.failed.len() + self.departed.len();
        failed_messages + lost_peers > 0
            || self.best_effort.receiver.has_unordered()
            || !self.is_ordinary()
    }

    /// Returns whether this process is a member that does not hand back messages.
    #[inline]
    fn is_ordinary(&self) -> bool {
        self.exclusion == Exclusion::Member && !self.is_handing_back()
    }

    #[cold]
    pub(super) fn poll_notification(&mut self) -> Option<Event> {
        if let Some(delivery) = self.best_effort.receiver.next_unordered() {
            self.stats.messages_delivered += 1;
            return Some(Event::Delivered(delivery));
        }
        if matches!(self.exclusion, Exclusion::Excluded(..)) {
            // `Excluded` comes first: it explains the failures that follow.
            return self.poll_failure_event();
        }
        let failures = &mut self.best_effort.sender.failures;
        let failed = failures.pop_front();
        if let Some(failed) = failed.or_else(|| self.reliable.sender.failures.pop_front()) {
            return Some(self.count_failure(failed));
        }
        if let Some(port) = self.lost_links.pop_front() {
            return Some(Event::LinkLost(port));
        }
        self.poll_failure_event()
    }

    /// Returns the next message that must pass the delivery filter or the merge of both services.
    /// Without one, returns the event that ends recovery.
    #[inline(never)]
    pub(super) fn poll_filtered(&mut self) -> Option<Event> {
        let delivery = match self.config.receive_mode {
            ReceiveMode::Separate if self.reliable.is_unfiltered() => None,
            ReceiveMode::Separate => self.next_reliable(),
            ReceiveMode::Merged => self.next_merged(),
        };
        let Some(delivery) = delivery else { return self.poll_recovered_event() };
        self.stats.messages_delivered += 1;
        self.check_delivery(&delivery);
        Some(Event::Delivered(delivery))
    }

    fn count_failure(&mut self, failed: SendFailed) -> Event {
        match failed.outcome {
            Outcome::Lost => self.stats.messages_lost += 1,
            Outcome::Unknown => self.stats.messages_unknown += 1,
        }
        Event::SendFailed(failed)
    }
}
