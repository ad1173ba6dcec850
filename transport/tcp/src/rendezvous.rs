//! How the members of a group find each other.
//!
//! Who has the lower rank connects to who has the higher one, so the root needs no door. Who has
//! met everybody says so to the root, and the root says to all when to begin: else one would count
//! as silent to those who began earlier.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::handshake::{Handshake, HandshakeKind, LEN};
use crate::state_probe::StateProbe;
use crate::{GroupState, Listener};

/// Whoever is not there yet is tried again after so long.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Who meets.
#[derive(Clone, Copy, Debug)]
pub struct Rendezvous<'a> {
    /// The group's name, the same at all members.
    pub group: u64,
    /// Where each member's door is, by rank; the root's is never asked for.
    pub members: &'a [SocketAddr],
    /// Our own rank.
    pub own: u32,
    /// How long we wait for the others.
    pub timeout: Duration,
}

/// Why members have not met.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RendezvousError {
    /// A member cannot be reached, or did not come.
    #[error("member {rank} at {address} cannot be reached")]
    Member {
        /// Its rank.
        rank: u32,
        /// Where it should be.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// A member has told us that it cannot reach another one.
    #[error("member {by} cannot reach member {rank} at {address}")]
    Between {
        /// Who told.
        by: u32,
        /// Whom it cannot reach.
        rank: u32,
        /// Where that one should be.
        address: SocketAddr,
    },
    /// We come too late, or nobody knows of the group.
    #[error("group {group} {group_state}: so says member {by} at {address}")]
    GroupClosed {
        /// Its name.
        group: u64,
        /// How it stands.
        group_state: GroupState,
        /// Who says so.
        by: u32,
        /// Where that one is.
        address: SocketAddr,
    },
    /// Our own door fails.
    #[error("cannot listen at {address}")]
    Listener {
        /// Where it is.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

/// Meets all other members of a group. Answers the connection to each by rank; there is none to
/// ourselves.
///
/// # Errors
/// [`RendezvousError`]: who was not there. Nobody begins without all.
pub fn connect_members(
    rendezvous: &Rendezvous<'_>,
    listener: &Listener,
) -> Result<Vec<Option<TcpStream>>, RendezvousError> {
    let until = Instant::now() + rendezvous.timeout;
    let mut streams: Vec<Option<TcpStream>> = rendezvous.members.iter().map(|_| None).collect();
    let mut state_probe = StateProbe::new(rendezvous, listener);
    listener.set_group_state(rendezvous.group, GroupState::Rendezvous);
    let connected = connect_all(rendezvous, listener, until, &mut streams, &mut state_probe)
        .and_then(|()| {
            if rendezvous.own == 0 {
                coordinate(rendezvous, until, &streams, &mut state_probe)
            } else {
                await_start(rendezvous, until, &streams)
            }
        });
    listener.set_group_state(
        rendezvous.group,
        if connected.is_ok() { GroupState::Running } else { GroupState::Abandoned },
    );
    if let Err(error) = connected {
        // Who waits for us should hear why it is in vain.
        let unreachable = error.rank().unwrap_or(rendezvous.own);
        for stream in streams.iter().flatten() {
            // Nothing more can be done for whoever does not hear it.
            let _ = rendezvous.handshake(HandshakeKind::Unreachable, unreachable).send(stream);
        }
        return Err(error);
    }
    Ok(streams)
}

/// Tells a word to everybody else, and hears everybody's, over the connections that [`connect_members`] has
/// answered: through which port something else goes, for instance. All members must do it.
///
/// # Errors
/// [`RendezvousError`]: a member that tells nothing, or goes on without.
pub fn exchange_values(
    rendezvous: &Rendezvous<'_>,
    streams: &[Option<TcpStream>],
    value: u32,
) -> Result<Vec<Option<u32>>, RendezvousError> {
    let until = Instant::now() + rendezvous.timeout;
    for (rank, stream) in by_rank(streams) {
        let sent = rendezvous.handshake(HandshakeKind::Value, value).send(stream);
        sent.map_err(|source| rendezvous.member_error(rank, source))?;
    }
    let mut values = vec![None; streams.len()];
    for (rank, stream) in by_rank(streams) {
        values[rank as usize] =
            Some(recv_handshake(rendezvous, rank, stream, HandshakeKind::Value, until)?.to);
    }
    Ok(values)
}

/// Connects to those behind us and waits for those before us.
fn connect_all(
    rendezvous: &Rendezvous<'_>,
    listener: &Listener,
    until: Instant,
    streams: &mut [Option<TcpStream>],
    state_probe: &mut StateProbe,
) -> Result<(), RendezvousError> {
    let own = rendezvous.own;
    for (rank, address) in (0..).zip(rendezvous.members).skip(own as usize + 1) {
        let stream = loop {
            let left = until.saturating_duration_since(Instant::now());
            match TcpStream::connect_timeout(address, left.max(RETRY_INTERVAL)) {
                Ok(stream) => break stream,
                Err(source) if left <= RETRY_INTERVAL => {
                    return Err(rendezvous.member_error(rank, source));
                }
                Err(_) => {}
            }
            std::thread::sleep(RETRY_INTERVAL);
            state_probe.poll(rendezvous)?;
        };
        let sent = rendezvous.handshake(HandshakeKind::Member, rank).send(&stream);
        sent.map_err(|source| rendezvous.member_error(rank, source))?;
        streams[rank as usize] = Some(stream);
    }
    for rank in 0..own {
        let stream = loop {
            let soon = until.min(Instant::now() + RETRY_INTERVAL);
            let come = listener.member(rendezvous.group, (rank, own), soon).map_err(|source| {
                RendezvousError::Listener { address: listener.address(), source }
            })?;
            match come {
                Some(stream) => break stream,
                None if soon == until => return Err(rendezvous.timeout_error(rank, state_probe)),
                None => state_probe.poll(rendezvous)?,
            }
        };
        streams[rank as usize] = Some(stream);
    }
    Ok(())
}

/// The root: waits until everybody has met everybody, and lets the group begin.
fn coordinate(
    rendezvous: &Rendezvous<'_>,
    until: Instant,
    streams: &[Option<TcpStream>],
    state_probe: &mut StateProbe,
) -> Result<(), RendezvousError> {
    for (rank, stream) in by_rank(streams) {
        // Nobody begins without us: who has begun has done so with another root of the name.
        while !is_readable(stream).map_err(|source| rendezvous.member_error(rank, source))? {
            if Instant::now() >= until {
                return Err(rendezvous.timeout_error(rank, state_probe));
            }
            state_probe.poll(rendezvous)?;
        }
        recv_handshake(rendezvous, rank, stream, HandshakeKind::Ready, until)?;
    }
    for (rank, stream) in by_rank(streams) {
        let sent = rendezvous.handshake(HandshakeKind::Start, rank).send(stream);
        sent.map_err(|source| rendezvous.member_error(rank, source))?;
    }
    Ok(())
}

/// Everybody else: tells the root, and waits for its word.
fn await_start(
    rendezvous: &Rendezvous<'_>,
    until: Instant,
    streams: &[Option<TcpStream>],
) -> Result<(), RendezvousError> {
    let Some((root, stream)) = by_rank(streams).next() else { return Ok(()) };
    let sent = rendezvous.handshake(HandshakeKind::Ready, root).send(stream);
    sent.map_err(|source| rendezvous.member_error(root, source))?;
    // The root may begin to wait later than we do, and for as long.
    recv_handshake(rendezvous, root, stream, HandshakeKind::Start, until + rendezvous.timeout)
        .map(|_| ())
}

fn by_rank(streams: &[Option<TcpStream>]) -> impl Iterator<Item = (u32, &TcpStream)> {
    (0..).zip(streams).filter_map(|(rank, stream)| Some((rank, stream.as_ref()?)))
}

/// Waits for a word of a member.
fn recv_handshake(
    rendezvous: &Rendezvous<'_>,
    rank: u32,
    stream: &TcpStream,
    wanted: HandshakeKind,
    until: Instant,
) -> Result<Handshake, RendezvousError> {
    let left = until.saturating_duration_since(Instant::now()).max(RETRY_INTERVAL);
    let received = stream
        .set_read_timeout(Some(left))
        .and_then(|()| Handshake::recv(stream))
        .map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => {
                rendezvous.member_error(rank, timed_out(rendezvous.timeout))
            }
            _ => rendezvous.member_error(rank, error),
        })?;
    match received.kind {
        kind if kind == wanted => Ok(received),
        HandshakeKind::Unreachable if (received.to as usize) < rendezvous.members.len() => {
            let address = rendezvous.members[received.to as usize];
            Err(RendezvousError::Between { by: rank, rank: received.to, address })
        }
        _ => Err(rendezvous.member_error(rank, io::ErrorKind::InvalidData.into())),
    }
}

/// Whether a word is there, or the connection is over; waits for it a little.
fn is_readable(stream: &TcpStream) -> io::Result<bool> {
    stream.set_read_timeout(Some(RETRY_INTERVAL))?;
    match stream.peek(&mut [0; LEN]).map_err(|error| (error.kind(), error)) {
        Ok(bytes) => Ok(bytes == 0 || bytes == LEN),
        // Who was stopped, and goes on, is told that its wait was interrupted.
        Err((io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted, _)) => Ok(false),
        Err((_, error)) => Err(error),
    }
}

fn timed_out(timeout: Duration) -> io::Error {
    let what = format!("nothing heard in {:.0} s", timeout.as_secs_f64());
    io::Error::new(io::ErrorKind::TimedOut, what)
}

impl Rendezvous<'_> {
    pub(crate) fn handshake(&self, kind: HandshakeKind, to: u32) -> Handshake {
        Handshake { kind, group: self.group, from: self.own, to }
    }

    pub(crate) fn closed_error(&self, by: u32, group_state: GroupState) -> RendezvousError {
        let address = self.members[by as usize];
        RendezvousError::GroupClosed { group: self.group, group_state, by, address }
    }

    /// Nobody has come, and all the patience is used up.
    fn timeout_error(&self, rank: u32, state_probe: &StateProbe) -> RendezvousError {
        match state_probe.reason(rank) {
            Some((by, group_state)) => self.closed_error(by, group_state),
            None => self.member_error(rank, timed_out(self.timeout)),
        }
    }

    fn member_error(&self, rank: u32, source: io::Error) -> RendezvousError {
        RendezvousError::Member { rank, address: self.members[rank as usize], source }
    }
}

impl RendezvousError {
    /// Who is missed.
    pub fn rank(&self) -> Option<u32> {
        match self {
            Self::Member { rank, .. } | Self::Between { rank, .. } => Some(*rank),
            Self::Listener { .. } | Self::GroupClosed { .. } => None,
        }
    }
}
