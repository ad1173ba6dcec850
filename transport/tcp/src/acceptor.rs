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

/// Counters of the connections that a listener has closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenerStats {
    /// Connections that ended, failed or sent something else before a handshake was complete.
    pub connections_refused: u64,
    /// Connections without a handshake for 5 s, or without a group or a caller for 60 s.
    pub connections_timed_out: u64,
}

/// The connections of a listener that no caller has claimed yet, and the states of groups.
#[derive(Debug)]
pub(crate) struct Acceptor {
    listener: TcpListener,
    pending: Vec<PendingConnection>,
    pub accepted: Vec<(Handshake, TcpStream, Instant)>,
    pub states: GroupStates,
    pub stats: ListenerStats,
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
        Self { listener, pending, accepted, states, stats: ListenerStats::default() }
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
        let held = self.accepted.len();
        self.accepted.retain(|(_, _, since)| now.duration_since(*since) < ACCEPTED_TIMEOUT);
        self.stats.connections_timed_out += (held - self.accepted.len()) as u64;
        Ok(())
    }

    fn read_handshake(&mut self, mut connection: PendingConnection, now: Instant) {
        match connection.stream.read(&mut connection.bytes[connection.received..]) {
            Ok(more @ 1..) => connection.received += more,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(0) | Err(_) => return self.stats.connections_refused += 1,
        }
        if connection.received < HANDSHAKE_LEN {
            if now.duration_since(connection.since) < HANDSHAKE_TIMEOUT {
                self.pending.push(connection);
            } else {
                self.stats.connections_timed_out += 1;
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
        } else {
            self.stats.connections_refused += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn closed_connections_are_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback is available");
        listener.set_nonblocking(true).expect("a socket");
        let address = listener.local_addr().expect("it is bound");
        let mut acceptor = Acceptor::new(listener);
        let began = Instant::now();
        let connect = || TcpStream::connect(address).expect("it listens");
        let until = |acceptor: &mut Acceptor, holds: &dyn Fn(&Acceptor) -> bool| {
            while !holds(acceptor) {
                acceptor.accept_pending(began).expect("it listens");
                assert!(began.elapsed() < Duration::from_secs(60), "{acceptor:?}");
            }
        };
        let _mute = connect();
        until(&mut acceptor, &|acceptor| acceptor.pending.len() == 1);
        drop(connect());
        until(&mut acceptor, &|acceptor| acceptor.stats.connections_refused == 1);
        let mut stranger = connect();
        stranger.write_all(&[b'?'; HANDSHAKE_LEN]).expect("it listens");
        until(&mut acceptor, &|acceptor| acceptor.stats.connections_refused == 2);
        let unclaimed = connect();
        let handshake = Handshake { kind: HandshakeKind::App, group: 0, from: 0, to: 0 };
        handshake.send(&unclaimed).expect("it listens");
        until(&mut acceptor, &|acceptor| acceptor.accepted.len() == 1);
        for (timeout, timed_out) in [(HANDSHAKE_TIMEOUT, 1), (ACCEPTED_TIMEOUT, 2)] {
            acceptor.accept_pending(began + timeout).expect("it listens");
            let expected =
                ListenerStats { connections_refused: 2, connections_timed_out: timed_out };
            assert_eq!(acceptor.stats, expected);
        }
        assert_eq!((acceptor.pending.len(), acceptor.accepted.len()), (0, 0));
    }
}
