//! Whoever is at a door is answered, though nobody waits there.

use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use onepipe_transport_driver::Bell;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::bell::EventBell;
use crate::door::Hall;

/// Who has come says within this what he wants, mostly.
const SOON: Duration = Duration::from_millis(1);
/// A hall that is full is looked at again after this: who waits too long there is sent away.
const LATER: Duration = Duration::from_millis(100);

/// A thread that sleeps until somebody comes to a door. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Keeper {
    bell: Arc<EventBell>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Looks after `hall` whenever somebody is `outside`.
    pub fn new(outside: TcpListener, hall: Arc<Mutex<Hall>>) -> io::Result<Self> {
        let bell = Arc::new(EventBell::new()?);
        let its = Arc::clone(&bell);
        let builder = std::thread::Builder::new().name("onepipe-door".to_owned());
        let thread = builder.spawn(move || keep(&outside, &hall, &its))?;
        Ok(Self { bell, thread: Some(thread) })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.bell.ring();
        if let Some(thread) = self.thread.take() {
            // Then nobody listens there any more.
            let _ = thread.join();
        }
    }
}

fn keep(outside: &TcpListener, hall: &Mutex<Hall>, bell: &EventBell) {
    let mut wait: Option<Duration> = None;
    loop {
        // Who cannot be let in now would wake us again and again.
        let wants = if wait == Some(LATER) { PollFlags::empty() } else { PollFlags::IN };
        let mut both =
            [PollFd::from_borrowed_fd(bell.fd(), PollFlags::IN), PollFd::new(outside, wants)];
        let timeout = wait.map(|wait| Timespec {
            tv_sec: wait.as_secs() as _,
            tv_nsec: wait.subsec_nanos().into(),
        });
        // A wait that a signal ends is as good as one that is over.
        let _ = poll(&mut both, timeout.as_ref());
        if !both[0].revents().is_empty() {
            return;
        }
        let mut hall = hall.lock().unwrap_or_else(PoisonError::into_inner);
        // A door that fails says so to whoever wants to meet there.
        let looked = hall.look(Instant::now());
        wait = match looked {
            Err(_) => Some(LATER),
            Ok(()) if hall.is_full() => Some(LATER),
            Ok(()) if hall.has_strangers() => Some(SOON),
            Ok(()) => None,
        };
    }
}
