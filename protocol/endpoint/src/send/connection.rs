//! State of one destination at a sender: connection state, flow control, packets in flight.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{Incarnation, Mono, ProcessId, Psn, Timestamp};
use onepipe_wire::{Ack, AckDelay, RECALL_LEN, Recall, Service};

use super::chain::Chain;
use super::congestion::{CongestionController, PacketCounters};
use super::flight::{Flight, SentMessage};
use super::retransmit_timeout::RetransmitTimeout;
use crate::{Config, FailureReason};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum State {
    /// Never used, or closed after a failure.
    Closed,
    /// A Connect was sent, and no Grant has arrived.
    Opening,
    Open,
    /// Does not respond, and packets are in flight, which are probed until this instant; messages
    /// to it fail at once.
    Suspended(Mono),
    /// Does not respond; messages to it fail at once until it does. No Connect is sent before this
    /// instant.
    Unreachable(Mono),
}

/// A reservation at the receiver, for messages that exceed the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reservation {
    None,
    Requested(u64),
    Granted(u64),
    /// Messages charged to it are in flight, or the receiver has not confirmed that it is closed.
    InUse,
    Refused,
}

/// Whether a message may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    Now,
    /// Not now, but possibly after an acknowledgement.
    Later,
    Never,
}

/// State of a destination that only the reliable service needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Reliable {
    /// Recalls without an acknowledgement: number and timestamp of the scattering.
    pub recalls: VecDeque<(u64, Timestamp)>,
    /// Number of recalls, from the front, that were sent since the last timeout.
    pub recalls_sent: usize,
    pub last_recalled: Option<u64>,
    /// The connection is in the retransmission queue.
    pub is_retransmit_queued: bool,
    /// Last incarnation that has failed.
    pub last_failed: Option<Incarnation>,
    /// Last incarnation that has opened a connection to this process.
    pub last_connected: Option<Incarnation>,
    /// The destination was reported as unreachable.
    pub is_reported: bool,
    /// When the last failure of the destination was reported.
    pub failed_since: Option<Mono>,
    /// When the handshake in progress was started.
    pub opening_since: Option<Mono>,
    /// For how long nothing of the destination has arrived although it was asked, in ns.
    pub unanswered_ns: u64,
    /// What was in flight to the destination was given up, and it has not answered since.
    pub is_given_up: bool,
}

/// Fraction of [`Config::rejoin_wait_ns`] for which a scattering waits for a process whose failure
/// was reported long ago.
const REJOIN_WAITS: u64 = 10;

/// A connection to one destination. It fills whole cache lines: there is one for each pair of
/// processes, so it is rarely in the cache, and each line that it shares with another one would be
/// a further miss.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[repr(align(64))]
pub(crate) struct Connection {
    pub to: ProcessId,
    /// The destination is this process itself.
    pub is_local: bool,
    pub state: State,
    /// The incarnation that granted the connection.
    pub peer_incarnation: Option<Incarnation>,
    pub flight: Flight,
    pub congestion: CongestionController,
    /// Window of the receiver, in bytes.
    pub window: u64,
    /// Charge of the messages sent within the window since the connection opened.
    pub sent: u64,
    /// Charge of those messages that were rejected.
    pub failed: u64,
    /// Charge of those messages that the application has consumed.
    pub consumed: u64,
    /// Charge that the oldest waiting scattering has claimed.
    pub claimed: u64,
    /// Charge that the scattering under consideration needs at this destination.
    pub need: u64,
    pub reservation: Reservation,
    pub reservation_id: u32,
    /// Messages of the current burst for this destination.
    pub chain: Chain,
    /// Charge of the messages of the current burst.
    pub in_burst: u64,
    /// The messages of the current burst are charged to the reservation.
    pub uses_reservation: bool,
    /// Bytes sent since an acknowledgement was last requested.
    pub bytes_since_ack_request: u32,
    /// The oldest waiting scattering waits for this destination.
    pub has_waiting: bool,
    pub wants_connect: bool,
    /// A Probe is to be sent that asks for the outcome of the packets before this one.
    pub wants_probe: Option<Psn>,
    /// The gaps before this packet were probed or retransmitted.
    pub probed_until: Psn,
    pub is_signal_queued: bool,
    /// State of the reliable service; boxed, because best effort has many connections.
    pub reliable: Option<Box<Reliable>>,
    /// Consecutive timeouts without an acknowledgement of any kind.
    pub attempts: u16,
    /// Doublings of the retransmission timeout that remain of timeouts before the last
    /// acknowledgement (Karn's algorithm). Reliable service only.
    pub backoff: u8,
    pub deadline: Option<Mono>,
    /// When the last probe or Connect was scheduled.
    pub last_request: Option<Mono>,
    pub(super) timeout: RetransmitTimeout,
}

const _: () = assert!(size_of::<Connection>() == 7 * 64);

impl Connection {
    /// Creates the connection to `to`, the newest of `connections`.
    pub fn new(to: ProcessId, config: &Config, service: Service, connections: usize) -> Self {
        Self {
            to,
            is_local: false,
            state: State::Closed,
            peer_incarnation: None,
            flight: match service {
                Service::BestEffort => Flight::new(),
                Service::Reliable => Flight::reliable(),
            },
            congestion: CongestionController::new(config, connections),
            window: 0,
            sent: 0,
            failed: 0,
            consumed: 0,
            claimed: 0,
            need: 0,
            reservation: Reservation::None,
            reservation_id: 0,
            chain: Chain::EMPTY,
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
            backoff: 0,
            deadline: None,
            last_request: None,
            timeout: RetransmitTimeout::default(),
        }
    }

    /// Creates the connection of the process to itself, which needs no network.
    pub fn loopback(to: ProcessId, config: &Config, service: Service, window: u64) -> Self {
        let connection = Self::new(to, config, service, 1);
        Self { is_local: true, state: State::Open, window, ..connection }
    }

    /// Marks every incarnation up to `incarnation` as failed, as was reported at `since`.
    pub fn with_failed(mut self, incarnation: Incarnation, since: Mono) -> Self {
        if let Some(reliable) = &mut self.reliable {
            reliable.last_failed = Some(incarnation);
            reliable.failed_since = Some(since);
        }
        self
    }

    /// Prefetches the state that an acknowledgement will change. See [`crate::Endpoint::prefetch`].
    #[inline]
    pub fn prefetch(&self) -> u64 {
        let own = self.window
            ^ self.timeout.prefetch()
            ^ u64::from(self.attempts)
            ^ u64::from(self.is_signal_queued)
            ^ u64::from(self.deadline.is_some())
            ^ u64::from(self.state == State::Open);
        own ^ self.flight.prefetch() ^ u64::from(self.congestion.window_bytes())
    }

    /// Returns the charge of messages that were sent and neither rejected nor consumed.
    pub fn outstanding(&self) -> u64 {
        self.sent.saturating_sub(self.failed).saturating_sub(self.consumed)
    }

    /// Returns whether messages with the charge `self.need` may be sent. The claims of the oldest
    /// waiting scattering hold back all others.
    #[inline]
    pub fn fit(&self, is_oldest: bool) -> Fit {
        match self.state {
            State::Closed | State::Opening => return Fit::Later,
            State::Suspended(_) | State::Unreachable(_) => return Fit::Never,
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

    /// Returns the charge up to which the oldest scatterings may be sent now without a reservation:
    /// each of them fits as [`Connection::fit`] decides while the sum is at most this. The first
    /// one may fit beyond it, if nothing is in flight.
    #[inline]
    pub fn allowance(&self) -> u64 {
        if self.state != State::Open {
            return 0;
        }
        let in_flight = self.flight.charge() + self.in_burst;
        let in_window = self.window.saturating_sub(self.outstanding());
        in_window.min(u64::from(self.congestion.window_bytes()).saturating_sub(in_flight))
    }

    fn fit_reservation(&self, is_oldest: bool) -> Fit {
        match self.reservation {
            // Only the oldest scattering collects reservations, and keeps them until it is sent.
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

    /// Handles a Grant of `peer_incarnation`. Calls `fail` for each message in flight to the
    /// previous incarnation, whose outcome is unknown.
    pub fn open(&mut self, peer_incarnation: Incarnation, fail: impl FnMut(SentMessage)) {
        self.state = State::Open;
        self.reset_timeouts();
        if self.peer_incarnation != Some(peer_incarnation) {
            self.peer_incarnation = Some(peer_incarnation);
            self.flight.clear(fail);
            self.congestion.reset_counters();
            (self.sent, self.failed, self.consumed) = (0, 0, 0);
        }
        if !self.flight.is_empty() {
            // Packets were in flight when the peer became unreachable: probe whether they have
            // arrived.
            self.wants_probe = Some(self.flight.next_psn());
        }
    }

    //= spec/ordering.md#R27
    /// Handles that `probes_max` probes were not answered. Returns whether the outcomes of the
    /// packets in flight are still asked for: the receiver may be stopped, or cut off, and come
    /// back.
    pub fn suspend(&mut self, config: &Config, now: Mono) -> bool {
        match self.state {
            _ if makes(Mistake::UnknownEarly) => false,
            State::Open if config.unknown_after_ns > 0 && !self.flight.is_accounted_for() => {
                self.state = State::Suspended(now.after_ns(config.unknown_after_ns));
                true
            }
            State::Suspended(until) => now < until,
            _ => false,
        }
    }

    /// Returns whether the packets in flight, if there are any, were sent that long ago.
    pub fn was_asked_for(&self, now: Mono, ns: u64) -> bool {
        let oldest = self.flight.oldest_sent().filter(|_| !self.flight.is_accounted_for());
        oldest.is_none_or(|sent| now.since_ns(sent) >= ns)
    }

    /// Returns whether a reservation is granted or requested.
    pub fn has_requested_reservation(&self) -> bool {
        matches!(self.reservation, Reservation::Requested(_) | Reservation::Granted(_))
    }

    /// Returns whether this incarnation of the destination is known to have failed.
    pub fn has_failed(&self, incarnation: Incarnation) -> bool {
        let failed = self.reliable.as_ref().and_then(|reliable| reliable.last_failed);
        failed.is_some_and(|failed| incarnation <= failed)
    }

    /// Returns whether the last known incarnation has failed: the destination may never come back.
    pub fn is_presumed_failed(&self) -> bool {
        self.reliable.as_ref().is_some_and(|reliable| {
            reliable.last_failed.is_some() && reliable.last_connected <= reliable.last_failed
        })
    }

    //= spec/failure.md#R43
    /// Returns until when a new incarnation of a destination that has failed may answer.
    pub fn rejoin_until(&self, config: &Config) -> Option<Mono> {
        let reliable = self.reliable.as_ref().filter(|_| !makes(Mistake::RejoinNotAwaited))?;
        let wait_ns = config.rejoin_wait_ns;
        let later = reliable.opening_since?.after_ns(wait_ns / REJOIN_WAITS);
        Some(reliable.failed_since.map_or(later, |since| later.max(since.after_ns(wait_ns))))
    }

    /// Returns whether the next incarnation was awaited since the handshake in progress began.
    pub fn was_rejoin_awaited(&self, config: &Config, now: Mono) -> bool {
        let since = self.reliable.as_ref().and_then(|reliable| reliable.opening_since);
        since.is_some_and(|since| now.since_ns(since) >= config.rejoin_wait_ns / REJOIN_WAITS)
    }

    //= spec/failure.md#R55
    /// Counts the time since the last request as unanswered: at most twice the retransmission
    /// timeout, because this process may not have run. Returns whether the destination has not
    /// answered for as long as scatterings wait for it, in ns; once they were given up, for a tenth
    /// of that.
    pub fn on_unanswered(&mut self, config: &Config, now: Mono) -> bool {
        let (rto_ns, since) = (self.rto_ns(config), self.last_request);
        let Some(reliable) = &mut self.reliable else { return false };
        let elapsed_ns = since.map_or(rto_ns, |since| now.since_ns(since));
        reliable.unanswered_ns = reliable.unanswered_ns.saturating_add(elapsed_ns.min(2 * rto_ns));
        let divisor = if reliable.is_given_up { REJOIN_WAITS } else { 1 };
        let limit_ns = config.give_up_after_ns / divisor;
        limit_ns > 0 && reliable.unanswered_ns >= limit_ns
    }

    /// Returns whether what was in flight was given up, and the destination has not answered since.
    pub fn is_given_up(&self) -> bool {
        self.reliable.as_ref().is_some_and(|reliable| reliable.is_given_up)
    }

    /// Returns why a message for the destination, which cannot be reached, is not sent.
    pub fn unreachable_reason(&self, config: &Config) -> FailureReason {
        let is_uncontrolled = self.reliable.is_some() && config.controllers.is_none();
        match self.peer_incarnation {
            _ if self.reservation == Reservation::Refused => FailureReason::TooLarge,
            _ if self.is_presumed_failed() => FailureReason::ReceiverFailed,
            None => FailureReason::NeverJoined,
            Some(_) if is_uncontrolled => FailureReason::NoController,
            Some(_) => FailureReason::NoAnswer,
        }
    }

    /// Returns whether recalls wait for their acknowledgement.
    pub fn has_recalls(&self) -> bool {
        self.reliable.as_ref().is_some_and(|reliable| !reliable.recalls.is_empty())
    }

    /// Returns whether a recall is to be sent.
    pub fn wants_recall(&self) -> bool {
        self.reliable
            .as_ref()
            .is_some_and(|reliable| reliable.recalls_sent < reliable.recalls.len())
    }

    /// Writes as many pending recalls as fit. Returns `None` if there are none.
    pub fn write_recalls(&mut self, payload: &mut [u8]) -> Option<usize> {
        let reliable = self
            .reliable
            .as_mut()
            .filter(|reliable| reliable.recalls_sent < reliable.recalls.len())?;
        let rest = reliable.recalls.range(reliable.recalls_sent..);
        let len = Recall::write(payload, rest.map(|(_, timestamp)| *timestamp));
        reliable.recalls_sent += len / RECALL_LEN;
        Some(len)
    }

    /// Returns whether no acknowledgement is awaited.
    pub fn is_idle(&self) -> bool {
        let is_quiet = self.flight.is_empty() && !self.has_waiting && !self.has_recalls();
        is_quiet && !matches!(self.reservation, Reservation::InUse | Reservation::Granted(_))
    }

    /// Records that the receiver responds.
    pub fn on_response(&mut self) {
        if let Some(reliable) = &mut self.reliable {
            reliable.is_reported = false;
            (reliable.unanswered_ns, reliable.is_given_up) = (0, false);
        }
    }

    /// Returns whether `peer_incarnation` is a previous incarnation.
    pub fn is_stale(&self, peer_incarnation: Incarnation) -> bool {
        self.peer_incarnation.is_some_and(|known| peer_incarnation < known)
    }

    /// Updates the receiver's window. Returns whether more may be sent than before.
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

    /// Returns what the latest acknowledgement said of the counters and the window.
    #[inline]
    pub fn last_ack(&self) -> Ack {
        let PacketCounters { received, marked } = self.congestion.last_counters();
        Ack {
            cumulative: self.flight.base(),
            received,
            marked,
            window_bytes: self.window as u32,
            consumed_bytes: self.consumed,
            acked_incarnation: 0,
            reservation_id: 0,
            reservation: Ack::RESERVATION_UNSTATED,
            delay: AckDelay::default(),
        }
    }

    /// Updates the state of the reservation at the receiver. Returns whether it has changed.
    pub fn on_reservation(&mut self, ack: &Ack) -> bool {
        if ack.reservation_id != self.reservation_id || ack.reservation == Ack::RESERVATION_UNSTATED
        {
            return false;
        }
        self.reservation = match (self.reservation, ack.reservation) {
            (Reservation::Requested(size), Ack::RESERVATION_GRANTED) => Reservation::Granted(size),
            (Reservation::Requested(_), Ack::RESERVATION_REFUSED) => Reservation::Refused,
            // Reclaimed by the receiver because it was idle and others waited.
            (Reservation::Granted(_), Ack::RESERVATION_PENDING) => Reservation::None,
            (Reservation::InUse, Ack::RESERVATION_PENDING) if self.is_reservation_drained() => {
                Reservation::None
            }
            // Granted after it was given up, which the receiver does not know: release it again.
            (Reservation::None, Ack::RESERVATION_GRANTED) => Reservation::InUse,
            _ => return false,
        };
        true
    }

    /// Returns whether every packet charged to the reservation is resolved.
    pub fn is_reservation_drained(&self) -> bool {
        self.reservation == Reservation::InUse && self.flight.is_empty() && self.in_burst == 0
    }
}
