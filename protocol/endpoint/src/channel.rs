//! The channel of one service: its sender and its receiver.

use alloc::vec::Vec;
use core::hint::black_box;

use onepipe_base::{Mono, ProcessId, ProcessInstance, Promises, Psn, Timestamp};
use onepipe_wire::{
    AckView, Connect, Flags, Frame, Header, Opcode, PiggybackedAck, Probe, RECALL_LEN, Recall,
    Service,
};

use crate::receive::{Arrival, Disposition, Receiver, Tombstone};
use crate::send::{DataFrame, Sender};
use crate::timestamp::TimestampSource;
use crate::{Config, Delivery, Stats};

/// The stages of one service, independent of those of the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Channel {
    service: Service,
    /// Whether a message was submitted or a frame has arrived. Most processes use one service only;
    /// the other must cost them no more than this check.
    is_used: bool,
    pub sender: Sender,
    pub receiver: Receiver,
    /// The next message to deliver, taken from the receiver to compare its key with that of the
    /// other service's next message.
    staged: Option<Delivery>,
    /// The timestamps of one recall acknowledgement; a field so that its memory is reused.
    recalled: Vec<Timestamp>,
}

/// A frame to be sealed: the fields of its header except promises, and the length of its payload.
pub(crate) struct Draft {
    pub to: ProcessId,
    pub opcode: Opcode,
    pub flags: u8,
    /// Timestamp of the first message; `None` for a frame without messages.
    pub timestamp: Option<Timestamp>,
    pub psn: Psn,
    pub payload_len: usize,
}

impl Draft {
    /// Builds the header in one expression, because it is too large to be copied in parts.
    #[inline]
    pub fn header(&self, config: &Config, promises: Promises) -> Header {
        let timestamp = self.timestamp.unwrap_or(promises.barrier);
        let header = Header::new(self.opcode, config.process, self.to, config.incarnation)
            .flagged(self.flags)
            .stamped(timestamp, promises, self.psn);
        if self.opcode.is_shared() { header.unaddressed() } else { header }
    }
}

impl Channel {
    pub fn new(config: &Config, service: Service) -> Self {
        let receiver = Receiver::new(config, service);
        let sender = Sender::new(config, service, receiver.window_bytes());
        Self { service, is_used: false, sender, receiver, staged: None, recalled: Vec::new() }
    }

    #[inline]
    pub fn is_used(&self) -> bool {
        self.is_used
    }

    /// Marks the channel as used.
    #[inline]
    pub fn mark_used(&mut self) {
        self.is_used = true;
    }

    /// Returns whether a transmit poll may return a frame. Submitted messages count only with
    /// `may_send`.
    #[inline]
    pub fn wants_transmit(&self, may_send: bool) -> bool {
        self.is_used && (self.has_signal() || self.has_data(may_send))
    }

    /// Returns whether [`Channel::poll_signal`] may return a frame.
    #[inline]
    pub fn wants_signal(&self) -> bool {
        self.is_used && self.has_signal()
    }

    /// Returns whether [`Channel::poll_data`] may return a frame, or has a reservation for local
    /// messages to pass on to the sender.
    #[inline]
    pub fn wants_data(&self, may_send: bool) -> bool {
        self.is_used && self.has_data(may_send)
    }

    #[inline]
    fn has_signal(&self) -> bool {
        self.receiver.wants_transmit() || self.sender.has_signal()
    }

    #[inline]
    fn has_data(&self, may_send: bool) -> bool {
        self.sender.has_data(may_send) || self.receiver.has_local_grant()
    }

    /// Returns the earliest deadline of the channel.
    #[inline]
    pub fn deadline(&self) -> Option<Mono> {
        if !self.is_used {
            return None;
        }
        Mono::earlier(self.sender.deadline(), self.receiver.deadline())
    }

    /// Handles a frame of the service. Returns whether it was accepted.
    #[inline]
    pub fn on_frame(
        &mut self,
        config: &Config,
        arrival: Arrival,
        frame: &Frame<'_>,
        stats: &mut Stats,
    ) -> bool {
        self.is_used = true;
        let accepted = self.dispatch(config, arrival, frame, stats);
        if accepted.is_none() {
            stats.frames_malformed += 1;
        }
        accepted == Some(true)
    }

    /// Handles a frame by its opcode. Returns whether it was accepted; `None` if it is malformed.
    #[inline]
    fn dispatch(
        &mut self,
        config: &Config,
        arrival: Arrival,
        frame: &Frame<'_>,
        stats: &mut Stats,
    ) -> Option<bool> {
        let (header, now) = (frame.header, arrival.now);
        let from = ProcessInstance { process: header.src(), incarnation: header.incarnation() };
        Some(match frame.opcode.in_best_effort() {
            Opcode::Data if header.has(Flags::PIGGYBACK) => {
                let (ack, messages) = PiggybackedAck::split(frame.payload).ok()?;
                self.sender.on_piggybacked_ack(config, now, from, ack);
                let frame = Frame { payload: messages, ..*frame };
                self.receiver.on_data(config, arrival, &frame, stats) == Disposition::Accepted
            }
            Opcode::Data | Opcode::Fragment => {
                self.receiver.on_data(config, arrival, frame, stats) == Disposition::Accepted
            }
            opcode @ (Opcode::Ack | Opcode::Nak | Opcode::Grant) => {
                let view = AckView::parse(frame.payload).ok()?;
                let is_ours = self.sender.on_ack(config, now, from, opcode, &view);
                stats.frames_stale += u64::from(!is_ours);
                is_ours
            }
            Opcode::Probe => self.receiver.on_probe(now, from, Probe::parse(frame.payload).ok()?),
            Opcode::Connect => {
                let connect = Connect::parse(frame.payload).ok()?;
                self.sender.on_reconnect(from);
                self.receiver.on_connect(config, now, from, header.psn(), connect)
            }
            Opcode::Reset => {
                self.sender.on_reset(config, now, from, header.psn(), stats);
                true
            }
            Opcode::Recall | Opcode::RecallAck => {
                let recall = Recall::parse(frame.payload).ok()?;
                self.on_recall(frame.opcode, from, arrival, &recall, stats)
            }
            _ => return None,
        })
    }

    fn on_recall(
        &mut self,
        opcode: Opcode,
        from: ProcessInstance,
        arrival: Arrival,
        recall: &Recall<'_>,
        stats: &mut Stats,
    ) -> bool {
        let timestamps = recall.timestamps(arrival.clock);
        if opcode == Opcode::RecallAck {
            return self.sender.on_recall_ack(from, timestamps);
        }
        let Some(refused) = self.receiver.on_recall(from, timestamps) else { return false };
        stats.recalls_refused += refused;
        if let Some(barrier) = arrival.barrier {
            let late = recall.timestamps(arrival.clock).filter(|timestamp| *timestamp < barrier);
            stats.recalls_late += late.count() as u64;
        }
        true
    }

    /// Checks what both stages share.
    pub fn check_invariants(&self) {
        let staged = self.staged.iter();
        let mut ours = staged.map(|staged| staged.service == self.service);
        assert!(ours.all(|is_ours| is_ours), "a channel stages its own messages");
        let local = self.sender.local_window();
        assert_eq!(local, self.receiver.window_bytes(), "local messages have a window as others");
    }

    /// Writes the next frame without messages into `payload`: acknowledgement, connect, probe or
    /// recall.
    pub fn poll_signal(
        &mut self,
        config: &Config,
        now: Mono,
        payload: &mut [u8],
        stats: &mut Stats,
    ) -> Option<Draft> {
        let recalls_max = payload.len() / RECALL_LEN;
        let recalled = self.receiver.take_recall_acks(&mut self.recalled, recalls_max);
        let (to, opcode, psn, payload_len) = if let Some(to) = recalled {
            let payload_len = Recall::write(payload, self.recalled.iter().copied());
            (to, Opcode::RecallAck, Psn::FIRST, payload_len)
        } else if let Some(response) = self.receiver.write_response(now, payload) {
            stats.acks_sent += 1;
            (response.to, response.opcode, response.psn, response.payload_len)
        } else {
            let signal = self.sender.write_signal(config, payload)?;
            stats.probes_sent += u64::from(signal.opcode == Opcode::Probe);
            (signal.to, signal.opcode, signal.psn, signal.payload_len)
        };
        let opcode = opcode.in_service(self.service);
        Some(Draft { to, opcode, flags: 0, timestamp: None, psn, payload_len })
    }

    //= spec/ordering.md#R3
    /// Writes the payload of the next data frame behind the header in `slot`: a retransmission, a
    /// packet of the current burst or, if `may_send_new`, the first packet of a new burst.
    #[inline]
    pub fn poll_data(
        &mut self,
        config: &Config,
        now: Mono,
        may_send_new: bool,
        timestamps: &mut TimestampSource,
        slot: &mut [u8],
        stats: &mut Stats,
    ) -> Option<Draft> {
        if self.sender.unfinished_burst().is_none() {
            if !timestamps.is_started() {
                return None;
            }
            if let Some(written) = self.sender.write_retransmit(now, slot, stats) {
                return Some(self.draft(&written));
            }
            if !may_send_new {
                return None;
            }
            let receiver = &mut self.receiver;
            if let Some(granted) = receiver.take_local_grant() {
                self.sender.on_local_grant(config, granted);
            }
            let started = self.sender.start_burst(config, now, timestamps, |local| {
                receiver.on_local(config, local);
            });
            stats.messages_sent += started.messages;
            if let Some(granted) = started.local_release {
                receiver.release_local_reservation(granted);
            }
            if let Some(size) = started.local_request
                && !receiver.request_local_reservation(size)
            {
                self.sender.on_local_request_refused(config);
            }
            // Each frame of the burst may carry an acknowledgement: the state of all receivers is
            // prefetched together, so that the cache misses overlap.
            let to = self.sender.burst_destinations();
            black_box(to.fold(0, |all, to| all ^ self.receiver.prefetch(to)));
        }
        let receiver = &mut self.receiver;
        let written = self.sender.write_data(config, now, slot, |to, payload| {
            let len = receiver.write_piggyback(now, to, payload);
            stats.acks_piggybacked += u64::from(len > 0);
            len
        })?;
        Some(self.draft(&written))
    }

    #[inline]
    fn draft(&self, written: &DataFrame) -> Draft {
        Draft {
            to: written.to,
            opcode: written.opcode.in_service(self.service),
            flags: written.flags,
            timestamp: Some(written.timestamp),
            psn: written.psn,
            payload_len: written.payload_len,
        }
    }

    /// Stages the next deliverable message below `barrier`, and returns its key.
    pub fn stage(
        &mut self,
        config: &Config,
        barrier: Timestamp,
        stats: &mut Stats,
    ) -> Option<(Timestamp, ProcessId)> {
        if self.staged.is_none() {
            self.staged = self.next(config, barrier, stats);
        }
        let staged = self.staged.as_ref()?;
        Some((staged.timestamp, staged.from))
    }

    /// Returns whether a message is staged.
    pub fn is_staged(&self) -> bool {
        self.staged.is_some()
    }

    /// Returns the next deliverable message below `barrier`.
    #[inline(never)]
    pub fn next(
        &mut self,
        config: &Config,
        barrier: Timestamp,
        stats: &mut Stats,
    ) -> Option<Delivery> {
        if self.is_unfiltered() {
            self.receiver.next(barrier)
        } else {
            self.next_filtered(config, barrier, stats)
        }
    }

    /// Returns whether the receiver's next message is the next to deliver: none is staged, and no
    /// recall or discard is pending.
    #[inline]
    pub fn is_unfiltered(&self) -> bool {
        self.staged.is_none()
            && self.receiver.filter.is_empty()
            && self.sender.local_recalls.is_empty()
    }

    /// Returns the next message that is neither recalled nor discarded.
    #[cold]
    fn next_filtered(
        &mut self,
        config: &Config,
        barrier: Timestamp,
        stats: &mut Stats,
    ) -> Option<Delivery> {
        self.apply_local_recalls(config);
        if self.staged.is_some() {
            return self.staged.take();
        }
        while let Some(delivery) = self.receiver.next(barrier) {
            match self.receiver.filter.check(&delivery) {
                None => {
                    let is_recalled = self.receiver.filter.is_recalled(&delivery);
                    debug_assert!(!is_recalled, "I7: a recalled scattering is not delivered");
                    return Some(delivery);
                }
                Some(Tombstone::Recalled) => stats.messages_recalled += 1,
                Some(Tombstone::Discarded) => stats.messages_discarded += 1,
            }
            self.release(config, &delivery);
        }
        self.receiver.filter.on_barrier(barrier);
        None
    }

    /// Recalls messages that this process has scattered to itself.
    #[inline]
    fn apply_local_recalls(&mut self, config: &Config) {
        while let Some(timestamp) = self.sender.local_recalls.pop() {
            self.receiver.recall_local(config.process, timestamp);
        }
    }

    /// Releases a message that the application has consumed or that will not be delivered.
    #[inline]
    pub fn release(&mut self, config: &Config, delivery: &Delivery) {
        let (charge, was_reserved) = self.receiver.release(config, delivery);
        if delivery.from == config.process {
            self.sender.on_local_consumed(config, charge, was_reserved);
        }
    }
}
