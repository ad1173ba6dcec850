//! What the driver asks of a machine beyond [`Machine`].

use onepipe_amcast::{Client, Coordinator, Member, Replica};
use onepipe_arbiter::{Arbiter, Transfer};
use onepipe_base::{Incarnation, Machine, Now, Port, Promises, Timestamp};
use onepipe_endpoint::Endpoint;

/// A machine that can be driven over any transport, shared memory included.
///
/// The defaults suit a machine that knows nothing of promises: it is asked for frames every turn
/// and told no more than what frames say.
pub trait DrivenMachine: Machine {
    /// Takes a promise that came without a frame: what everything from `port` will be at or above.
    /// Frames that were sent before the promise have been handed over before it.
    fn handle_promises(&mut self, now: Now, port: Port, promises: Promises) {
        let _ = (now, port, promises);
    }

    /// Notes which life is at the other end of `port`, before anything that it promises is heard.
    fn handle_peer(&mut self, now: Now, port: Port, incarnation: Incarnation) {
        let _ = (now, port, incarnation);
    }

    /// Notes that nothing more comes from `port`, until something is heard from it again.
    fn handle_link_down(&mut self, port: Port) {
        let _ = port;
    }

    /// What everything this machine will ever send is at or above; `None` before it knows.
    fn promises(&self) -> Option<Promises> {
        None
    }

    /// The oldest reliable scattering whose fate is open: commits may not pass it.
    fn oldest_open(&self) -> Option<Timestamp> {
        None
    }

    /// Whether `poll_transmit` may have something to say before the next timeout is handled. True
    /// when in doubt. (It is asked after a timeout in any case.)
    fn wants_transmit(&self) -> bool {
        true
    }

    /// Whether it waits for promises of others to rise. Nobody wakes a blocked driver for those, so
    /// it keeps looking.
    fn is_waiting(&self) -> bool {
        false
    }
}

/// Scheduled transfer knows nothing of promises.
impl DrivenMachine for Arbiter {}

impl DrivenMachine for Transfer {}

/// Nor does agreed multicast.
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
    fn handle_promises(&mut self, now: Now, port: Port, promises: Promises) {
        Self::handle_promises(self, now, port, promises);
    }

    fn handle_peer(&mut self, now: Now, port: Port, incarnation: Incarnation) {
        Self::handle_peer(self, now, port, incarnation);
    }

    fn handle_link_down(&mut self, port: Port) {
        Self::handle_link_down(self, port);
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
    fn is_waiting(&self) -> bool {
        self.pending() > 0
    }
}
