//! The contract between the driver and a transport.

use std::fmt;
use std::io;
use std::sync::Arc;

use onepipe_base::{Cause, Incarnation, Now, Port, Promises, Timestamp, Transmit, Verdict};

use crate::Doorbell;

/// Carries frames in memory of its own.
///
/// In one turn the driver calls, in this order: `set_awaiting_promises`, `receive`, `poll_peers`,
/// `poll_promises`, `poll_links_down`, and in the end `hold_commits`. Before and after these, if
/// there is output: `can_begin_burst`, `begin_burst`, any number of `slot` + `send` and perhaps
/// `flush`, `hold_commits`, `end_burst`. The driver reads the clock right after `begin_burst`, and
/// before `receive` unless at most one frame was sent since that reading.
pub trait Transport {
    /// Whether frames of one link arrive in the order sent (driver rule D4). If not, the machine's
    /// configuration must say so.
    const IS_FIFO: bool;
    /// Whether looking for frames takes a system call. A driver that backs off then polls less
    /// often before it blocks ([`crate::Idle::Backoff`]). Default true.
    const POLLS_BY_SYSTEM_CALL: bool = true;
    /// Whether risen promises end [`Transport::wait`]. If not, a driver whose machine waits for
    /// promises polls instead of blocking. Default true: promises travel in frames.
    const PROMISES_WAKE: bool = true;

    /// Sets whether the machine waits for promises to rise. While it does not, a transport that
    /// polls for promises may poll less often, because polling disturbs the senders.
    fn set_awaiting_promises(&mut self, is_awaiting_promises: bool) {
        let _ = is_awaiting_promises;
    }

    /// Passes received frames to `on_frame` in place, at most a bounded batch, and returns their
    /// number. A frame for which `on_frame` returns [`Verdict::Forward`] is sent out of that port
    /// as it then stands, behind everything sent to that port before; with [`Verdict::Replicate`] a
    /// copy of it is, and the frame is passed to `on_frame` again.
    ///
    /// `now` was read before this call.
    fn receive(&mut self, now: Now, on_frame: impl FnMut(Port, &mut [u8]) -> Verdict) -> usize;

    /// Reports to `on_peer` each new incarnation at the other end of a link, where the transport
    /// knows it. All frames of the previous incarnation have been received by then.
    fn poll_peers(&mut self, on_peer: impl FnMut(Port, Incarnation)) {
        let _ = on_peer;
    }

    /// Reports to `on_promises` what links promise by other means than frames. All frames sent
    /// before such a promise have been received by then.
    fn poll_promises(&mut self, now: Now, on_promises: impl FnMut(Port, Promises)) {
        let _ = (now, on_promises);
    }

    /// Reports to `on_link_down` each link that is known to have ended, by other means than a
    /// timeout, and why. All frames of such a link have been received by then.
    fn poll_links_down(&mut self, on_link_down: impl FnMut(Port, Cause)) {
        let _ = on_link_down;
    }

    /// Whether a burst may start. False makes the driver come back without blocking; so this must
    /// become true within bounded time, if need be by dropping frames.
    fn can_begin_burst(&mut self, now: Now) -> bool {
        let _ = now;
        true
    }

    /// Starts a burst in which everything is at or above `promises`. The clock that stamps the
    /// burst is read after this.
    fn begin_burst(&mut self, now: Now, promises: Option<Promises>) {
        let _ = (now, promises);
    }

    /// Memory for the next frame; `None` while there is no free slot.
    fn slot(&mut self) -> Option<&mut [u8]>;

    /// Sends the frame that was written into the last slot.
    fn send(&mut self, transmit: Transmit);

    /// Lets frames sent so far in this burst go, as few more are likely to follow.
    fn flush(&mut self) {}

    /// Forbids peers to deliver reliable scatterings stamped at or above `since`, the oldest one
    /// with an open outcome; `None` if there is none. For transports that publish promises by other
    /// means than frames.
    fn hold_commits(&mut self, since: Option<Timestamp>) {
        let _ = since;
    }

    /// Ends the burst: all its frames must be on their way. `rest` is `None` when the machine had
    /// no more output, else a lower bound of what is left.
    fn end_burst(&mut self, rest: Option<Promises>);

    /// Blocks until a frame has arrived, the doorbell was rung or `timeout_ns` have passed. May
    /// return early (spurious wake-up).
    fn wait(&mut self, timeout_ns: u64);

    /// The handle that ends [`Transport::wait`] from another thread.
    fn doorbell(&self) -> Doorbell;
}

/// Waits for input from a thread that does not own the transport.
pub trait Wait: fmt::Debug + Send + Sync {
    /// Blocks until input arrives, [`Wait::ring`] is called or `timeout_ns` have passed. May return
    /// early (spurious wake-up).
    fn wait(&self, timeout_ns: u64);

    /// Makes the current wait of this handle, or else the next one, return at once, even if
    /// another thread waits for the transport meanwhile.
    fn ring(&self);
}

/// A transport that one thread can wait for while another one may take a turn: between
/// [`SharedWait::begin_wait`] and [`SharedWait::end_wait`] the transport itself is not borrowed.
pub trait SharedWait: Transport {
    /// Makes a handle to wait with.
    ///
    /// # Errors
    /// The system has no descriptor left.
    fn wait_handle(&self) -> io::Result<Arc<dyn Wait>>;

    /// Announces a wait: from now on input wakes the handle. Returns false, and announces nothing,
    /// if input is there already. Only one wait at a time, [`Transport::wait`] included.
    fn begin_wait(&mut self) -> bool;

    /// Ends an announced wait. If the handle may still block, ring it first.
    fn end_wait(&mut self);
}
