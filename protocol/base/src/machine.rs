//! The contract between a machine and whatever drives it.

use crate::{Mono, Now, Port};

/// What became of a frame that was handed to a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The machine took what it needed; the driver may reuse the bytes.
    Consumed,
    /// The frame was malformed, stale or foreign; it was counted and has no other effect.
    Dropped,
    /// The driver shall send the frame, as rewritten in place, out of this port, behind everything
    /// that was polled or forwarded for that port before (rule D3).
    Forward(Port),
}

/// A frame that a machine has written into the driver's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transmit {
    /// Where it leaves.
    pub port: Port,
    /// How many bytes of the slot it fills.
    pub bytes: usize,
}

/// A sans-IO state machine.
///
/// # Driver rules
/// - **D1** Both clocks are read once per batch; `now.mono` never goes back. `now.sync` may.
/// - **D2** Mutate once (`handle_*` or a command), then drain `poll_transmit` and `poll_event` to
///   `None`, then wait. A driver that is short of room may stop draining early; it must come back
///   before it waits for anything else than room.
/// - **D3** Frames of one port leave in the order in which they were polled or forwarded. Nothing
///   behind the poll reorders them.
/// - **D4** A link that may reorder is declared so in the machine's configuration.
/// - **D5** Timers may be late, never early: `handle_timeout` is called at or after `poll_timeout`.
///
/// The slot passed to `poll_transmit` must hold the machine's configured `frame_len_max`.
pub trait Machine {
    /// What the machine tells the application.
    type Event;

    /// Takes a frame that arrived on `port`. It may be rewritten in place.
    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict;

    /// Runs whatever is due at `now`.
    fn handle_timeout(&mut self, now: Now);

    /// Writes the next frame to send into `slot`, or says that there is none. Timestamps are fixed
    /// here, at departure, not when the application submitted.
    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit>;

    /// The next thing to tell the application.
    fn poll_event(&mut self) -> Option<Self::Event>;

    /// When `handle_timeout` must next be called, if ever. May change after any other call.
    fn poll_timeout(&self) -> Option<Mono>;
}
