//! Where a process is found, by however many groups.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::accept_thread::AcceptThread;
use crate::group_state::{GroupState, GroupStates};
use crate::handshake::{Handshake, HandshakeKind, LEN};

/// Whoever has not said so soon who he is, is nobody.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Those who have said so wait so long to be asked in.
const ACCEPTED_TIMEOUT: Duration = Duration::from_secs(60);
/// Connections that wait here, at most; more wait in the system.
const WAITING_MAX: usize = 1024;
/// How often the door is looked at while somebody waits there.
const POLL_INTERVAL: Duration = Duration::from_micros(500);

/// A listening socket that sorts who comes by what he wants. Clones are the same door.
///
/// Whoever asks how a group stands is answered by a thread of its own, which sleeps until somebody
/// comes: so it is told, too, where no group is at work, or nobody drives one.
#[derive(Clone, Debug)]
pub struct Listener {
    address: SocketAddr,
    acceptor: Arc<Mutex<Acceptor>>,
    /// Goes with the last of its clones.
    _accept_thread: Arc<AcceptThread>,
}

#[derive(Debug)]
pub(crate) struct Acceptor {
    listener: TcpListener,
    pending: Vec<PendingConnection>,
    accepted: Vec<(Handshake, TcpStream, Instant)>,
    states: GroupStates,
}

/// Somebody who has not said all of who he is.
#[derive(Debug)]
struct PendingConnection {
    stream: TcpStream,
    bytes: [u8; LEN],
    have: usize,
    since: Instant,
}

impl Listener {
    /// Opens one at an address; its port may be 0 for any.
    ///
    /// # Errors
    /// What the system says.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (pending, accepted, states) = (Vec::new(), Vec::new(), GroupStates::default());
        let accept_listener = listener.try_clone()?;
        let acceptor = Arc::new(Mutex::new(Acceptor { listener, pending, accepted, states }));
        let accept_thread = Arc::new(AcceptThread::new(accept_listener, Arc::clone(&acceptor))?);
        Ok(Self { address, acceptor, _accept_thread: accept_thread })
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Goes to the door of another process as a guest: what is said there is the application's
    /// affair.
    ///
    /// # Errors
    /// What the system says; nobody has opened within `timeout`.
    pub fn connect_app(address: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        stream.set_nodelay(true)?;
        Handshake { kind: HandshakeKind::App, group: 0, from: 0, to: 0 }.send(&stream)?;
        Ok(stream)
    }

    /// How a group stands, as far as it has met here.
    pub fn group_state(&self, group: u64) -> GroupState {
        self.acceptor().states.get(group)
    }

    /// Whoever comes late is told so from now on.
    pub(crate) fn set_group_state(&self, group: u64, group_state: GroupState) {
        self.acceptor().states.set(group, group_state);
    }

    /// A group that has begun is over.
    pub fn end_group(&self, group: u64) {
        let mut acceptor = self.acceptor();
        if acceptor.states.get(group) == GroupState::Running {
            acceptor.states.set(group, GroupState::Ended);
        }
    }

    fn acceptor(&self) -> MutexGuard<'_, Acceptor> {
        self.acceptor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next guest, if one comes before `until`.
    ///
    /// # Errors
    /// What the system says.
    pub fn accept_app(&self, until: Instant) -> io::Result<Option<TcpStream>> {
        self.wait(until, |handshake| handshake.kind == HandshakeKind::App)
    }

    /// The link that a member of a group makes to another one, if it comes before `until`.
    pub(crate) fn member(
        &self,
        group: u64,
        (from, to): (u32, u32),
        until: Instant,
    ) -> io::Result<Option<TcpStream>> {
        let wanted = Handshake { kind: HandshakeKind::Member, group, from, to };
        self.wait(until, |handshake| *handshake == wanted)
    }

    fn wait(
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

impl Acceptor {
    /// Whether somebody is here of whom it is not known yet what he wants.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether nobody more is let in.
    pub fn is_full(&self) -> bool {
        self.pending.len() + self.accepted.len() >= WAITING_MAX
    }

    /// Takes in who is there, and answers who asks how a group stands.
    pub fn accept_pending(&mut self, now: Instant) -> io::Result<()> {
        while !self.is_full() {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(true)?;
                    let bytes = [0; LEN];
                    self.pending.push(PendingConnection { stream, bytes, have: 0, since: now });
                }
                // Who has gone already is nobody.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        for connection in std::mem::take(&mut self.pending) {
            self.read_handshake(connection, now);
        }
        self.accepted.retain(|(_, _, since)| now.duration_since(*since) < ACCEPTED_TIMEOUT);
        Ok(())
    }

    fn read_handshake(&mut self, mut connection: PendingConnection, now: Instant) {
        match connection.stream.read(&mut connection.bytes[connection.have..]) {
            Ok(0) => return,
            Ok(more) => connection.have += more,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
        if connection.have < LEN {
            if now.duration_since(connection.since) < HANDSHAKE_TIMEOUT {
                self.pending.push(connection);
            }
        } else if let Some(handshake) = Handshake::parse(&connection.bytes) {
            match handshake.kind {
                HandshakeKind::StateQuery => {
                    let group_state = self.states.get(handshake.group);
                    let reply = Handshake {
                        kind: HandshakeKind::StateReply,
                        to: group_state.bits(),
                        ..handshake
                    };
                    // Who does not hear it asks again.
                    let _ = reply.send(&connection.stream);
                }
                _ => self.accepted.push((handshake, connection.stream, now)),
            }
        }
    }
}
