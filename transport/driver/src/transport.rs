//! The contract between the driver and a world of frames.

use onepipe_base::{Incarnation, Now, Port, Promises, Timestamp, Transmit, Verdict};

use crate::Doorbell;

/// Carries frames, in memory of its own.
///
/// In one turn the driver calls, in this order: `expect`, `receive`, `poll_peers`, `poll_promises`, `poll_links_down`, and in
/// the end `hold_commits`. Before and after all that, if there is something to send: `can_begin_burst`,
/// `begin_burst`, any number of `slot` + `send` and perhaps `flush`, `hold_commits`, `end_burst`.
/// It reads the clock right after `begin_burst`, and before `receive` unless next to nothing was
/// sent since that other reading.
pub trait Transport {
    /// Whether frames of one link arrive in the order sent (driver rule D4). If not, the machine's
    /// configuration must say so.
    const IS_FIFO: bool;

    /// Says whether the machine waits for promises to rise. A transport that has to go and look for
    /// them may otherwise do so less often: looking disturbs who makes them.
    fn set_awaiting_promises(&mut self, is_waiting: bool) {
        let _ = is_waiting;
    }

    /// Hands what has arrived to `take`, at most a bounded batch, in place. A frame that `take`
    /// answers with [`Verdict::Forward`] is sent out of that port as it then stands, behind
    /// everything sent for that port before. Answers how many frames there were.
    ///
    /// `now` was read before this call.
    fn receive(&mut self, now: Now, take: impl FnMut(Port, &mut [u8]) -> Verdict) -> usize;

    /// Tells `on_peer` which life has come to the other end of a link, where the transport knows. All
    /// frames that came from the one before have been received by now.
    fn poll_peers(&mut self, on_peer: impl FnMut(Port, Incarnation)) {
        let _ = on_peer;
    }

    /// Tells `on_promises` what links promise by other means than frames. All frames that were sent before
    /// such a promise have been received by now.
    fn poll_promises(&mut self, now: Now, on_promises: impl FnMut(Port, Promises)) {
        let _ = (now, on_promises);
    }

    /// Tells `on_link_down` whose links have ended for certain, by other means than silence. All frames
    /// that came over such a link have been received by now.
    fn poll_links_down(&mut self, on_link_down: impl FnMut(Port)) {
        let _ = on_link_down;
    }

    /// Whether a burst may start. False asks the driver to come back, and to wait for nothing but
    /// room; so this must become true, or room must be made by dropping, in bounded time.
    fn can_begin_burst(&mut self, now: Now) -> bool {
        let _ = now;
        true
    }

    /// A burst starts: everything in it will be at or above `promises`. The clock by which it is
    /// stamped is read after this.
    fn begin_burst(&mut self, now: Now, promises: Option<Promises>) {
        let _ = (now, promises);
    }

    /// Room for the next frame; `None` when there is none for now.
    fn slot(&mut self) -> Option<&mut [u8]>;

    /// Sends the frame that was written into the slot given last.
    fn send(&mut self, transmit: Transmit);

    /// Next to nothing more is to be sent in this burst: what it has sent may go on its way.
    fn flush(&mut self) {}

    /// Nothing reliable that is stamped at or above `since` may be delivered by anybody yet: the
    /// oldest scattering whose fate is open; `None` if there is none. Where promises are not told
    /// by frames alone.
    fn hold_commits(&mut self, since: Option<Timestamp>) {
        let _ = since;
    }

    /// The burst ends, and everything in it must be on its way. `rest` is `None` when the machine
    /// had no more to send; else some is left over that will be at or above `rest`.
    fn end_burst(&mut self, rest: Option<Promises>);

    /// Blocks until a frame has arrived, the doorbell was rung or `timeout_ns` have passed. May
    /// return early for no reason.
    fn wait(&mut self, timeout_ns: u64);

    /// What wakes [`Transport::wait`] from another thread.
    fn doorbell(&self) -> Doorbell;
}
