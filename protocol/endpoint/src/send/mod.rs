//! From `scatter` to frames: buffer → credit → burst (stamp, coalesce, cut) → flight.

mod abandon;
#[cfg(test)]
mod alone;
pub(crate) mod buffer;
mod burst;
mod commit;
mod congestion;
mod connection;
mod control;
mod credit;
mod flight;
mod keep;
mod recall;
mod resend;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use onepipe_base::{Incarnation, Mono, ProcessId, ScatteringId, Timestamp};
use onepipe_wire::{Service, Undeliverable};

use crate::peers::Peers;
use crate::segments::Place;
use crate::stamp::Stamp;
use crate::{Config, Message, SendError, SendFailed};
use buffer::{Queued, SendBuffer};
use burst::Burst;
pub(crate) use burst::Written;
use commit::{Commit, Target};
use connection::{Outgoing, Room};
use credit::{Credit, Single};
use keep::Kept;

/// A message to the process itself: it never sees the network.
pub(crate) struct Local<'a> {
    pub timestamp: Timestamp,
    pub index: u16,
    pub payload: &'a [u8],
    /// It exceeds the window and goes into room.
    pub in_room: bool,
}

/// The sending half of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sender {
    service: Service,
    /// The longest frame, in bytes.
    frame_len_max: usize,
    buffer: SendBuffer,
    peers: Peers<Outgoing>,
    credit: Credit,
    burst: Burst,
    /// Connections with a connect or a probe to send.
    control: VecDeque<u32>,
    pub(crate) failures: VecDeque<SendFailed>,
    /// The earliest deadline of any connection, or earlier.
    deadline: Option<Mono>,
    /// Bytes of the window at the process itself.
    local_window: u64,
    /// Room that is asked for at the process itself, and room there that is not needed any more:
    /// how much of it was given.
    local_room_wanted: Option<u64>,
    local_room_back: Option<u64>,
    /// Of the reliable service: scatterings whose fate is open.
    commit: Commit,
    /// Connections with packets to send again.
    resends: VecDeque<u32>,
    /// Scatterings of the process to itself that are taken back.
    pub(crate) local_recalls: Vec<Timestamp>,
    /// Recalls whose receiver has failed, to be recorded, and the numbers of their scatterings;
    /// behind it, the numbers of those that are being recorded. Until then the scattering is open.
    undeliverable: VecDeque<(Undeliverable, u64)>,
    recording: VecDeque<u64>,
    /// Receivers that do not answer: frames to them shall go by a controller.
    pub(crate) unreachable: Vec<ProcessId>,
    /// Recalls that are not acknowledged.
    recalls_open: u32,
    /// Messages that one acknowledgement has settled, and scatterings that it has broken.
    done: Vec<Kept>,
    broken: Vec<u64>,
    targets: Vec<Target>,
}

impl Sender {
    pub fn new(config: &Config, service: Service, local_window: u64) -> Self {
        Self {
            service,
            frame_len_max: config.frame_len_max_of(service),
            buffer: SendBuffer::new(config.send_buffer_bytes_max),
            peers: Peers::new(config.processes_max),
            credit: Credit::new(),
            burst: Burst::new(),
            control: VecDeque::new(),
            failures: VecDeque::new(),
            deadline: None,
            local_window,
            local_room_wanted: None,
            local_room_back: None,
            commit: Commit::new(),
            resends: VecDeque::new(),
            local_recalls: Vec::new(),
            undeliverable: VecDeque::new(),
            recording: VecDeque::new(),
            unreachable: Vec::new(),
            recalls_open: 0,
            done: Vec::new(),
            broken: Vec::new(),
            targets: Vec::new(),
        }
    }

    /// Accepts a scattering whole, or refuses it whole. `failed_life` says of a destination that is
    /// used for the first time which life of it was the last that has failed.
    #[inline]
    pub fn submit(
        &mut self,
        config: &Config,
        messages: &[Message<'_>],
        failed_life: impl Fn(ProcessId) -> Option<Incarnation>,
    ) -> Result<ScatteringId, SendError> {
        let need = config.check_scattering(messages)?;
        self.buffer.check(need)?;
        for message in messages {
            let to = self.peers.meet(message.to, || match message.to == config.process {
                true => Outgoing::to_itself(message.to, config, self.service, self.local_window),
                false => {
                    let outgoing = Outgoing::new(message.to, config, self.service);
                    match failed_life(message.to) {
                        Some(life) => outgoing.failed_in(life),
                        None => outgoing,
                    }
                }
            });
            self.buffer.push_message(to as u32, message.payload);
        }
        Ok(self.buffer.push(messages.len() as u32))
    }

    /// Fetches what an acknowledgement from `process` will change.
    #[inline]
    pub fn fetch(&self, process: ProcessId) -> u64 {
        self.peers.find(process).map_or(0, |at| self.peers.peek(at).fetch())
    }

    /// Whether there are messages to send now, or something to settle with the receiving half. What
    /// waits in the buffer counts only if it may leave.
    #[inline]
    pub fn has_data(&self, may_leave: bool) -> bool {
        self.burst.first().is_some()
            || (may_leave && !self.credit.is_stuck(self.buffer.len()))
            || !self.resends.is_empty()
            || self.local_room_wanted.is_some()
            || self.local_room_back.is_some()
    }

    /// Whether there are connects, probes or recalls to send now.
    #[inline]
    pub fn has_control(&self) -> bool {
        !self.control.is_empty()
    }

    /// Bytes in the send buffer.
    pub fn buffered_bytes(&self) -> usize {
        self.buffer.bytes()
    }

    /// Whether everything submitted has left.
    pub fn is_drained(&self) -> bool {
        self.buffer.len() == 0 && self.burst.first().is_none()
    }

    /// Whether the fate of everything submitted is known.
    pub fn is_settled(&self) -> bool {
        self.is_drained()
            && self.commit.is_settled()
            && self.peers.iter().all(|connection| connection.flight.is_accounted_for())
    }

    /// The timestamp of the oldest reliable scattering whose fate is open.
    #[inline]
    pub fn oldest_open(&self) -> Option<Timestamp> {
        self.commit.oldest()
    }

    /// The first timestamp of a burst that is still being sent.
    #[inline]
    pub fn unfinished(&self) -> Option<Timestamp> {
        self.burst.first()
    }

    /// Stamps as many scatterings as may leave now and fit one burst. Messages to the process
    /// itself go to `deliver`. Answers how many messages were stamped.
    pub fn start_burst(
        &mut self,
        config: &Config,
        now: Mono,
        stamp: &mut Stamp,
        mut deliver: impl FnMut(Local<'_>),
    ) -> u64 {
        debug_assert!(self.burst.first().is_none(), "one burst at a time");
        let (mut bytes, mut count) = (0, 0);
        while bytes < config.burst_bytes_max {
            if let Some(single) = self.admit_single() {
                bytes += single.message.charge() as usize;
                count += 1;
                self.leave_single(single, stamp.next(), &mut deliver);
                continue;
            }
            let Some(admitted) = self.admit(config, now, count == 0) else { break };
            let scattering = admitted.scattering;
            if self.has_failed(scattering) {
                // No timestamp, and no place among the open ones: behind a scattering that stays
                // open they would pile up as fast as an application can submit.
                self.buffer.leave(admitted.position);
                continue;
            }
            let timestamp = stamp.next();
            let mut targets = (0, 0);
            for at in 0..scattering.messages {
                let message = *self.buffer.message(scattering.first + u64::from(at));
                if message.has_failed() {
                    continue;
                }
                let (index, piece) = (at as u16, (message.place, message.bytes));
                bytes += message.charge() as usize;
                count += 1;
                let connection = self.peers.peek(message.to as usize);
                if self.service == Service::Reliable {
                    self.commit.push_target(Target { to: message.to, index });
                    targets.0 += 1;
                    targets.1 += u32::from(!connection.is_local);
                }
                if connection.is_local {
                    let in_room = connection.is_roomed;
                    self.deliver_local(piece, in_room, timestamp, index, &mut deliver);
                } else {
                    self.chain(message.to, timestamp, scattering.id, index, piece);
                }
            }
            if self.service == Service::Reliable {
                self.commit.push(scattering.id, timestamp, targets.0, targets.1);
            }
            self.buffer.leave(admitted.position);
            if admitted.needs_room {
                // Alone in its burst, so that no packet mixes window and room.
                if let Some(at) = self.peers.find(config.process) {
                    self.peers.at(at).is_roomed = false;
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
    fn leave_single(
        &mut self,
        single: Single,
        timestamp: Timestamp,
        deliver: &mut impl FnMut(Local<'_>),
    ) {
        let piece = (single.message.place, single.message.bytes);
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
        self.buffer.leave_single();
    }

    fn deliver_local(
        &mut self,
        (place, bytes): (Place, u32),
        in_room: bool,
        timestamp: Timestamp,
        index: u16,
        deliver: &mut impl FnMut(Local<'_>),
    ) {
        let payload = self.buffer.payload(place, bytes);
        deliver(Local { timestamp, index, payload, in_room });
        self.buffer.release(place, bytes);
    }

    /// Room that is to be asked for at the process itself.
    pub fn take_local_room_wanted(&mut self) -> Option<u64> {
        self.local_room_wanted.take()
    }

    /// Room at the process itself that is not needed any more, whether it was given or not: how
    /// much of it was.
    pub fn take_local_room_back(&mut self) -> Option<u64> {
        self.local_room_back.take()
    }

    /// There is no such room at the process itself.
    pub fn on_local_room_refused(&mut self, config: &Config) {
        if let Some(at) = self.peers.find(config.process) {
            self.peers.at(at).room = Room::Refused;
            self.credit.reconsider();
        }
    }

    /// The room asked for at the process itself is given.
    pub fn on_local_room(&mut self, config: &Config, bytes: u64) {
        if let Some(at) = self.peers.find(config.process) {
            self.peers.at(at).room = Room::Granted(bytes);
            self.credit.reconsider();
        }
    }

    /// The application has consumed a message of the process to itself.
    pub fn on_local_consumed(&mut self, config: &Config, charge: u64, was_in_room: bool) {
        if let Some(at) = self.peers.find(config.process) {
            if !was_in_room {
                self.peers.at(at).consumed += charge;
            }
            self.credit.reconsider();
        }
    }
}
