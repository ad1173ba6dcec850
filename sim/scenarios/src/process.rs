//! A process of the simulated fabric: the real endpoint, optionally with a bug around it.

use std::collections::VecDeque;

use onepipe_base::{Machine, Mono, Now, Port, Promises, Transmit, Verdict};
use onepipe_endpoint::{Delivery, Endpoint, Event};
use onepipe_wire::{parse_header, rewrite_promises};

use crate::bug::{AHEAD_NS, BUG_PERIOD, Bug};

/// Frames that an endpoint receives between two checks of its invariants.
const FRAMES_PER_CHECK: u64 = 256;

/// An endpoint with an optional bug.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    /// The real machine.
    pub endpoint: Endpoint,
    bug: Option<Bug>,
    /// Events that the bug holds back or repeats.
    pending_events: VecDeque<Event>,
    opportunities: u32,
    /// Remaining frames before the process ends, if an end point is set, and how it ends; beacons
    /// do not count.
    frames_left: Option<(u32, Ending)>,
    has_crashed: bool,
    /// Whether the process was asked to leave.
    is_leaving: bool,
    /// Whether the process does not run: what arrives is lost.
    is_stopped: bool,
}

/// How a process ends at its end point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Ending {
    Crash,
    Leave,
}

impl Process {
    /// Creates a process, optionally with a bug.
    pub fn new(endpoint: Endpoint, bug: Option<Bug>) -> Self {
        let pending_events = VecDeque::new();
        Self {
            endpoint,
            bug,
            pending_events,
            opportunities: 0,
            frames_left: None,
            has_crashed: false,
            is_leaving: false,
            is_stopped: false,
        }
    }

    /// Lets the process send `frames` more frames, and crashes it when it is to send the next one.
    /// Beacons are sent and do not count.
    pub fn crash_after(&mut self, frames: u32) {
        self.frames_left = Some((frames, Ending::Crash));
    }

    /// Lets the process send `frames` more frames, and lets it leave gracefully before it sends the
    /// next one. Beacons are sent and do not count.
    pub fn leave_after(&mut self, frames: u32) {
        self.frames_left = Some((frames, Ending::Leave));
    }

    /// Stops the process, or lets it run again.
    pub fn set_stopped(&mut self, is_stopped: bool) {
        self.is_stopped = is_stopped;
    }

    /// Whether the process does not run.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Lets the process leave gracefully.
    pub fn leave(&mut self) {
        self.endpoint.leave();
        self.is_leaving = true;
    }

    /// Whether the process was asked to leave and has not left yet.
    pub fn is_leaving(&self) -> bool {
        self.is_leaving && !self.endpoint.has_left()
    }

    /// Whether the process has reached its crash point and is inactive.
    pub fn has_crashed(&self) -> bool {
        self.has_crashed
    }

    /// Counts the frame in `slot` and returns whether the process crashes instead of sending it.
    #[cold]
    fn hits_crash_point(&mut self, slot: &[u8]) -> bool {
        let is_beacon = parse_header(slot).is_ok_and(|(_, opcode)| opcode.is_beacon());
        if let Some((left, ending)) = &mut self.frames_left
            && !is_beacon
        {
            self.has_crashed = *left == 0 && *ending == Ending::Crash;
            *left = left.saturating_sub(1);
        }
        self.has_crashed
    }

    /// Releases a delivery, unless the bug is about to hand it out a second time: then the second
    /// release counts.
    #[inline]
    pub fn release(&mut self, delivery: Delivery) {
        let is_repeated = self.bug == Some(Bug::EndpointRepeatsDelivery)
            && self.pending_events.contains(&Event::Delivered(delivery.clone()));
        if !is_repeated {
            self.endpoint.release(delivery);
        }
    }

    fn is_due(&mut self) -> bool {
        self.opportunities += 1;
        self.opportunities.is_multiple_of(BUG_PERIOD)
    }

    /// Polls an event of the endpoint, and applies the bug to it.
    #[cold]
    fn poll_with_bug(&mut self, bug: Bug) -> Option<Event> {
        if let Some(event) = self.pending_events.pop_front() {
            return Some(event);
        }
        let event = self.endpoint.poll_event()?;
        match (bug, event.clone()) {
            (Bug::EndpointSwapsDeliveries, Event::Delivered(_)) if self.is_due() => {
                let next = self.endpoint.poll_event();
                self.pending_events.push_back(event.clone());
                next.or_else(|| self.pending_events.pop_front())
            }
            (Bug::EndpointRepeatsDelivery, Event::Delivered(_)) if self.is_due() => {
                self.pending_events.push_back(event.clone());
                Some(event)
            }
            (Bug::EndpointDropsDelivery, Event::Delivered(delivery)) if self.is_due() => {
                self.endpoint.release(delivery);
                self.poll_event()
            }
            (Bug::EndpointShiftsTimestamp, Event::Delivered(mut delivery)) if self.is_due() => {
                delivery.timestamp = delivery.timestamp.wrapping_add_ns(1);
                Some(Event::Delivered(delivery))
            }
            (Bug::EndpointDropsFailure, Event::SendFailed(_)) => self.poll_event(),
            (Bug::EndpointRepeatsFailure, Event::SendFailed(_)) => {
                self.pending_events.push_back(event.clone());
                Some(event)
            }
            _ => Some(event),
        }
    }
}

impl Machine for Process {
    type Event = Event;

    #[inline]
    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        if self.has_crashed || self.is_stopped {
            return Verdict::Dropped;
        }
        if self.bug == Some(Bug::EndpointRaisesBarrier)
            && let Ok((header, _)) = parse_header(frame)
        {
            let barrier = header.promises(now.sync).barrier;
            rewrite_promises(frame, Promises::both(barrier.wrapping_add_ns(AHEAD_NS)));
        }
        let verdict = self.endpoint.handle_frame(now, port, frame);
        // Endpoints of debug builds check themselves.
        let frames = self.endpoint.stats().frames_received;
        if cfg!(not(debug_assertions)) && frames.is_multiple_of(FRAMES_PER_CHECK) {
            self.endpoint.check_invariants();
        }
        verdict
    }

    fn handle_timeout(&mut self, now: Now) {
        if !self.has_crashed && !self.is_stopped {
            self.endpoint.handle_timeout(now);
        }
    }

    #[inline]
    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        if self.has_crashed || self.is_stopped {
            return None;
        }
        if self.frames_left == Some((0, Ending::Leave)) {
            self.frames_left = None;
            self.leave();
        }
        let transmit = self.endpoint.poll_transmit(now, slot)?;
        let is_last = self.frames_left.is_some() && self.hits_crash_point(&slot[..transmit.bytes]);
        (!is_last).then_some(transmit)
    }

    #[inline]
    fn poll_event(&mut self) -> Option<Event> {
        match self.bug {
            _ if self.has_crashed || self.is_stopped => None,
            None => self.endpoint.poll_event(),
            Some(bug) => self.poll_with_bug(bug),
        }
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Mono> {
        self.endpoint.poll_timeout().filter(|_| !self.has_crashed && !self.is_stopped)
    }
}
