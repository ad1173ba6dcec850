//! The contract between a state machine and its driver.

use crate::{Mono, Now, Port};

/// What a machine did with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The machine took what it needed; the driver may reuse the buffer.
    Consumed,
    /// The frame was malformed, stale or not for this machine; it is counted, and has no other
    /// effect.
    Dropped,
    /// The driver must send the frame, as rewritten in place, out of this port, after everything
    /// that was polled or forwarded for that port before (rule D3).
    Forward(Port),
    /// The driver must send a copy of the frame, as rewritten in place, out of this port as with
    /// [`Verdict::Forward`], and then pass the same bytes in again at once, from the same port: the
    /// frame has more receivers. Whatever the driver changed in the copy's header is overwritten.
    Replicate(Port),
}

/// A frame that a machine has written into the driver's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transmit {
    /// The port to send it from.
    pub port: Port,
    /// Length of the frame.
    pub bytes: usize,
}

/// A sans-IO state machine.
///
/// # Driver rules
/// - **D1** Both clocks are read once per batch; `now.mono` never goes back. `now.sync` may.
/// - **D2** Mutate once (`handle_*` or a command), then drain `poll_transmit` and `poll_event`
///   until both return `None`, then wait. A driver under backpressure may stop draining early, but
///   must resume before it waits for anything but buffer space.
/// - **D3** Frames of one port leave in the order in which they were polled or forwarded; no queue
///   below the driver may reorder them.
/// - **D4** A link that may reorder is declared so in the machine's configuration.
/// - **D5** Timers may be late, never early: `handle_timeout` is called at or after `poll_timeout`.
///
/// The buffer passed to `poll_transmit` must hold the machine's configured `frame_len_max`.
pub trait Machine {
    /// What the machine reports to the application.
    type Event;

    /// Handles a frame that arrived on `port`. May rewrite it in place.
    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict;

    /// Runs all timers that are due at `now`.
    fn handle_timeout(&mut self, now: Now);

    /// Writes the next frame to send into `slot`, or returns `None`. Timestamps are taken here, at
    /// departure, not at submission.
    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit>;

    /// Returns the next event for the application.
    fn poll_event(&mut self) -> Option<Self::Event>;

    /// Returns the next deadline for `handle_timeout`, if any. May change with any other call.
    fn poll_timeout(&self) -> Option<Mono>;
}
