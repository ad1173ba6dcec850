//! The listening socket of a process, shared by any number of groups.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use onepipe_transport_driver::DriverThread;

use crate::accept_thread;
use crate::acceptor::{Acceptor, ListenerStats};
use crate::group_state::GroupState;
use crate::handshake::{Handshake, HandshakeKind};

/// Polling interval while a caller waits for a connection.
const POLL_INTERVAL: Duration = Duration::from_micros(500);

/// A listening socket that sorts connections by their handshake. Clones share the socket.
///
/// A thread of its own answers queries for the state of a group; it sleeps until a connection comes
/// in. So queries are answered even while no group runs and no caller polls.
#[derive(Clone, Debug)]
pub struct Listener {
    address: SocketAddr,
    acceptor: Arc<Mutex<Acceptor>>,
    /// Stopped with the last clone.
    _accept_thread: Arc<DriverThread>,
}

impl Listener {
    /// Binds a listener at an address; port 0 selects a free one.
    ///
    /// # Errors
    /// The system's.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let accept_listener = listener.try_clone()?;
        let acceptor = Arc::new(Mutex::new(Acceptor::new(listener)));
        let accept_thread = Arc::new(accept_thread::start(accept_listener, Arc::clone(&acceptor))?);
        Ok(Self { address, acceptor, _accept_thread: accept_thread })
    }

    /// The local address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Counters of the connections that were closed without being used.
    pub fn stats(&self) -> ListenerStats {
        self.acceptor().stats
    }

    /// Connects to the listener of another process for the application's own protocol.
    ///
    /// # Errors
    /// The system's; a timeout.
    pub fn connect_app(address: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        stream.set_nodelay(true)?;
        Handshake { kind: HandshakeKind::App, group: 0, from: 0, to: 0 }.send(&stream)?;
        Ok(stream)
    }

    /// Returns the state of a group, as far as this process has been a member of it.
    pub fn group_state(&self, group: u64) -> GroupState {
        self.acceptor().states.get(group)
    }

    /// Sets the state of a group, for queries by late members.
    pub(crate) fn set_group_state(&self, group: u64, group_state: GroupState) {
        self.acceptor().states.set(group, group_state);
    }

    /// Notes that a running group has ended.
    pub fn end_group(&self, group: u64) {
        let mut acceptor = self.acceptor();
        if acceptor.states.get(group) == GroupState::Running {
            acceptor.states.set(group, GroupState::Ended);
        }
    }

    fn acceptor(&self) -> MutexGuard<'_, Acceptor> {
        self.acceptor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the next application connection, if one comes before `until`.
    ///
    /// # Errors
    /// The system's.
    pub fn accept_app(&self, until: Instant) -> io::Result<Option<TcpStream>> {
        self.accept_matching(until, |handshake| handshake.kind == HandshakeKind::App)
    }

    /// Returns the connection of one member of a group to another, if it comes before `until`.
    pub(crate) fn accept_member(
        &self,
        group: u64,
        (from, to): (u32, u32),
        until: Instant,
    ) -> io::Result<Option<TcpStream>> {
        let wanted = Handshake { kind: HandshakeKind::Member, group, from, to };
        self.accept_matching(until, |handshake| *handshake == wanted)
    }

    fn accept_matching(
        &self,
        until: Instant,
        is_wanted: impl Fn(&Handshake) -> bool,
    ) -> io::Result<Option<TcpStream>> {
        loop {
            let now = Instant::now();
            let mut acceptor = self.acceptor();
            acceptor.accept_pending(now)?;
            if let Some(at) =
                acceptor.accepted.iter().position(|(handshake, ..)| is_wanted(handshake))
            {
                let (_, stream, _) = acceptor.accepted.swap_remove(at);
                stream.set_nonblocking(false)?;
                return Ok(Some(stream));
            }
            drop(acceptor);
            if now >= until {
                return Ok(None);
            }
            std::thread::sleep(POLL_INTERVAL.min(until.saturating_duration_since(now)));
        }
    }
}
