//! What a driver requires of a machine beyond [`Machine`].

use onepipe_amcast::{Client, Coordinator, Member, Replica};
use onepipe_arbiter::{Arbiter, Transfer};
use onepipe_base::{Cause, Incarnation, Machine, Now, Port, Promises, Timestamp};
use onepipe_endpoint::{Endpoint, Event};

/// A machine that can be driven over any transport, shared memory included.
///
/// The defaults suit a machine without promises: the driver polls it every turn and passes it
/// nothing but frames.
pub trait DrivenMachine: Machine {
    /// Handles promises that came without a frame: a lower bound of everything that `port` will
    /// carry. Frames sent before the promises have been handled already.
    fn handle_promises(&mut self, now: Now, port: Port, promises: Promises) {
        let _ = (now, port, promises);
    }

    /// Handles the incarnation of the peer on `port`, before any of its promises.
    fn handle_peer(&mut self, now: Now, port: Port, incarnation: Incarnation) {
        let _ = (now, port, incarnation);
    }

    /// Handles the end of the link on `port`, and why it ended; promises from that port revive it.
    fn handle_link_down(&mut self, port: Port, cause: Cause) {
        let _ = (port, cause);
    }

    /// Lower bounds of everything this machine will send; `None` while unknown.
    fn promises(&self) -> Option<Promises> {
        None
    }

    /// The oldest reliable scattering whose outcome is open: commit promises may not pass it.
    fn oldest_open(&self) -> Option<Timestamp> {
        None
    }

    /// Polls events and passes each to `on_event` until there is none, or `max` were passed.
    /// Returns their number. A machine for which handing out an event costs as much as making it
    /// overrides this, so that frequent and rare events do not meet in memory: see
    /// [`Endpoint::poll_delivery`].
    #[inline]
    fn poll_events(
        &mut self,
        max: usize,
        on_event: &mut impl FnMut(&mut Self, Self::Event),
    ) -> usize
    where
        Self: Sized,
    {
        let mut events = 0;
        while events < max
            && let Some(event) = self.poll_event()
        {
            on_event(self, event);
            events += 1;
        }
        events
    }

    /// Whether `poll_transmit` may return a frame before the next timeout is handled. True when in
    /// doubt. (The driver polls after a timeout in any case.)
    fn wants_transmit(&self) -> bool {
        true
    }

    /// Whether the machine waits for promises of others to rise. Where a rise does not wake a
    /// blocked driver ([`crate::Transport::PROMISES_WAKE`]), the driver keeps polling.
    fn is_awaiting_promises(&self) -> bool {
        false
    }
}

/// Scheduled transfer has no promises.
impl DrivenMachine for Arbiter {}

impl DrivenMachine for Transfer {}

/// Agreed multicast has no promises.
impl DrivenMachine for Client {
    fn wants_transmit(&self) -> bool {
        Self::wants_transmit(self)
    }
}

impl DrivenMachine for Coordinator {}

impl DrivenMachine for Member {
    fn wants_transmit(&self) -> bool {
        Self::wants_transmit(self)
    }
}

impl DrivenMachine for Replica {
    fn wants_transmit(&self) -> bool {
        Self::wants_transmit(self)
    }
}

impl DrivenMachine for Endpoint {
    #[inline]
    fn poll_events(
        &mut self,
        max: usize,
        on_event: &mut impl FnMut(&mut Self, Self::Event),
    ) -> usize {
        let mut events = 0;
        while events < max {
            if let Some(delivery) = self.poll_delivery() {
                on_event(self, Event::Delivered(delivery));
            } else if let Some(event) = self.poll_other_event() {
                on_event(self, event);
            } else {
                break;
            }
            events += 1;
        }
        events
    }

    #[inline]
    fn handle_promises(&mut self, now: Now, port: Port, promises: Promises) {
        Self::handle_promises(self, now, port, promises);
    }

    fn handle_peer(&mut self, now: Now, port: Port, incarnation: Incarnation) {
        Self::handle_peer(self, now, port, incarnation);
    }

    fn handle_link_down(&mut self, port: Port, cause: Cause) {
        Self::handle_link_down(self, port, cause);
    }

    #[inline]
    fn oldest_open(&self) -> Option<Timestamp> {
        Self::oldest_open(self)
    }

    #[inline]
    fn promises(&self) -> Option<Promises> {
        Self::promises(self)
    }

    #[inline]
    fn wants_transmit(&self) -> bool {
        Self::wants_transmit(self)
    }

    #[inline]
    fn is_awaiting_promises(&self) -> bool {
        self.pending() > 0
    }
}
