//! How the members of a group find each other.
//!
//! Who has the lower rank connects to who has the higher one, so the root needs no door. Who has
//! met everybody says so to the root, and the root says to all when to begin: else one would count
//! as silent to those who began earlier.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::hello::{Caller, LEN, Role};
use crate::inquiry::Inquiry;
use crate::{Door, Standing};

/// Whoever is not there yet is tried again after so long.
const AGAIN: Duration = Duration::from_millis(20);

/// Who meets.
#[derive(Clone, Copy, Debug)]
pub struct Meeting<'a> {
    /// The group's name, the same at all members.
    pub group: u64,
    /// Where each member's door is, by rank; the root's is never asked for.
    pub members: &'a [SocketAddr],
    /// Our own rank.
    pub own: u32,
    /// How long we wait for the others.
    pub patience: Duration,
}

/// Why members have not met.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeetError {
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
    #[error("group {group} {standing}: so says member {by} at {address}")]
    Late {
        /// Its name.
        group: u64,
        /// How it stands.
        standing: Standing,
        /// Who says so.
        by: u32,
        /// Where that one is.
        address: SocketAddr,
    },
    /// Our own door fails.
    #[error("cannot listen at {address}")]
    Door {
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
/// [`MeetError`]: who was not there. Nobody begins without all.
pub fn meet(meeting: &Meeting<'_>, door: &Door) -> Result<Vec<Option<TcpStream>>, MeetError> {
    let until = Instant::now() + meeting.patience;
    let mut streams: Vec<Option<TcpStream>> = meeting.members.iter().map(|_| None).collect();
    let mut inquiry = Inquiry::new(meeting, door);
    door.note(meeting.group, Standing::Meeting);
    let met = find_all(meeting, door, until, &mut streams, &mut inquiry).and_then(|()| {
        if meeting.own == 0 {
            conduct(meeting, until, &streams, &mut inquiry)
        } else {
            follow(meeting, until, &streams)
        }
    });
    door.note(meeting.group, if met.is_ok() { Standing::Begun } else { Standing::GivenUp });
    if let Err(error) = met {
        // Who waits for us should hear why it is in vain.
        let missed = error.rank().unwrap_or(meeting.own);
        for stream in streams.iter().flatten() {
            // Nothing more can be done for whoever does not hear it.
            let _ = meeting.caller(Role::Misses, missed).say(stream);
        }
        return Err(error);
    }
    Ok(streams)
}

/// Tells a word to everybody else, and hears everybody's, over the connections that [`meet`] has
/// answered: through which port something else goes, for instance. All members must do it.
///
/// # Errors
/// [`MeetError`]: a member that tells nothing, or goes on without.
pub fn swap(
    meeting: &Meeting<'_>,
    streams: &[Option<TcpStream>],
    word: u32,
) -> Result<Vec<Option<u32>>, MeetError> {
    let until = Instant::now() + meeting.patience;
    for (rank, stream) in ranked(streams) {
        let said = meeting.caller(Role::Word, word).say(stream);
        said.map_err(|source| meeting.misses(rank, source))?;
    }
    let mut words = vec![None; streams.len()];
    for (rank, stream) in ranked(streams) {
        words[rank as usize] = Some(hear(meeting, rank, stream, Role::Word, until)?.to);
    }
    Ok(words)
}

/// Connects to those behind us and waits for those before us.
fn find_all(
    meeting: &Meeting<'_>,
    door: &Door,
    until: Instant,
    streams: &mut [Option<TcpStream>],
    inquiry: &mut Inquiry,
) -> Result<(), MeetError> {
    let own = meeting.own;
    for (rank, address) in (0..).zip(meeting.members).skip(own as usize + 1) {
        let stream = loop {
            let left = until.saturating_duration_since(Instant::now());
            match TcpStream::connect_timeout(address, left.max(AGAIN)) {
                Ok(stream) => break stream,
                Err(source) if left <= AGAIN => return Err(meeting.misses(rank, source)),
                Err(_) => {}
            }
            std::thread::sleep(AGAIN);
            inquiry.go_on(meeting)?;
        };
        let said = meeting.caller(Role::Member, rank).say(&stream);
        said.map_err(|source| meeting.misses(rank, source))?;
        streams[rank as usize] = Some(stream);
    }
    for rank in 0..own {
        let stream = loop {
            let soon = until.min(Instant::now() + AGAIN);
            let come = door
                .member(meeting.group, (rank, own), soon)
                .map_err(|source| MeetError::Door { address: door.address(), source })?;
            match come {
                Some(stream) => break stream,
                None if soon == until => return Err(meeting.waits_in_vain(rank, inquiry)),
                None => inquiry.go_on(meeting)?,
            }
        };
        streams[rank as usize] = Some(stream);
    }
    Ok(())
}

/// The root: waits until everybody has met everybody, and lets the group begin.
fn conduct(
    meeting: &Meeting<'_>,
    until: Instant,
    streams: &[Option<TcpStream>],
    inquiry: &mut Inquiry,
) -> Result<(), MeetError> {
    for (rank, stream) in ranked(streams) {
        // Nobody begins without us: who has begun has done so with another root of the name.
        while !has_spoken(stream).map_err(|source| meeting.misses(rank, source))? {
            if Instant::now() >= until {
                return Err(meeting.waits_in_vain(rank, inquiry));
            }
            inquiry.go_on(meeting)?;
        }
        hear(meeting, rank, stream, Role::Ready, until)?;
    }
    for (rank, stream) in ranked(streams) {
        let said = meeting.caller(Role::Go, rank).say(stream);
        said.map_err(|source| meeting.misses(rank, source))?;
    }
    Ok(())
}

/// Everybody else: tells the root, and waits for its word.
fn follow(
    meeting: &Meeting<'_>,
    until: Instant,
    streams: &[Option<TcpStream>],
) -> Result<(), MeetError> {
    let Some((root, stream)) = ranked(streams).next() else { return Ok(()) };
    let said = meeting.caller(Role::Ready, root).say(stream);
    said.map_err(|source| meeting.misses(root, source))?;
    // The root may begin to wait later than we do, and for as long.
    hear(meeting, root, stream, Role::Go, until + meeting.patience).map(|_| ())
}

fn ranked(streams: &[Option<TcpStream>]) -> impl Iterator<Item = (u32, &TcpStream)> {
    (0..).zip(streams).filter_map(|(rank, stream)| Some((rank, stream.as_ref()?)))
}

/// Waits for a word of a member.
fn hear(
    meeting: &Meeting<'_>,
    rank: u32,
    stream: &TcpStream,
    wanted: Role,
    until: Instant,
) -> Result<Caller, MeetError> {
    let left = until.saturating_duration_since(Instant::now()).max(AGAIN);
    let heard = stream.set_read_timeout(Some(left)).and_then(|()| Caller::hear(stream)).map_err(
        |error| match error.kind() {
            io::ErrorKind::WouldBlock => meeting.misses(rank, silence(meeting.patience)),
            _ => meeting.misses(rank, error),
        },
    )?;
    match heard.role {
        role if role == wanted => Ok(heard),
        Role::Misses if (heard.to as usize) < meeting.members.len() => {
            let address = meeting.members[heard.to as usize];
            Err(MeetError::Between { by: rank, rank: heard.to, address })
        }
        _ => Err(meeting.misses(rank, io::ErrorKind::InvalidData.into())),
    }
}

/// Whether a word is there, or the connection is over; waits for it a little.
fn has_spoken(stream: &TcpStream) -> io::Result<bool> {
    stream.set_read_timeout(Some(AGAIN))?;
    match stream.peek(&mut [0; LEN]).map_err(|error| (error.kind(), error)) {
        Ok(bytes) => Ok(bytes == 0 || bytes == LEN),
        // Who was stopped, and goes on, is told that its wait was interrupted.
        Err((io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted, _)) => Ok(false),
        Err((_, error)) => Err(error),
    }
}

fn silence(patience: Duration) -> io::Error {
    let what = format!("nothing heard in {:.0} s", patience.as_secs_f64());
    io::Error::new(io::ErrorKind::TimedOut, what)
}

impl Meeting<'_> {
    pub(crate) fn caller(&self, role: Role, to: u32) -> Caller {
        Caller { role, group: self.group, from: self.own, to }
    }

    pub(crate) fn late(&self, by: u32, standing: Standing) -> MeetError {
        let address = self.members[by as usize];
        MeetError::Late { group: self.group, standing, by, address }
    }

    /// Nobody has come, and all the patience is used up.
    fn waits_in_vain(&self, rank: u32, inquiry: &Inquiry) -> MeetError {
        match inquiry.why(rank) {
            Some((by, standing)) => self.late(by, standing),
            None => self.misses(rank, silence(self.patience)),
        }
    }

    fn misses(&self, rank: u32, source: io::Error) -> MeetError {
        MeetError::Member { rank, address: self.members[rank as usize], source }
    }
}

impl MeetError {
    /// Who is missed.
    pub fn rank(&self) -> Option<u32> {
        match self {
            Self::Member { rank, .. } | Self::Between { rank, .. } => Some(*rank),
            Self::Door { .. } | Self::Late { .. } => None,
        }
    }
}
