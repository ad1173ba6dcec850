//! From `scatter` to frames: buffer → credit → burst (stamp, coalesce, cut) → flight.

mod abandon;
mod ack;
pub(crate) mod buffer;
mod burst;
mod commit;
mod congestion;
mod connection;
mod credit;
mod flight;
#[cfg(test)]
mod harness;
mod recall;
mod retransmit;
mod retransmit_buffer;
mod rtt;
mod signal;
mod timer;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use onepipe_base::{Incarnation, Mono, ProcessId, ScatteringId, Timestamp};
use onepipe_wire::{Service, Undeliverable};

use crate::arena::PayloadRef;
use crate::peers::PeerTable;
use crate::timestamp::TimestampSource;
use crate::{Config, Message, SendError, SendFailed};
use buffer::{Queued, SendBuffer};
use burst::Burst;
pub(crate) use burst::Written;
use commit::{CommitTracker, Target};
use connection::{Connection, Reservation};
use credit::{Credit, SingleMessage};
use retransmit_buffer::UnackedMessage;

/// A message to the process itself: it never sees the network.
pub(crate) struct Local<'a> {
    pub timestamp: Timestamp,
    pub index: u16,
    pub payload: &'a [u8],
    /// It exceeds the window and goes into room.
    pub is_reserved: bool,
}

/// The sending half of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sender {
    service: Service,
    /// The longest frame, in bytes.
    frame_len_max: usize,
    buffer: SendBuffer,
    peers: PeerTable<Connection>,
    credit: Credit,
    burst: Burst,
    /// Connections with a connect or a probe to send.
    signals: VecDeque<u32>,
    pub(crate) failures: VecDeque<SendFailed>,
    /// The earliest deadline of any connection, or earlier.
    deadline: Option<Mono>,
    /// Bytes of the window at the process itself.
    local_window: u64,
    /// Room that is asked for at the process itself, and room there that is not needed any more:
    /// how much of it was given.
    local_request: Option<u64>,
    local_release: Option<u64>,
    /// Of the reliable service: scatterings whose fate is open.
    commit: CommitTracker,
    /// Connections with packets to send again.
    retransmit_queue: VecDeque<u32>,
    /// Scatterings of the process to itself that are taken back.
    pub(crate) local_recalls: Vec<Timestamp>,
    /// Recalls whose receiver has failed, to be recorded, and the numbers of their scatterings;
    /// behind it, the numbers of those that are being recorded. Until then the scattering is open.
    undeliverable: VecDeque<(Undeliverable, u64)>,
    recording_undeliverable: VecDeque<u64>,
    /// Receivers that do not answer: frames to them shall go by a controller.
    pub(crate) unreachable: Vec<ProcessId>,
    /// Recalls that are not acknowledged.
    recalls_open: u32,
    /// Messages that one acknowledgement has settled, and scatterings that it has broken.
    acked: Vec<UnackedMessage>,
    to_recall: Vec<u64>,
    targets: Vec<Target>,
}

impl Sender {
    pub fn new(config: &Config, service: Service, local_window: u64) -> Self {
        Self {
            service,
            frame_len_max: config.frame_len_max_of(service),
            buffer: SendBuffer::new(config.send_buffer_bytes_max),
            peers: PeerTable::new(config.processes_max),
            credit: Credit::new(),
            burst: Burst::new(),
            signals: VecDeque::new(),
            failures: VecDeque::new(),
            deadline: None,
            local_window,
            local_request: None,
            local_release: None,
            commit: CommitTracker::new(),
            retransmit_queue: VecDeque::new(),
            local_recalls: Vec::new(),
            undeliverable: VecDeque::new(),
            recording_undeliverable: VecDeque::new(),
            unreachable: Vec::new(),
            recalls_open: 0,
            acked: Vec::new(),
            to_recall: Vec::new(),
            targets: Vec::new(),
        }
    }

    /// Accepts a scattering whole, or refuses it whole. `last_failed` says of a destination that is
    /// used for the first time which life of it was the last that has failed.
    #[inline]
    pub fn submit(
        &mut self,
        config: &Config,
        messages: &[Message<'_>],
        last_failed: impl Fn(ProcessId) -> Option<Incarnation>,
    ) -> Result<ScatteringId, SendError> {
        let need = config.check_scattering(messages)?;
        self.buffer.check(need)?;
        for message in messages {
            let to =
                self.peers.index_or_insert(message.to, || match message.to == config.process {
                    true => {
                        Connection::loopback(message.to, config, self.service, self.local_window)
                    }
                    false => {
                        let connection = Connection::new(message.to, config, self.service);
                        match last_failed(message.to) {
                            Some(incarnation) => connection.with_failed(incarnation),
                            None => connection,
                        }
                    }
                });
            self.buffer.push_message(to as u32, message.payload);
        }
        Ok(self.buffer.push(messages.len() as u32))
    }

    /// Fetches what an acknowledgement from `process` will change.
    #[inline]
    pub fn prefetch(&self, process: ProcessId) -> u64 {
        self.peers.index_of(process).map_or(0, |at| self.peers.get(at).prefetch())
    }

    /// Whether there are messages to send now, or something to settle with the receiving half. What
    /// waits in the buffer counts only if it may leave.
    #[inline]
    pub fn has_data(&self, may_send: bool) -> bool {
        self.burst.first().is_some()
            || (may_send && !self.credit.is_blocked(self.buffer.len()))
            || !self.retransmit_queue.is_empty()
            || self.local_request.is_some()
            || self.local_release.is_some()
    }

    /// Whether there are connects, probes or recalls to send now.
    #[inline]
    pub fn has_signal(&self) -> bool {
        !self.signals.is_empty()
    }

    /// Bytes in the send buffer.
    pub fn buffered_bytes(&self) -> usize {
        self.buffer.bytes_used()
    }

    /// Whether everything submitted has left.
    pub fn has_sent_all(&self) -> bool {
        self.buffer.len() == 0 && self.burst.first().is_none()
    }

    /// Whether the fate of everything submitted is known.
    pub fn is_drained(&self) -> bool {
        self.has_sent_all()
            && self.commit.is_complete()
            && self.peers.iter().all(|connection| connection.flight.is_accounted_for())
    }

    /// The timestamp of the oldest reliable scattering whose fate is open.
    #[inline]
    pub fn oldest_open(&self) -> Option<Timestamp> {
        self.commit.oldest()
    }

    /// The first timestamp of a burst that is still being sent.
    #[inline]
    pub fn unfinished_burst(&self) -> Option<Timestamp> {
        self.burst.first()
    }

    /// Stamps as many scatterings as may leave now and fit one burst. Messages to the process
    /// itself go to `deliver`. Answers how many messages were stamped.
    pub fn start_burst(
        &mut self,
        config: &Config,
        now: Mono,
        timestamps: &mut TimestampSource,
        mut deliver: impl FnMut(Local<'_>),
    ) -> u64 {
        debug_assert!(self.burst.first().is_none(), "one burst at a time");
        let (mut len, mut count) = (0, 0);
        while len < config.burst_bytes_max {
            if let Some(single) = self.admit_single() {
                len += single.message.charge() as usize;
                count += 1;
                self.send_single(single, timestamps.next(), &mut deliver);
                continue;
            }
            let Some(admitted) = self.admit(config, now, count == 0) else { break };
            let scattering = admitted.scattering;
            if self.has_failed(scattering) {
                // No timestamp, and no place among the open ones: behind a scattering that stays
                // open they would pile up as fast as an application can submit.
                self.buffer.mark_sent(admitted.position);
                continue;
            }
            let timestamp = timestamps.next();
            let mut targets = (0, 0);
            for at in 0..scattering.messages {
                let message = *self.buffer.message(scattering.first + u64::from(at));
                if message.has_failed() {
                    continue;
                }
                let (index, piece) = (at as u16, (message.payload_ref, message.len));
                len += message.charge() as usize;
                count += 1;
                let connection = self.peers.get(message.to as usize);
                if self.service == Service::Reliable {
                    self.commit.push_target(Target { to: message.to, index });
                    targets.0 += 1;
                    targets.1 += u32::from(!connection.is_local);
                }
                if connection.is_local {
                    let is_reserved = connection.uses_reservation;
                    self.deliver_local(piece, is_reserved, timestamp, index, &mut deliver);
                } else {
                    self.chain(message.to, timestamp, scattering.id, index, piece);
                }
            }
            if self.service == Service::Reliable {
                self.commit.push(scattering.id, timestamp, targets.0, targets.1);
            }
            self.buffer.mark_sent(admitted.position);
            if admitted.needs_reservation {
                // Alone in its burst, so that no packet mixes window and room.
                if let Some(at) = self.peers.index_of(config.process) {
                    self.peers.get_mut(at).uses_reservation = false;
                }
                break;
            }
        }
        count
    }

    /// Whether all its messages were reported as lost before they could leave.
    fn has_failed(&self, scattering: Queued) -> bool {
        let numbers = scattering.first..scattering.first + u64::from(scattering.messages);
        numbers.into_iter().all(|number| self.buffer.message(number).has_failed())
    }

    #[inline]
    fn send_single(
        &mut self,
        single: SingleMessage,
        timestamp: Timestamp,
        deliver: &mut impl FnMut(Local<'_>),
    ) {
        let piece = (single.message.payload_ref, single.message.len);
        if single.is_local {
            self.deliver_local(piece, false, timestamp, 0, deliver);
        } else {
            self.chain(single.message.to, timestamp, single.id, 0, piece);
        }
        if self.service == Service::Reliable {
            let target = Target { to: single.message.to, index: 0 };
            let missing = u32::from(!single.is_local);
            self.commit.push_single(single.id, timestamp, target, missing);
        }
        self.buffer.send_single();
    }

    fn deliver_local(
        &mut self,
        (payload_ref, len): (PayloadRef, u32),
        is_reserved: bool,
        timestamp: Timestamp,
        index: u16,
        deliver: &mut impl FnMut(Local<'_>),
    ) {
        let payload = self.buffer.payload(payload_ref, len);
        deliver(Local { timestamp, index, payload, is_reserved });
        self.buffer.release(payload_ref, len);
    }

    /// Room that is to be asked for at the process itself.
    pub fn take_local_request(&mut self) -> Option<u64> {
        self.local_request.take()
    }

    /// Room at the process itself that is not needed any more, whether it was given or not: how
    /// much of it was.
    pub fn take_local_release(&mut self) -> Option<u64> {
        self.local_release.take()
    }

    /// There is no such room at the process itself.
    pub fn on_local_request_refused(&mut self, config: &Config) {
        if let Some(at) = self.peers.index_of(config.process) {
            self.peers.get_mut(at).reservation = Reservation::Refused;
            self.credit.reconsider();
        }
    }

    /// The room asked for at the process itself is given.
    pub fn on_local_grant(&mut self, config: &Config, len: u64) {
        if let Some(at) = self.peers.index_of(config.process) {
            self.peers.get_mut(at).reservation = Reservation::Granted(len);
            self.credit.reconsider();
        }
    }

    /// The application has consumed a message of the process to itself.
    pub fn on_local_consumed(&mut self, config: &Config, charge: u64, was_reserved: bool) {
        if let Some(at) = self.peers.index_of(config.process) {
            if !was_reserved {
                self.peers.get_mut(at).consumed += charge;
            }
            self.credit.reconsider();
        }
    }
}
