//! Ctrl-C, as an event.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use onepipe_transport_driver::Doorbell;

/// The exit status of a command that was interrupted: 128 + SIGINT, as shells have it.
pub const EXIT_STATUS: u8 = 130;

/// Calls `handler` when the user interrupts this process (SIGINT, SIGTERM, SIGHUP), instead of ending
/// it on the spot. Once a process.
pub fn on_interrupt(handler: impl FnMut() + Send + 'static) -> Result<()> {
    ctrlc::set_handler(handler).context("cannot install a handler for Ctrl-C")
}

/// Sets the flag that is returned, and rings, when the user interrupts this process; or, if it is
/// to end with it, when standard input ends.
pub fn stop_flag(doorbell: Doorbell, exit_on_stdin_eof: bool) -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let stop_running = {
        let stop = Arc::clone(&stop);
        move || {
            stop.store(true, Ordering::Release);
            doorbell.ring();
        }
    };
    on_interrupt(stop_running.clone())?;
    if exit_on_stdin_eof {
        std::thread::spawn(move || {
            // However it ends, it has ended.
            let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
            stop_running();
        });
    }
    Ok(stop)
}
