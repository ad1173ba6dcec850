//! Whoever waits in vain asks the doors of the others how the group stands: it may have begun, or
//! be over, and nobody will come.

use std::io;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::hello::{Caller, LEN, Role};
use crate::standing::Standing;
use crate::{Door, MeetError, Meeting};

/// Who comes late by less than this asks nobody. Between two rounds of questions, too.
const PATIENCE: Duration = Duration::from_millis(250);
/// A door is opened in this time, or it counts for nothing this time.
const CONNECT: Duration = Duration::from_millis(100);
/// Members that are asked at a time.
const ASKED_MAX: usize = 4;

/// What a member that waits for others finds out.
#[derive(Debug)]
pub(crate) struct Inquiry {
    asked: Vec<(u32, TcpStream)>,
    next_at: Instant,
    /// Who is asked next.
    next: u32,
    /// Of whom it is known how the group stands there.
    told: Vec<(u32, Standing)>,
    /// We have been in a group of this name ourselves: another one of the name may follow.
    has_been: bool,
}

impl Inquiry {
    pub fn new(meeting: &Meeting<'_>, door: &Door) -> Self {
        Self {
            asked: Vec::new(),
            next_at: Instant::now() + PATIENCE,
            next: 0,
            told: Vec::new(),
            has_been: door.standing(meeting.group).is_final(),
        }
    }

    /// Asks, and hears.
    ///
    /// # Errors
    /// [`MeetError::Late`]: it is of no use to wait any longer.
    pub fn go_on(&mut self, meeting: &Meeting<'_>) -> Result<(), MeetError> {
        let now = Instant::now();
        for (rank, stream) in std::mem::take(&mut self.asked) {
            match hear(&stream, meeting.group) {
                Ok(Some(standing)) => self.note(rank, standing),
                Ok(None) => self.asked.push((rank, stream)),
                // It may have died; it is asked again when its turn comes.
                Err(_) => {}
            }
        }
        if !self.has_been
            && let Some((by, standing)) = self.told.iter().find(|(_, told)| told.is_final())
        {
            return Err(meeting.late(*by, *standing));
        }
        if now >= self.next_at {
            self.next_at = now + PATIENCE;
            self.asked.clear();
            for _ in 0..meeting.members.len().min(ASKED_MAX) {
                let rank = self.next % meeting.members.len() as u32;
                self.next = rank + 1;
                // Who does not open is not asked.
                self.asked.extend(ask(meeting, rank).map(|stream| (rank, stream)));
            }
        }
        Ok(())
    }

    /// Why `rank` has not come, as far as was found out.
    pub fn why(&self, rank: u32) -> Option<(u32, Standing)> {
        let given_up = self.told.iter().find(|(_, told)| *told == Standing::GivenUp);
        let own_word = self.told.iter().find(|told| **told == (rank, Standing::Unknown));
        given_up.or(own_word).copied()
    }

    fn note(&mut self, rank: u32, standing: Standing) {
        self.told.retain(|(known, _)| *known != rank);
        self.told.push((rank, standing));
    }
}

fn ask(meeting: &Meeting<'_>, rank: u32) -> Option<TcpStream> {
    let address = meeting.members[rank as usize];
    // A root need not be where it is said to be.
    let is_somewhere = !address.ip().is_unspecified() && address.port() != 0;
    if rank == meeting.own || !is_somewhere {
        return None;
    }
    let stream = TcpStream::connect_timeout(&address, CONNECT).ok()?;
    meeting.caller(Role::Ask, rank).say(&stream).ok()?;
    stream.set_nonblocking(true).ok()?;
    Some(stream)
}

/// The answer, if it is there.
fn hear(stream: &TcpStream, group: u64) -> io::Result<Option<Standing>> {
    let mut bytes = [0; LEN];
    match stream.peek(&mut bytes) {
        Ok(LEN) => {}
        Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(_) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        Err(error) => return Err(error),
    }
    let told = Caller::parse(&bytes).filter(|it| it.role == Role::Stands && it.group == group);
    let standing = told.and_then(|told| Standing::from_bits(told.to));
    standing.map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into())
}
