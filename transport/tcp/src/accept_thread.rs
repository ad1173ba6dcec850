//! The thread that accepts connections and answers queries while no caller polls.

use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use onepipe_transport_driver::Waker;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::acceptor::Acceptor;
use crate::event_fd::EventFd;

/// Interval of polling incomplete handshakes, which mostly complete within this time.
const PENDING_INTERVAL: Duration = Duration::from_millis(1);
/// Interval of polling a full acceptor, to close connections that have waited too long.
const FULL_INTERVAL: Duration = Duration::from_millis(100);

/// A thread that sleeps until a connection arrives. It ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct AcceptThread {
    event_fd: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl AcceptThread {
    /// Serves `acceptor` whenever a connection arrives at `listener`.
    pub fn new(listener: TcpListener, acceptor: Arc<Mutex<Acceptor>>) -> io::Result<Self> {
        let event_fd = Arc::new(EventFd::new()?);
        let thread_event_fd = Arc::clone(&event_fd);
        let builder = std::thread::Builder::new().name("onepipe-accept".to_owned());
        let thread = builder.spawn(move || run(&listener, &acceptor, &thread_event_fd))?;
        Ok(Self { event_fd, thread: Some(thread) })
    }
}

impl Drop for AcceptThread {
    fn drop(&mut self) {
        self.event_fd.ring();
        if let Some(thread) = self.thread.take() {
            // A panic was reported by the thread; then the listener is served by its callers only.
            let _ = thread.join();
        }
    }
}

fn run(listener: &TcpListener, acceptor: &Mutex<Acceptor>, event_fd: &EventFd) {
    let mut wait: Option<Duration> = None;
    loop {
        // While the acceptor is full, pending connections would wake this thread over and over.
        let wants = if wait == Some(FULL_INTERVAL) { PollFlags::empty() } else { PollFlags::IN };
        let mut both =
            [PollFd::from_borrowed_fd(event_fd.fd(), PollFlags::IN), PollFd::new(listener, wants)];
        let timeout = wait.map(|wait| Timespec {
            tv_sec: wait.as_secs() as _,
            tv_nsec: wait.subsec_nanos().into(),
        });
        // An interrupted wait is as good as an expired one.
        let _ = poll(&mut both, timeout.as_ref());
        if !both[0].revents().is_empty() {
            return;
        }
        let mut acceptor = acceptor.lock().unwrap_or_else(PoisonError::into_inner);
        // A failing listener is reported to callers that wait for connections.
        let accepted = acceptor.accept_pending(Instant::now());
        wait = match accepted {
            Err(_) => Some(FULL_INTERVAL),
            Ok(()) if acceptor.is_full() => Some(FULL_INTERVAL),
            Ok(()) if acceptor.has_pending() => Some(PENDING_INTERVAL),
            Ok(()) => None,
        };
    }
}
