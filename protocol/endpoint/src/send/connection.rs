//! What a sender knows of one destination: is it there, how much may it be sent, what is on the
//! way.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use onepipe_base::{Incarnation, Mono, ProcessId, Psn, Timestamp};
use onepipe_wire::{Ack, RECALL_LEN, Recall, Service};

use super::congestion::CongestionController;
use super::flight::{Flight, SentMessage};
use super::rtt::RttEstimator;
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
pub(crate) enum Reservation {
    None,
    Requested(u64),
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
    pub recalls_sent: usize,
    /// The number of the last scattering that was taken back.
    pub last_recalled: Option<u64>,
    /// It waits among those with packets to send again.
    pub is_retransmit_queued: bool,
    /// Its life that has failed.
    pub last_failed: Option<Incarnation>,
    /// Its last life that has opened a connection of its own.
    pub last_connected: Option<Incarnation>,
    /// It does not answer, and this was said.
    pub is_reported: bool,
}

/// One destination.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Connection {
    pub to: ProcessId,
    /// The process itself: reached without a network.
    pub is_local: bool,
    pub state: State,
    pub peer: Option<Incarnation>,
    pub flight: Flight,
    pub congestion: CongestionController,
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
    pub reservation: Reservation,
    pub reservation_id: u32,
    /// The messages of the current burst for this destination, as a chain.
    pub chain: (u32, u32),
    /// Charge of the messages of the current burst.
    pub in_burst: u64,
    /// They go into room.
    pub uses_reservation: bool,
    /// Bytes sent since an acknowledgement was last demanded.
    pub bytes_since_ack_request: u32,
    /// A scattering waits for this destination.
    pub has_waiting: bool,
    pub wants_connect: bool,
    pub wants_probe: Option<Psn>,
    /// The gaps before this packet have been asked after already.
    pub probed_until: Psn,
    pub is_signal_queued: bool,
    /// What only the reliable service knows of it; boxed, because best effort has many connections.
    pub reliable: Option<Box<Reliable>>,
    /// Questions asked without any answer.
    pub attempts: u32,
    pub deadline: Option<Mono>,
    /// When it was last asked.
    pub last_request: Option<Mono>,
    rtt: RttEstimator,
}

impl Connection {
    pub fn new(to: ProcessId, config: &Config, service: Service) -> Self {
        let congestion = CongestionController::new(
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
                Service::Reliable => Flight::reliable(),
            },
            congestion,
            window: 0,
            sent: 0,
            failed: 0,
            consumed: 0,
            claimed: 0,
            need: 0,
            reservation: Reservation::None,
            reservation_id: 0,
            chain: (END, END),
            in_burst: 0,
            uses_reservation: false,
            bytes_since_ack_request: 0,
            has_waiting: false,
            wants_connect: false,
            wants_probe: None,
            probed_until: Psn::FIRST,
            is_signal_queued: false,
            reliable: (service == Service::Reliable).then(Box::default),
            attempts: 0,
            deadline: None,
            last_request: None,
            rtt: RttEstimator::new(),
        }
    }

    /// A destination that needs no network: the process itself.
    pub fn loopback(to: ProcessId, config: &Config, service: Service, window: u64) -> Self {
        Self { is_local: true, state: State::Open, window, ..Self::new(to, config, service) }
    }

    /// That destination, of which every life up to `incarnation` is known to have failed.
    pub fn with_failed(mut self, incarnation: Incarnation) -> Self {
        if let Some(known) = &mut self.reliable {
            known.last_failed = Some(incarnation);
        }
        self
    }

    /// Fetches what an acknowledgement will change. See [`crate::Endpoint::prefetch`].
    #[inline]
    pub fn prefetch(&self) -> u64 {
        let own = self.window
            ^ self.rtt.smoothed_ns()
            ^ u64::from(self.attempts)
            ^ u64::from(self.is_signal_queued);
        own ^ self.flight.prefetch() ^ u64::from(self.congestion.window_bytes())
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
            return self.fit_reservation(is_oldest);
        }
        let claimed = if is_oldest { 0 } else { self.claimed };
        let fits_window = self.outstanding() + claimed + self.need <= self.window;
        let in_flight = self.flight.charge() + self.in_burst;
        let allowed = u64::from(self.congestion.window_bytes());
        let fits_network = in_flight == 0 || in_flight + claimed + self.need <= allowed;
        if fits_window && fits_network { Fit::Now } else { Fit::Later }
    }

    fn fit_reservation(&self, is_oldest: bool) -> Fit {
        match self.reservation {
            // Only the oldest collects: what it gets, it keeps until it leaves.
            _ if !is_oldest => Fit::Later,
            Reservation::Granted(size) if size >= self.need => match self.flight.charge() {
                0 => Fit::Now,
                _ => Fit::Later,
            },
            Reservation::None
            | Reservation::Granted(_)
            | Reservation::Requested(_)
            | Reservation::InUse => Fit::Later,
            Reservation::Refused => Fit::Never,
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
            self.congestion.reset_counters();
            (self.sent, self.failed, self.consumed) = (0, 0, 0);
        }
        if !self.flight.is_empty() {
            // What was on the way when it was last heard of: has it arrived?
            self.wants_probe = Some(self.flight.next());
        }
    }

    /// Whether it has room, or waits for it.
    pub fn has_requested_reservation(&self) -> bool {
        matches!(self.reservation, Reservation::Requested(_) | Reservation::Granted(_))
    }

    /// Whether this life of it is known to have failed.
    pub fn has_failed(&self, incarnation: Incarnation) -> bool {
        let failed = self.reliable.as_ref().and_then(|known| known.last_failed);
        failed.is_some_and(|failed| incarnation <= failed)
    }

    /// Whether its last life that is known has failed: nobody may be there.
    pub fn is_presumed_failed(&self) -> bool {
        self.reliable.as_ref().is_some_and(|known| {
            known.last_failed.is_some() && known.last_connected <= known.last_failed
        })
    }

    /// Whether recalls wait for its acknowledgement.
    pub fn has_recalls(&self) -> bool {
        self.reliable.as_ref().is_some_and(|known| !known.recalls.is_empty())
    }

    /// Whether a recall is to be sent.
    pub fn wants_recall(&self) -> bool {
        self.reliable.as_ref().is_some_and(|known| known.recalls_sent < known.recalls.len())
    }

    /// Writes those recalls that are to be sent, as many as fit, if there are any.
    pub fn write_recalls(&mut self, payload: &mut [u8]) -> Option<usize> {
        let known =
            self.reliable.as_mut().filter(|known| known.recalls_sent < known.recalls.len())?;
        let rest = known.recalls.range(known.recalls_sent..);
        let len = Recall::write(payload, rest.map(|(_, timestamp)| *timestamp));
        known.recalls_sent += len / RECALL_LEN;
        Some(len)
    }

    /// Whether nothing is awaited from it.
    pub fn is_idle(&self) -> bool {
        let is_quiet = self.flight.is_empty() && !self.has_waiting && !self.has_recalls();
        is_quiet && !matches!(self.reservation, Reservation::InUse | Reservation::Granted(_))
    }

    /// It has answered.
    pub fn on_response(&mut self) {
        if let Some(known) = &mut self.reliable {
            known.is_reported = false;
        }
    }

    /// Whether what `peer` says is news: a former life of it is over.
    pub fn is_stale(&self, peer: Incarnation) -> bool {
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
    pub fn on_reservation(&mut self, ack: &Ack) -> bool {
        if ack.reservation_id != self.reservation_id {
            return false;
        }
        self.reservation = match (self.reservation, ack.reservation) {
            (Reservation::Requested(size), Ack::RESERVATION_GRANTED) => Reservation::Granted(size),
            (Reservation::Requested(_), Ack::RESERVATION_REFUSED) => Reservation::Refused,
            // It was not used for long, and another one needed it.
            (Reservation::Granted(_), Ack::RESERVATION_PENDING) => Reservation::None,
            (Reservation::InUse, Ack::RESERVATION_PENDING) if self.is_reservation_drained() => {
                Reservation::None
            }
            // Given after it was given back, which the receiver has not heard: say so again.
            (Reservation::None, Ack::RESERVATION_GRANTED) => Reservation::InUse,
            _ => return false,
        };
        true
    }

    /// Whether the fate of everything that was sent into the room is known.
    pub fn is_reservation_drained(&self) -> bool {
        self.reservation == Reservation::InUse && self.flight.is_empty() && self.in_burst == 0
    }

    /// A packet sent at `sent` was acknowledged now (RFC 6298's estimator). Not after a probe: then
    /// the answer says when it was asked for, not when the packet arrived (Karn).
    pub fn on_round_trip(&mut self, now: Mono, sent: Mono) {
        if self.attempts > 0 {
            return;
        }
        self.rtt.on_sample(now.since_ns(sent));
    }

    /// How long a peer that did not answer is left alone.
    pub fn retry_interval_ns(&self, config: &Config) -> u64 {
        self.rto_ns(config) << BACKOFF_MAX
    }

    /// How long to wait for an answer before asking (again).
    pub fn rto_ns(&self, config: &Config) -> u64 {
        let estimate = match self.rtt.smoothed_ns() {
            0 => 4 * config.probe_timeout_min_ns,
            _ => self.rtt.rto_ns() + config.ack_delay_ns,
        };
        estimate.max(config.probe_timeout_min_ns) << self.attempts.min(BACKOFF_MAX)
    }
}
