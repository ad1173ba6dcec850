//! The thread that accepts connections and answers queries while no caller polls.

use std::io;
use std::net::TcpListener;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use onepipe_transport_driver::{Doorbell, DrivenService, DriverThread, StopFlag};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::acceptor::Acceptor;
use crate::event_fd::EventFd;

/// Interval of polling incomplete handshakes, which mostly complete within this time.
const PENDING_INTERVAL: Duration = Duration::from_millis(1);
/// Interval of polling a full acceptor, to close connections that have waited too long.
const FULL_INTERVAL: Duration = Duration::from_millis(100);

/// Starts a thread that serves `acceptor` whenever a connection arrives at `listener`, and sleeps
/// until then. If it panics, the listener is served by its callers only.
pub(crate) fn start(
    listener: TcpListener,
    acceptor: Arc<Mutex<Acceptor>>,
) -> io::Result<DriverThread> {
    let event_fd = Arc::new(EventFd::new()?);
    let doorbell = Doorbell::new(Arc::clone(&event_fd) as _);
    let service = AcceptService { listener, acceptor, event_fd, wait: None };
    DriverThread::start("onepipe-accept".to_owned(), service, doorbell)
}

struct AcceptService {
    listener: TcpListener,
    acceptor: Arc<Mutex<Acceptor>>,
    /// Rung when the service must end.
    event_fd: Arc<EventFd>,
    /// How long to wait for a connection; `None` without a limit.
    wait: Option<Duration>,
}

impl DrivenService for AcceptService {
    fn step(&mut self, stop: &StopFlag) -> ControlFlow<()> {
        // While the acceptor is full, pending connections would wake this thread over and over.
        let wants =
            if self.wait == Some(FULL_INTERVAL) { PollFlags::empty() } else { PollFlags::IN };
        let mut both = [
            PollFd::from_borrowed_fd(self.event_fd.fd(), PollFlags::IN),
            PollFd::new(&self.listener, wants),
        ];
        let timeout = self.wait.map(|wait| Timespec {
            tv_sec: wait.as_secs() as _,
            tv_nsec: wait.subsec_nanos().into(),
        });
        // An interrupted wait is as good as an expired one.
        let _ = poll(&mut both, timeout.as_ref());
        if stop.is_set() {
            return ControlFlow::Break(());
        }
        let mut acceptor = self.acceptor.lock().unwrap_or_else(PoisonError::into_inner);
        // A failing listener is reported to callers that wait for connections.
        let accepted = acceptor.accept_pending(Instant::now());
        self.wait = match accepted {
            Err(_) => Some(FULL_INTERVAL),
            Ok(()) if acceptor.is_full() => Some(FULL_INTERVAL),
            Ok(()) if acceptor.has_pending() => Some(PENDING_INTERVAL),
            Ok(()) => None,
        };
        ControlFlow::Continue(())
    }

    fn on_end(&mut self) {}
}
