//! Queries of a waiting member to the listeners of the others: the group may have started already,
//! or have ended, and then no member will come.

use std::io;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::group_state::GroupState;
use crate::handshake::{HANDSHAKE_LEN, Handshake, HandshakeKind};
use crate::{Listener, Rendezvous, RendezvousError};

/// Delay of the first queries, and interval between rounds of queries.
const QUERY_INTERVAL: Duration = Duration::from_millis(250);
/// Connect timeout of a query.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(100);
/// Members queried per round.
const QUERIES_MAX: usize = 4;

/// The queries of a waiting member.
#[derive(Debug)]
pub(crate) struct StateProbe {
    queries: Vec<(u32, TcpStream)>,
    next_query_at: Instant,
    /// Rank to query next.
    next: u32,
    /// The states reported by members.
    replies: Vec<(u32, GroupState)>,
    /// This process was a member of a group of this name: another group of the name may follow.
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

    /// Reads replies and sends due queries.
    ///
    /// # Errors
    /// [`RendezvousError::GroupClosed`]: further waiting is pointless.
    pub fn poll(&mut self, rendezvous: &Rendezvous<'_>) -> Result<(), RendezvousError> {
        let now = Instant::now();
        for (rank, stream) in std::mem::take(&mut self.queries) {
            match recv_reply(&stream, rendezvous.group) {
                Ok(Some(group_state)) => self.record(rank, group_state),
                Ok(None) => self.queries.push((rank, stream)),
                // The member may have died; it is queried again in its turn.
                Err(_) => {}
            }
        }
        if !self.was_member
            && let Some((by, group_state)) = self.replies.iter().find(|(_, state)| state.is_final())
        {
            return Err(rendezvous.closed_error(*by, *group_state));
        }
        if now >= self.next_query_at {
            self.next_query_at = now + QUERY_INTERVAL;
            self.queries.clear();
            for _ in 0..rendezvous.members.len().min(QUERIES_MAX) {
                let rank = self.next % rendezvous.members.len() as u32;
                self.next = rank + 1;
                // Members that cannot be reached are skipped.
                self.queries.extend(send_query(rendezvous, rank).map(|stream| (rank, stream)));
            }
        }
        Ok(())
    }

    /// Returns why `rank` has not connected, if known: the member that reported it, and the state.
    pub fn reason(&self, rank: u32) -> Option<(u32, GroupState)> {
        let abandoned = self.replies.iter().find(|(_, state)| *state == GroupState::Abandoned);
        let unknown = self.replies.iter().find(|reply| **reply == (rank, GroupState::Unknown));
        abandoned.or(unknown).copied()
    }

    fn record(&mut self, rank: u32, group_state: GroupState) {
        self.replies.retain(|(known, _)| *known != rank);
        self.replies.push((rank, group_state));
    }
}

fn send_query(rendezvous: &Rendezvous<'_>, rank: u32) -> Option<TcpStream> {
    let address = rendezvous.members[rank as usize];
    // The address of a root may be unspecified.
    let is_reachable = !address.ip().is_unspecified() && address.port() != 0;
    if rank == rendezvous.own || !is_reachable {
        return None;
    }
    let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).ok()?;
    rendezvous.handshake(HandshakeKind::StateQuery, rank).send(&stream).ok()?;
    stream.set_nonblocking(true).ok()?;
    Some(stream)
}

/// Reads the reply, if it has arrived.
fn recv_reply(stream: &TcpStream, group: u64) -> io::Result<Option<GroupState>> {
    let mut bytes = [0; HANDSHAKE_LEN];
    match stream.peek(&mut bytes) {
        Ok(HANDSHAKE_LEN) => {}
        Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(_) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        Err(error) => return Err(error),
    }
    let reply = Handshake::parse(&bytes)
        .filter(|it| it.kind == HandshakeKind::StateReply && it.group == group);
    let group_state = reply.and_then(|reply| GroupState::from_bits(reply.to));
    group_state.map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into())
}
