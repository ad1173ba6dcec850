//! Accepting connections and reading their handshakes.

use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::group_state::GroupStates;
use crate::handshake::{HANDSHAKE_LEN, Handshake, HandshakeKind};

/// Maximum time to receive the handshake of a connection.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time that an accepted connection waits to be claimed.
const ACCEPTED_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of connections held here; more wait in the kernel's backlog.
const CONNECTIONS_MAX: usize = 1024;

/// The connections of a listener that no caller has claimed yet, and the states of groups.
#[derive(Debug)]
pub(crate) struct Acceptor {
    listener: TcpListener,
    pending: Vec<PendingConnection>,
    pub accepted: Vec<(Handshake, TcpStream, Instant)>,
    pub states: GroupStates,
}

/// A connection whose handshake is incomplete.
#[derive(Debug)]
struct PendingConnection {
    stream: TcpStream,
    bytes: [u8; HANDSHAKE_LEN],
    received: usize,
    since: Instant,
}

impl Acceptor {
    pub fn new(listener: TcpListener) -> Self {
        let (pending, accepted, states) = (Vec::new(), Vec::new(), GroupStates::default());
        Self { listener, pending, accepted, states }
    }

    /// Whether any connection's handshake is incomplete.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether the limit of held connections is reached.
    pub fn is_full(&self) -> bool {
        self.pending.len() + self.accepted.len() >= CONNECTIONS_MAX
    }

    /// Accepts connections, reads handshakes and answers state queries.
    pub fn accept_pending(&mut self, now: Instant) -> io::Result<()> {
        while !self.is_full() {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(true)?;
                    let bytes = [0; HANDSHAKE_LEN];
                    self.pending.push(PendingConnection { stream, bytes, received: 0, since: now });
                }
                // The client has closed the connection already.
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
        match connection.stream.read(&mut connection.bytes[connection.received..]) {
            Ok(0) => return,
            Ok(more) => connection.received += more,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
        if connection.received < HANDSHAKE_LEN {
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
                    // A client that misses the reply queries again.
                    let _ = reply.send(&connection.stream);
                }
                _ => self.accepted.push((handshake, connection.stream, now)),
            }
        }
    }
}
