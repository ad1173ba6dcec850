//! The send path, from `scatter` to frames: buffer → credit → burst (stamp, coalesce, fragment) →
//! flight.

mod abandon;
mod ack;
mod ack_summary;
pub(crate) mod buffer;
mod burst;
mod chain;
mod check;
mod commit;
mod congestion;
mod connection;
mod credit;
mod flight;
mod give_up;
mod handshake;
#[cfg(test)]
mod harness;
mod open;
mod recall;
mod retransmit;
mod retransmit_buffer;
mod retransmit_timeout;
mod round_trips;
mod shared;
mod signal;
mod submit;
mod timer;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use onepipe_base::{Mono, ProcessId, ScatteringId, Timestamp};
use onepipe_wire::{Service, Undeliverable};

use crate::peers::PeerTable;
use crate::timestamp::TimestampSource;
use crate::{Config, Links, SendFailed};
use buffer::{QueuedMessage, QueuedScattering, SendBuffer};
use burst::Burst;
pub(crate) use burst::DataFrame;
use commit::{CommitTracker, Target};
use connection::{Connection, Reservation};
use credit::{AdmittedMessage, Credit};
use retransmit_buffer::UnackedMessage;

/// A message of the process to itself, which bypasses the network.
pub(crate) struct LocalMessage<'a> {
    pub timestamp: Timestamp,
    pub index: u16,
    pub payload: &'a [u8],
    pub is_unordered: bool,
    /// The message exceeds the window and is charged to a reservation.
    pub is_reserved: bool,
}

/// What was stamped, and what the local receiver must do for messages that exceed the window.
pub(crate) struct StartedBurst {
    /// Number of messages stamped.
    pub messages: u64,
    /// A reservation to release, granted or not: the bytes that were granted.
    pub local_release: Option<u64>,
    /// A reservation to request then, in bytes.
    pub local_request: Option<u64>,
}

/// The sender of one service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sender {
    service: Service,
    frame_len_max: usize,
    /// Whether a message for several destinations is sent once.
    shares_payloads: bool,
    /// Reused for the destinations of one shared frame.
    sharing: Vec<u32>,
    buffer: SendBuffer,
    peers: PeerTable<Connection>,
    credit: Credit,
    burst: Burst,
    /// Connections with a Connect, Probe or Recall to send.
    signals: VecDeque<u32>,
    pub(crate) failures: VecDeque<SendFailed>,
    /// Lower bound of all deadlines of connections.
    deadline: Option<Mono>,
    /// Retransmission timeout of the connection with the latest sample, in ns.
    last_rto_ns: u64,
    /// Window of the process at its own receiver, in bytes.
    local_window: u64,
    /// What the burst that is being started needs of the local receiver: see [`StartedBurst`].
    local_request: Option<u64>,
    local_release: Option<u64>,
    /// Reliable service: the open scatterings.
    commit: CommitTracker,
    /// Connections with packets to retransmit.
    retransmit_queue: VecDeque<u32>,
    /// Local scatterings to recall.
    pub(crate) local_recalls: Vec<Timestamp>,
    /// Recalls to failed receivers that are yet to be passed to the control plane, with the numbers
    /// of their scatterings. A scattering stays open until the controllers have recorded them.
    undeliverable: VecDeque<(Undeliverable, u64)>,
    /// Numbers of the scatterings whose recalls were passed on and are not recorded yet.
    recording_undeliverable: VecDeque<u64>,
    /// Receivers that do not respond: frames to them are relayed by a controller.
    pub(crate) unreachable: Vec<ProcessId>,
    /// Number of recalls without an acknowledgement.
    recalls_open: u32,
    /// Messages resolved by the current acknowledgement.
    acked: Vec<UnackedMessage>,
    /// Scatterings to recall because of the current acknowledgement.
    to_recall: Vec<u64>,
    /// Scatterings that the application has cancelled, to be taken back before the next burst.
    cancelled: Vec<ScatteringId>,
    /// While nothing may be sent: when the scatterings with ids below this one fail.
    blocked: Option<(Mono, ScatteringId)>,
    /// Reused for the targets of one scattering.
    targets: Vec<Target>,
}

impl Sender {
    pub fn new(config: &Config, service: Service, local_window: u64) -> Self {
        Self {
            service,
            frame_len_max: config.frame_len_max_of(service),
            shares_payloads: config.shares_payloads && config.links == Links::Uplink,
            sharing: Vec::new(),
            buffer: SendBuffer::new(config.send_buffer_bytes_max),
            peers: PeerTable::new(config.processes_max),
            credit: Credit::new(),
            burst: Burst::new(),
            signals: VecDeque::new(),
            failures: VecDeque::new(),
            deadline: None,
            last_rto_ns: 0,
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
            cancelled: Vec::new(),
            blocked: None,
            targets: Vec::new(),
        }
    }

    /// Prefetches the state that an acknowledgement from `process` will change.
    #[inline]
    pub fn prefetch(&self, process: ProcessId) -> u64 {
        self.peers.index_of(process).map_or(0, |peer_index| self.peers.get(peer_index).prefetch())
    }

    /// Returns whether there are messages to send now. Submitted ones count if they `may_send`.
    #[inline]
    pub fn has_data(&self, may_send: bool) -> bool {
        self.burst.first().is_some()
            || (may_send && !self.credit.is_blocked(self.buffer.len()))
            || !self.retransmit_queue.is_empty()
    }

    /// Returns whether a Connect, Probe or Recall is to be sent now.
    #[inline]
    pub fn has_signal(&self) -> bool {
        !self.signals.is_empty()
    }

    /// Returns the bytes used in the send buffer.
    pub fn buffered_bytes(&self) -> usize {
        self.buffer.bytes_used()
    }

    /// Returns whether every submitted message was sent.
    pub fn has_sent_all(&self) -> bool {
        self.buffer.len() == 0 && self.burst.first().is_none()
    }

    /// Returns whether the outcome of every submitted message is known.
    pub fn is_drained(&self) -> bool {
        self.has_sent_all()
            && self.commit.is_complete()
            && self.peers.iter().all(|connection| connection.flight.is_accounted_for())
    }

    /// Returns the timestamp of the oldest open reliable scattering.
    #[inline]
    pub fn oldest_open(&self) -> Option<Timestamp> {
        self.commit.oldest()
    }

    /// Returns the first timestamp of the burst that is being sent.
    #[inline]
    pub fn unfinished_burst(&self) -> Option<Timestamp> {
        self.burst.first()
    }

    /// Stamps as many scatterings as may be sent now and fit one burst. Passes local messages to
    /// `deliver`.
    pub fn start_burst(
        &mut self,
        config: &Config,
        now: Mono,
        timestamps: &mut TimestampSource,
        mut deliver: impl FnMut(LocalMessage<'_>),
    ) -> StartedBurst {
        debug_assert!(self.burst.first().is_none(), "one burst at a time");
        let (mut bytes, mut count) = (0, 0);
        while bytes < config.burst_bytes_max {
            let run = self.stamp_run(config.burst_bytes_max - bytes, timestamps);
            if run.messages > 0 {
                bytes += run.charge as usize;
                count += run.messages;
                continue;
            }
            if let Some(single) = self.admit_single() {
                bytes += single.message.charge() as usize;
                count += 1;
                self.send_single(single, timestamps.next(), &mut deliver);
                continue;
            }
            let Some(admitted) = self.admit(config, now, count == 0) else { break };
            let scattering = admitted.scattering;
            if self.has_failed(scattering) {
                // Assigns no timestamp and does not count the scattering as open: behind an open
                // scattering, failed ones would accumulate as fast as the application can submit.
                self.buffer.mark_sent(admitted.position);
                continue;
            }
            let timestamp = timestamps.next();
            let (mut targets, mut remote_targets) = (0, 0);
            for message_index in 0..scattering.messages {
                let message = *self.buffer.message(scattering.first + u64::from(message_index));
                if message.has_failed() {
                    // Reported already, because the destination is unreachable.
                    continue;
                }
                let index = message_index as u16;
                bytes += message.charge() as usize;
                count += 1;
                let connection = self.peers.get(message.to as usize);
                if self.service == Service::Reliable {
                    self.commit.push_target(Target::new(message.to, index));
                    targets += 1;
                    remote_targets += u32::from(!connection.is_local);
                }
                let is_reserved = connection.uses_reservation;
                let outgoing = AdmittedMessage {
                    scattering: scattering.id,
                    message,
                    index,
                    is_local: connection.is_local,
                    is_unordered: scattering.is_unordered,
                };
                match outgoing.is_local {
                    true => self.deliver_local(outgoing, timestamp, is_reserved, &mut deliver),
                    false => self.chain(outgoing, timestamp),
                }
            }
            if self.service == Service::Reliable {
                self.commit.push(scattering.id, timestamp, targets, remote_targets);
            }
            self.buffer.mark_sent(admitted.position);
            if admitted.needs_reservation {
                // Ends the burst, so that no packet mixes messages of the window and the
                // reservation. Only the local connection is reset here; `write_data` resets the
                // others after their last packet.
                if let Some(peer_index) = self.peers.index_of(config.process) {
                    self.peers.get_mut(peer_index).uses_reservation = false;
                }
                break;
            }
        }
        StartedBurst {
            messages: count,
            local_release: self.local_release.take(),
            local_request: self.local_request.take(),
        }
    }

    /// Returns whether every message was reported as lost before it could be sent.
    fn has_failed(&self, scattering: QueuedScattering) -> bool {
        let numbers = scattering.first..scattering.first + u64::from(scattering.messages);
        numbers.into_iter().all(|number| self.buffer.message(number).has_failed())
    }

    #[inline]
    fn send_single(
        &mut self,
        single: AdmittedMessage,
        timestamp: Timestamp,
        deliver: &mut impl FnMut(LocalMessage<'_>),
    ) {
        match single.is_local {
            true => self.deliver_local(single, timestamp, false, deliver),
            false => self.chain(single, timestamp),
        }
        if self.service == Service::Reliable {
            let target = Target::new(single.message.to, 0);
            let acks_missing = u32::from(!single.is_local);
            self.commit.push_single(single.scattering, timestamp, target, acks_missing);
        }
        self.buffer.pop_singles(1);
    }

    fn deliver_local(
        &mut self,
        admitted: AdmittedMessage,
        timestamp: Timestamp,
        is_reserved: bool,
        deliver: &mut impl FnMut(LocalMessage<'_>),
    ) {
        debug_assert!(admitted.is_local, "other processes are reached by the network");
        let AdmittedMessage { message, index, is_unordered, .. } = admitted;
        let QueuedMessage { payload_ref, len, .. } = message;
        let payload = self.buffer.payload(payload_ref, len);
        deliver(LocalMessage { timestamp, index, payload, is_unordered, is_reserved });
        self.buffer.release(payload_ref, len);
    }

    /// Handles the refusal of a local reservation, which exceeds the limit.
    pub fn on_local_request_refused(&mut self, config: &Config) {
        if let Some(peer_index) = self.peers.index_of(config.process) {
            self.peers.get_mut(peer_index).reservation = Reservation::Refused;
            self.credit.reconsider();
        }
    }

    /// Handles the grant of a local reservation.
    pub fn on_local_grant(&mut self, config: &Config, granted: u64) {
        if let Some(peer_index) = self.peers.index_of(config.process) {
            self.peers.get_mut(peer_index).reservation = Reservation::Granted(granted);
            self.credit.reconsider();
        }
    }

    /// Handles the release of a local message by the application.
    pub fn on_local_consumed(&mut self, config: &Config, charge: u64, was_reserved: bool) {
        if let Some(peer_index) = self.peers.index_of(config.process) {
            if !was_reserved {
                self.peers.get_mut(peer_index).consumed += charge;
            }
            self.credit.reconsider();
        }
    }
}
