//! Handles Ctrl-C.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use onepipe_transport_driver::Doorbell;

/// Exit status of an interrupted command: 128 + SIGINT, as in shells.
pub const EXIT_STATUS: u8 = 130;

/// Calls `handler` when the user interrupts this process (SIGINT, SIGTERM, SIGHUP), instead of
/// terminating it. May be called once per process.
pub fn on_interrupt(handler: impl FnMut() + Send + 'static) -> Result<()> {
    ctrlc::set_handler(handler).context("cannot install a handler for Ctrl-C")
}

/// Returns a flag that is set, and rings the doorbell, when the user interrupts this process; with
/// `exit_on_stdin_eof` also when standard input ends.
pub fn stop_flag(doorbell: Doorbell, exit_on_stdin_eof: bool) -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let request_stop = {
        let stop = Arc::clone(&stop);
        move || {
            stop.store(true, Ordering::Release);
            doorbell.ring();
        }
    };
    on_interrupt(request_stop.clone())?;
    if exit_on_stdin_eof {
        std::thread::spawn(move || {
            // An error ends the input as well.
            let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
            request_stop();
        });
    }
    Ok(stop)
}

/// Returns a flag that is set when the user interrupts this process.
pub fn flag() -> Result<Arc<AtomicBool>> {
    let flag: Arc<AtomicBool> = Arc::default();
    let interrupted = Arc::clone(&flag);
    on_interrupt(move || interrupted.store(true, Ordering::Release))?;
    Ok(flag)
}

/// The error of a command that the user has interrupted.
#[derive(Debug)]
pub struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// Returns [`Interrupted`] if the flag is set.
pub fn check(flag: &AtomicBool) -> Result<()> {
    if flag.load(Ordering::Acquire) { Err(Interrupted.into()) } else { Ok(()) }
}
