//! A process as it stands in the simulated fabric: the real endpoint, or one with a bug around it.

use std::collections::VecDeque;

use onepipe_base::{Machine, Mono, Now, Port, Promises, Transmit, Verdict};
use onepipe_endpoint::{Delivery, Endpoint, Event};
use onepipe_wire::{peek, rewrite_promises};

use crate::bug::{AHEAD_NS, Bug, EVERY};

/// An endpoint and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    /// The real one.
    pub endpoint: Endpoint,
    bug: Option<Bug>,
    /// Events held back, or made up.
    held: VecDeque<Event>,
    occasions: u32,
}

impl Process {
    /// The real endpoint, or one with a bug.
    pub fn new(endpoint: Endpoint, bug: Option<Bug>) -> Self {
        Self { endpoint, bug, held: VecDeque::new(), occasions: 0 }
    }

    /// The application is through with a delivery. One that is going to be handed out a second time
    /// is kept until then.
    #[inline]
    pub fn release(&mut self, delivery: Delivery) {
        let is_repeated = self.bug == Some(Bug::EndpointRepeatsDelivery)
            && self.held.contains(&Event::Delivered(delivery.clone()));
        if !is_repeated {
            self.endpoint.release(delivery);
        }
    }

    fn strikes(&mut self) -> bool {
        self.occasions += 1;
        self.occasions.is_multiple_of(EVERY)
    }

    #[cold]
    fn poll_wrongly(&mut self, bug: Bug) -> Option<Event> {
        if let Some(event) = self.held.pop_front() {
            return Some(event);
        }
        let event = self.endpoint.poll_event()?;
        match (bug, event.clone()) {
            (Bug::EndpointSwapsDeliveries, Event::Delivered(_)) if self.strikes() => {
                let next = self.endpoint.poll_event();
                self.held.push_back(event.clone());
                next.or_else(|| self.held.pop_front())
            }
            (Bug::EndpointRepeatsDelivery, Event::Delivered(_)) if self.strikes() => {
                self.held.push_back(event.clone());
                Some(event)
            }
            (Bug::EndpointSwallowsDelivery, Event::Delivered(delivery)) if self.strikes() => {
                self.endpoint.release(delivery);
                self.poll_event()
            }
            (Bug::EndpointShiftsTimestamp, Event::Delivered(mut delivery)) if self.strikes() => {
                delivery.timestamp = delivery.timestamp.wrapping_add_ns(1);
                Some(Event::Delivered(delivery))
            }
            (Bug::EndpointSwallowsFailure, Event::SendFailed(_)) => self.poll_event(),
            (Bug::EndpointRepeatsFailure, Event::SendFailed(_)) => {
                self.held.push_back(event.clone());
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
        if self.bug == Some(Bug::EndpointRunsAhead)
            && let Ok((header, _)) = peek(frame)
        {
            let barrier = header.promises(now.sync).barrier;
            rewrite_promises(frame, Promises::both(barrier.wrapping_add_ns(AHEAD_NS)));
        }
        self.endpoint.handle_frame(now, port, frame)
    }

    fn handle_timeout(&mut self, now: Now) {
        self.endpoint.handle_timeout(now);
    }

    #[inline]
    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        self.endpoint.poll_transmit(now, slot)
    }

    #[inline]
    fn poll_event(&mut self) -> Option<Event> {
        match self.bug {
            None => self.endpoint.poll_event(),
            Some(bug) => self.poll_wrongly(bug),
        }
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Mono> {
        self.endpoint.poll_timeout()
    }
}
