//! Whoever waits in vain asks the doors of the others how the group stands: it may have begun, or
//! be over, and nobody will come.

use std::io;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::group_state::GroupState;
use crate::handshake::{Handshake, HandshakeKind, LEN};
use crate::{Listener, Rendezvous, RendezvousError};

/// Who comes late by less than this asks nobody. Between two rounds of questions, too.
const QUERY_INTERVAL: Duration = Duration::from_millis(250);
/// A door is opened in this time, or it counts for nothing this time.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(100);
/// Members that are asked at a time.
const QUERIES_MAX: usize = 4;

/// What a member that waits for others finds out.
#[derive(Debug)]
pub(crate) struct StateProbe {
    queries: Vec<(u32, TcpStream)>,
    next_query_at: Instant,
    /// Who is asked next.
    next: u32,
    /// Of whom it is known how the group stands there.
    replies: Vec<(u32, GroupState)>,
    /// We have been in a group of this name ourselves: another one of the name may follow.
    was_member: bool,
}

impl StateProbe {
    pub fn new(rendezvous: &Rendezvous<'_>, listener: &Listener) -> Self {
        Self {
            queries: Vec::new(),
            next_query_at: Instant::now() + QUERY_INTERVAL,
            next: 0,
            replies: Vec::new(),
            was_member: listener.group_state(rendezvous.group).is_final(),
        }
    }

    /// Asks, and hears.
    ///
    /// # Errors
    /// [`RendezvousError::GroupClosed`]: it is of no use to wait any longer.
    pub fn poll(&mut self, rendezvous: &Rendezvous<'_>) -> Result<(), RendezvousError> {
        let now = Instant::now();
        for (rank, stream) in std::mem::take(&mut self.queries) {
            match recv_reply(&stream, rendezvous.group) {
                Ok(Some(group_state)) => self.record(rank, group_state),
                Ok(None) => self.queries.push((rank, stream)),
                // It may have died; it is asked again when its turn comes.
                Err(_) => {}
            }
        }
        if !self.was_member
            && let Some((by, group_state)) =
                self.replies.iter().find(|(_, replies)| replies.is_final())
        {
            return Err(rendezvous.closed_error(*by, *group_state));
        }
        if now >= self.next_query_at {
            self.next_query_at = now + QUERY_INTERVAL;
            self.queries.clear();
            for _ in 0..rendezvous.members.len().min(QUERIES_MAX) {
                let rank = self.next % rendezvous.members.len() as u32;
                self.next = rank + 1;
                // Who does not open is not asked.
                self.queries.extend(send_query(rendezvous, rank).map(|stream| (rank, stream)));
            }
        }
        Ok(())
    }

    /// Why `rank` has not come, as far as was found out.
    pub fn reason(&self, rank: u32) -> Option<(u32, GroupState)> {
        let abandoned = self.replies.iter().find(|(_, replies)| *replies == GroupState::Abandoned);
        let unknown = self.replies.iter().find(|replies| **replies == (rank, GroupState::Unknown));
        abandoned.or(unknown).copied()
    }

    fn record(&mut self, rank: u32, group_state: GroupState) {
        self.replies.retain(|(known, _)| *known != rank);
        self.replies.push((rank, group_state));
    }
}

fn send_query(rendezvous: &Rendezvous<'_>, rank: u32) -> Option<TcpStream> {
    let address = rendezvous.members[rank as usize];
    // A root need not be where it is said to be.
    let is_somewhere = !address.ip().is_unspecified() && address.port() != 0;
    if rank == rendezvous.own || !is_somewhere {
        return None;
    }
    let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).ok()?;
    rendezvous.handshake(HandshakeKind::StateQuery, rank).send(&stream).ok()?;
    stream.set_nonblocking(true).ok()?;
    Some(stream)
}

/// The answer, if it is there.
fn recv_reply(stream: &TcpStream, group: u64) -> io::Result<Option<GroupState>> {
    let mut bytes = [0; LEN];
    match stream.peek(&mut bytes) {
        Ok(LEN) => {}
        Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(_) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        Err(error) => return Err(error),
    }
    let replies = Handshake::parse(&bytes)
        .filter(|it| it.kind == HandshakeKind::StateReply && it.group == group);
    let group_state = replies.and_then(|replies| GroupState::from_bits(replies.to));
    group_state.map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into())
}
