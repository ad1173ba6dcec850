//! Connecting the members of a group, which start together.
//!
//! A member connects to all members of higher rank, so the root needs no listener. A member that
//! has connected to all others reports this to the root, and the root notifies all members to
//! start: a member that started earlier would time out the others.

use std::io;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::handshake::{HANDSHAKE_LEN, Handshake, HandshakeKind};
use crate::state_probe::StateProbe;
use crate::{GroupState, Listener, Rendezvous, RendezvousError};

/// Interval of retrying a connection.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Connects to all other members of a group. Returns the connection to each by rank; there is none
/// for this member itself.
///
/// # Errors
/// [`RendezvousError`]. No member starts unless all have connected.
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
        // Members that wait for this one learn the reason.
        let unreachable = error.rank().unwrap_or(rendezvous.own);
        for stream in streams.iter().flatten() {
            // A connection that fails here cannot be notified.
            let _ = rendezvous.handshake(HandshakeKind::Unreachable, unreachable).send(stream);
        }
        return Err(error);
    }
    Ok(streams)
}

/// Exchanges one value with every other member over the connections of [`connect_members`], such as
/// a port number. All members must call it.
///
/// # Errors
/// [`RendezvousError`]: a member does not respond.
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

/// Connects to the members of higher rank and accepts those of lower rank.
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
            let next_poll = until.min(Instant::now() + RETRY_INTERVAL);
            let stream = listener.accept_member(rendezvous.group, (rank, own), next_poll).map_err(
                |source| RendezvousError::Listener { address: listener.address(), source },
            )?;
            match stream {
                Some(stream) => break stream,
                None if next_poll == until => {
                    return Err(timeout_error(rendezvous, rank, state_probe));
                }
                None => state_probe.poll(rendezvous)?,
            }
        };
        streams[rank as usize] = Some(stream);
    }
    Ok(())
}

/// Root: waits until all members are ready, and starts the group.
fn coordinate(
    rendezvous: &Rendezvous<'_>,
    until: Instant,
    streams: &[Option<TcpStream>],
    state_probe: &mut StateProbe,
) -> Result<(), RendezvousError> {
    for (rank, stream) in by_rank(streams) {
        // This root has started nothing: a group that members report as running has the same
        // number but another root, and ends the wait.
        while !is_readable(stream).map_err(|source| rendezvous.member_error(rank, source))? {
            if Instant::now() >= until {
                return Err(timeout_error(rendezvous, rank, state_probe));
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

/// Other members: report readiness to the root, and wait for the start.
fn await_start(
    rendezvous: &Rendezvous<'_>,
    until: Instant,
    streams: &[Option<TcpStream>],
) -> Result<(), RendezvousError> {
    let Some((root, stream)) = by_rank(streams).next() else { return Ok(()) };
    let sent = rendezvous.handshake(HandshakeKind::Ready, root).send(stream);
    sent.map_err(|source| rendezvous.member_error(root, source))?;
    // The root's own timeout may have begun later than this member's, so it is waited for as
    // long again.
    recv_handshake(rendezvous, root, stream, HandshakeKind::Start, until + rendezvous.timeout)
        .map(|_| ())
}

fn by_rank(streams: &[Option<TcpStream>]) -> impl Iterator<Item = (u32, &TcpStream)> {
    (0..).zip(streams).filter_map(|(rank, stream)| Some((rank, stream.as_ref()?)))
}

/// Receives a message of a member.
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

/// Waits briefly until a message has arrived or the connection is closed.
fn is_readable(stream: &TcpStream) -> io::Result<bool> {
    stream.set_read_timeout(Some(RETRY_INTERVAL))?;
    match stream.peek(&mut [0; HANDSHAKE_LEN]).map_err(|error| (error.kind(), error)) {
        Ok(bytes) => Ok(bytes == 0 || bytes == HANDSHAKE_LEN),
        // A process that was stopped and continued gets `EINTR`.
        Err((io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted, _)) => Ok(false),
        Err((_, error)) => Err(error),
    }
}

fn timed_out(timeout: Duration) -> io::Error {
    let what = format!("no response within {:.0} s", timeout.as_secs_f64());
    io::Error::new(io::ErrorKind::TimedOut, what)
}

/// Returns the error of a member that has not connected within the timeout.
fn timeout_error(
    rendezvous: &Rendezvous<'_>,
    rank: u32,
    state_probe: &StateProbe,
) -> RendezvousError {
    match state_probe.reason(rank) {
        Some((by, group_state)) => rendezvous.closed_error(by, group_state),
        None => rendezvous.member_error(rank, timed_out(rendezvous.timeout)),
    }
}
