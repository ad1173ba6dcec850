//! What a sender knows of one destination: is it there, how much may it be sent, what is on the
//! way.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use onepipe_base::{Incarnation, Mono, ProcessId, Psn, Timestamp};
use onepipe_wire::{Ack, RECALL_LEN, Recall, Service};

use super::congestion::Congestion;
use super::flight::{Flight, SentMessage};
use crate::Config;

/// Waiting for an answer doubles at most this often: a peer that is slow, not gone, is found again
/// within eight times the usual wait.
const BACKOFF_MAX: u32 = 3;

/// Marks the end of a chain of messages.
pub(crate) const END: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum State {
    /// Never used, or left alone after a failure.
    Closed,
    /// Asked for a window, no answer yet.
    Opening,
    Open,
    /// Did not answer; messages to it fail at once until it does. It is not asked again before this
    /// instant.
    Unreachable(Mono),
}

/// Room asked for at the receiver, for messages that exceed the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Room {
    None,
    Asked(u64),
    Granted(u64),
    /// Messages in it are on the way, or the receiver has not confirmed that it is closed.
    InUse,
    Refused,
}

/// Whether messages may leave now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    Now,
    /// Not now; something will change.
    Later,
    /// Never.
    Never,
}

/// What only the reliable service knows of a destination.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Reliable {
    /// Scatterings to be recalled there: number and timestamp, until acknowledged.
    pub recalls: VecDeque<(u64, Timestamp)>,
    /// How many of them, from the front, have been sent since it was last asked again.
    pub told: usize,
    /// The number of the last scattering that was taken back.
    pub taken_back: Option<u64>,
    /// It waits among those with packets to send again.
    pub is_resending: bool,
    /// Its life that has failed.
    pub failed_life: Option<Incarnation>,
    /// Its last life that has opened a connection of its own.
    pub heard_life: Option<Incarnation>,
    /// It does not answer, and this was said.
    pub is_unreachable: bool,
}

/// One destination.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Outgoing {
    pub to: ProcessId,
    /// The process itself: reached without a network.
    pub is_local: bool,
    pub state: State,
    pub peer: Option<Incarnation>,
    pub flight: Flight,
    pub congestion: Congestion,
    /// The receiver's window, in bytes.
    pub window: u64,
    /// Charges of window messages sent, failed, and consumed by the receiver, since the opening.
    pub sent: u64,
    pub failed: u64,
    pub consumed: u64,
    /// What the oldest waiting scattering has claimed.
    pub claimed: u64,
    /// What the scattering under consideration needs.
    pub need: u64,
    pub room: Room,
    pub reservation_id: u32,
    /// The messages of the current burst for this destination, as a chain.
    pub chain: (u32, u32),
    /// Charge of the messages of the current burst.
    pub in_burst: u64,
    /// They go into room.
    pub is_roomed: bool,
    /// Bytes sent since an acknowledgement was last demanded.
    pub unasked: u32,
    /// A scattering waits for this destination.
    pub is_waited_for: bool,
    pub wants_connect: bool,
    pub wants_probe: Option<Psn>,
    /// The gaps before this packet have been asked after already.
    pub probed: Psn,
    pub is_queued: bool,
    /// What only the reliable service knows of it; boxed, because best effort has many connections.
    pub reliable: Option<Box<Reliable>>,
    /// Questions asked without any answer.
    pub attempts: u32,
    pub deadline: Option<Mono>,
    /// When it was last asked.
    pub asked: Option<Mono>,
    rtt_ns: u64,
    rtt_deviation_ns: u64,
}

impl Outgoing {
    pub fn new(to: ProcessId, config: &Config, service: Service) -> Self {
        let congestion = Congestion::new(
            config.congestion_window_bytes,
            config.congestion_window_min_bytes,
            config.window_bytes_max,
            config.frame_len_max,
        );
        Self {
            to,
            is_local: false,
            state: State::Closed,
            peer: None,
            flight: match service {
                Service::BestEffort => Flight::new(),
                Service::Reliable => Flight::keeping(),
            },
            congestion,
            window: 0,
            sent: 0,
            failed: 0,
            consumed: 0,
            claimed: 0,
            need: 0,
            room: Room::None,
            reservation_id: 0,
            chain: (END, END),
            in_burst: 0,
            is_roomed: false,
            unasked: 0,
            is_waited_for: false,
            wants_connect: false,
            wants_probe: None,
            probed: Psn::FIRST,
            is_queued: false,
            reliable: (service == Service::Reliable).then(Box::default),
            attempts: 0,
            deadline: None,
            asked: None,
            rtt_ns: 0,
            rtt_deviation_ns: 0,
        }
    }

    /// A destination that needs no network: the process itself.
    pub fn to_itself(to: ProcessId, config: &Config, service: Service, window: u64) -> Self {
        Self { is_local: true, state: State::Open, window, ..Self::new(to, config, service) }
    }

    /// That destination, of which every life up to `life` is known to have failed.
    pub fn failed_in(mut self, life: Incarnation) -> Self {
        if let Some(known) = &mut self.reliable {
            known.failed_life = Some(life);
        }
        self
    }

    /// Fetches what an acknowledgement will change. See [`crate::Endpoint::fetch`].
    #[inline]
    pub fn fetch(&self) -> u64 {
        let own = self.window ^ self.rtt_ns ^ u64::from(self.attempts) ^ u64::from(self.is_queued);
        own ^ self.flight.fetch() ^ u64::from(self.congestion.window_bytes())
    }

    /// Charge of what was sent and is neither failed nor consumed.
    pub fn outstanding(&self) -> u64 {
        self.sent.saturating_sub(self.failed).saturating_sub(self.consumed)
    }

    /// Whether messages of charge `self.need` may leave. The oldest waiting scattering is not held
    /// up by its own claim.
    #[inline]
    pub fn fit(&self, is_oldest: bool) -> Fit {
        match self.state {
            State::Closed | State::Opening => return Fit::Later,
            State::Unreachable(_) => return Fit::Never,
            State::Open => {}
        }
        if self.need > self.window {
            return self.fit_room(is_oldest);
        }
        let claimed = if is_oldest { 0 } else { self.claimed };
        let fits_window = self.outstanding() + claimed + self.need <= self.window;
        let in_flight = self.flight.charge() + self.in_burst;
        let allowed = u64::from(self.congestion.window_bytes());
        let fits_network = in_flight == 0 || in_flight + claimed + self.need <= allowed;
        if fits_window && fits_network { Fit::Now } else { Fit::Later }
    }

    fn fit_room(&self, is_oldest: bool) -> Fit {
        match self.room {
            // Only the oldest collects: what it gets, it keeps until it leaves.
            _ if !is_oldest => Fit::Later,
            Room::Granted(bytes) if bytes >= self.need => match self.flight.charge() {
                0 => Fit::Now,
                _ => Fit::Later,
            },
            Room::None | Room::Granted(_) | Room::Asked(_) | Room::InUse => Fit::Later,
            Room::Refused => Fit::Never,
        }
    }

    /// The receiver has opened the connection, perhaps anew. `fail` is called for each message that
    /// a former life of it may or may not have.
    pub fn open(&mut self, peer: Incarnation, fail: impl FnMut(SentMessage)) {
        self.state = State::Open;
        self.attempts = 0;
        if self.peer != Some(peer) {
            self.peer = Some(peer);
            self.flight.clear(fail);
            self.congestion.forget_counters();
            (self.sent, self.failed, self.consumed) = (0, 0, 0);
        }
        if !self.flight.is_empty() {
            // What was on the way when it was last heard of: has it arrived?
            self.wants_probe = Some(self.flight.next());
        }
    }

    /// Whether it has room, or waits for it.
    pub fn is_asking_for_room(&self) -> bool {
        matches!(self.room, Room::Asked(_) | Room::Granted(_))
    }

    /// Whether this life of it is known to have failed.
    pub fn has_failed(&self, life: Incarnation) -> bool {
        let failed = self.reliable.as_ref().and_then(|known| known.failed_life);
        failed.is_some_and(|failed| life <= failed)
    }

    /// Whether its last life that is known has failed: nobody may be there.
    pub fn is_doubted(&self) -> bool {
        self.reliable.as_ref().is_some_and(|known| {
            known.failed_life.is_some() && known.heard_life <= known.failed_life
        })
    }

    /// Whether recalls wait for its acknowledgement.
    pub fn has_recalls(&self) -> bool {
        self.reliable.as_ref().is_some_and(|known| !known.recalls.is_empty())
    }

    /// Whether a recall is to be sent.
    pub fn wants_recall(&self) -> bool {
        self.reliable.as_ref().is_some_and(|known| known.told < known.recalls.len())
    }

    /// Writes those recalls that are to be sent, as many as fit, if there are any.
    pub fn write_recalls(&mut self, payload: &mut [u8]) -> Option<usize> {
        let known = self.reliable.as_mut().filter(|known| known.told < known.recalls.len())?;
        let rest = known.recalls.range(known.told..);
        let bytes = Recall::write(payload, rest.map(|(_, timestamp)| *timestamp));
        known.told += bytes / RECALL_LEN;
        Some(bytes)
    }

    /// Whether nothing is awaited from it.
    pub fn is_idle(&self) -> bool {
        let is_quiet = self.flight.is_empty() && !self.is_waited_for && !self.has_recalls();
        is_quiet && !matches!(self.room, Room::InUse | Room::Granted(_))
    }

    /// It has answered.
    pub fn on_direct_answer(&mut self) {
        if let Some(known) = &mut self.reliable {
            known.is_unreachable = false;
        }
    }

    /// Whether what `peer` says is news: a former life of it is over.
    pub fn is_past(&self, peer: Incarnation) -> bool {
        self.peer.is_some_and(|known| peer < known)
    }

    /// Takes in the receiver's window. Answers whether more may be sent than before.
    pub fn on_window(&mut self, ack: &Ack) -> bool {
        let consumed = ack.consumed_bytes;
        let window = u64::from(ack.window_bytes);
        let has_grown = consumed > self.consumed || window > self.window;
        if consumed > self.consumed && consumed <= self.sent {
            self.consumed = consumed;
        }
        self.window = window;
        has_grown
    }

    /// Takes in the receiver's answer about room. Answers whether it changed anything.
    pub fn on_room(&mut self, ack: &Ack) -> bool {
        if ack.reservation_id != self.reservation_id {
            return false;
        }
        self.room = match (self.room, ack.reservation) {
            (Room::Asked(bytes), Ack::RESERVATION_GRANTED) => Room::Granted(bytes),
            (Room::Asked(_), Ack::RESERVATION_REFUSED) => Room::Refused,
            // It was not used for long, and another one needed it.
            (Room::Granted(_), Ack::RESERVATION_PENDING) => Room::None,
            (Room::InUse, Ack::RESERVATION_PENDING) if self.is_room_over() => Room::None,
            // Given after it was given back, which the receiver has not heard: say so again.
            (Room::None, Ack::RESERVATION_GRANTED) => Room::InUse,
            _ => return false,
        };
        true
    }

    /// Whether the fate of everything that was sent into the room is known.
    pub fn is_room_over(&self) -> bool {
        self.room == Room::InUse && self.flight.is_empty() && self.in_burst == 0
    }

    /// A packet sent at `sent` was acknowledged now (RFC 6298's estimator). Not after a probe: then
    /// the answer says when it was asked for, not when the packet arrived (Karn).
    pub fn on_round_trip(&mut self, now: Mono, sent: Mono) {
        if self.attempts > 0 {
            return;
        }
        let sample = now.since_ns(sent);
        if self.rtt_ns == 0 {
            self.rtt_ns = sample;
            self.rtt_deviation_ns = sample / 2;
            return;
        }
        let deviation = self.rtt_ns.abs_diff(sample);
        self.rtt_deviation_ns = self.rtt_deviation_ns - self.rtt_deviation_ns / 4 + deviation / 4;
        self.rtt_ns = self.rtt_ns - self.rtt_ns / 8 + sample / 8;
    }

    /// How long a peer that did not answer is left alone.
    pub fn pause_ns(&self, config: &Config) -> u64 {
        self.patience_ns(config) << BACKOFF_MAX
    }

    /// How long to wait for an answer before asking (again).
    pub fn patience_ns(&self, config: &Config) -> u64 {
        let estimate = match self.rtt_ns {
            0 => 4 * config.probe_timeout_min_ns,
            rtt => rtt + 4 * self.rtt_deviation_ns + config.ack_delay_ns,
        };
        estimate.max(config.probe_timeout_min_ns) << self.attempts.min(BACKOFF_MAX)
    }
}
