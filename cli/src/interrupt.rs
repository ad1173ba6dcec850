//! Ctrl-C, as an event.

use anyhow::{Context, Result};

/// The exit status of a command that was interrupted: 128 + SIGINT, as shells have it.
pub const EXIT_STATUS: u8 = 130;

/// Calls `tell` when the user interrupts this process (SIGINT, SIGTERM, SIGHUP), instead of ending
/// it on the spot. Once a process.
pub fn on_interrupt(tell: impl FnMut() + Send + 'static) -> Result<()> {
    ctrlc::set_handler(tell).context("cannot watch for Ctrl-C")
}
