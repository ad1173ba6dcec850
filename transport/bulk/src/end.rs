//! A member that is driven over whatever carries its group.

use std::io;

use onepipe_bulk::{Event, Group};
use onepipe_transport_clock::Clock;
use onepipe_transport_driver::Doorbell;
use onepipe_transport_pages as pages;
use onepipe_transport_pages::{AttachError, Bytes, Lender, Shelf};
use onepipe_transport_tcp as tcp;
use onepipe_transport_tcp::{Door, MeetError, Meeting, Progress};

use crate::Carrier;
use crate::attendance::Attendance;
use crate::datagrams::Datagrams;

/// Why a member has not begun.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The members have not met.
    #[error(transparent)]
    Meet(#[from] MeetError),
    /// The members share no memory: they are not on one host, perhaps.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The system refuses what it needs.
    #[error("cannot {what}")]
    System {
        /// What it refuses.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
}

impl From<pages::JoinError> for JoinError {
    fn from(error: pages::JoinError) -> Self {
        match error {
            pages::JoinError::Meet(error) => Self::Meet(error),
            pages::JoinError::Attach(error) => Self::Attach(error),
        }
    }
}

/// One member of a group, and its links. Who has a thread to spare calls [`End::turn`] with the
/// time that it may wait in a loop.
#[derive(Debug)]
pub struct End<C> {
    ways: Ways<C>,
    /// The door's knowledge of the group goes with it.
    _attendance: Attendance,
}

/// Each keeps the driver rules of [`onepipe_base::Machine`] for itself.
#[derive(Debug)]
enum Ways<C> {
    Tcp(Box<tcp::End<C, Bytes>>),
    Udp(Box<Datagrams<C, Bytes>>),
    Shm(Box<pages::End<C>>),
}

impl<C: Clock> End<C> {
    /// Meets all other members at their doors, and begins when everybody has met everybody.
    /// `group` was set up with [`Carrier::config`] of the same carrier and as many members.
    ///
    /// # Errors
    /// [`JoinError`]: who was not there, for instance. Nobody begins without all.
    pub fn join(
        carrier: Carrier,
        group: Group<Bytes>,
        meeting: &Meeting<'_>,
        door: &Door,
        clock: C,
    ) -> Result<Self, JoinError> {
        let system = |what| move |source| JoinError::System { what, source };
        let attendance = Attendance::new(door, meeting.group);
        let ways = match carrier {
            Carrier::Tcp => {
                let streams = tcp::meet(meeting, door)?;
                let end = tcp::End::new(group, streams, clock);
                Ways::Tcp(Box::new(end.map_err(system("use the connections"))?))
            }
            Carrier::Udp => Ways::Udp(Box::new(Datagrams::join(group, meeting, door, clock)?)),
            Carrier::Shm => {
                let links = pages::join(meeting, tcp::meet(meeting, door)?)?;
                Ways::Shm(Box::new(pages::End::new(group, links, clock)))
            }
        };
        Ok(Self { ways, _attendance: attendance })
    }

    /// The group, to ask it.
    pub fn group(&self) -> &Group<Bytes> {
        match &self.ways {
            Ways::Tcp(end) => end.group(),
            Ways::Udp(end) => end.group(),
            Ways::Shm(end) => end.group(),
        }
    }

    /// The group, to command it. The next turn says what comes of it.
    pub fn group_mut(&mut self) -> &mut Group<Bytes> {
        match &mut self.ways {
            Ways::Tcp(end) => end.group_mut(),
            Ways::Udp(end) => end.group_mut(),
            Ways::Shm(end) => end.group_mut(),
        }
    }

    /// Where the root's memory for objects comes from that others read without a copy, where what
    /// carries frames can do that.
    pub fn shelf(&self) -> Option<&Shelf> {
        match &self.ways {
            Ways::Shm(end) => end.shelf(),
            Ways::Tcp(_) | Ways::Udp(_) => None,
        }
    }

    /// Where the pages come from that objects lie on, likewise, at other members.
    pub fn lender(&self) -> Option<&Lender> {
        match &self.ways {
            Ways::Shm(end) => end.lender(),
            Ways::Tcp(_) | Ways::Udp(_) => None,
        }
    }

    /// What ends a wait, from another thread.
    pub fn doorbell(&self) -> Doorbell {
        match &self.ways {
            Ways::Tcp(end) => end.doorbell(),
            Ways::Udp(end) => end.doorbell(),
            Ways::Shm(end) => end.doorbell(),
        }
    }

    /// Sends what was commanded; waits for `wait_ns` at most if there is nothing else to do; takes
    /// what has come, runs what is due, hands out events, sends what comes of all that.
    ///
    /// # Errors
    /// What the system says of waiting. A link that fails is told to the group instead.
    pub fn turn(
        &mut self,
        wait_ns: u64,
        on_event: impl FnMut(&mut Group<Bytes>, Event<Bytes>),
    ) -> io::Result<Progress> {
        match &mut self.ways {
            Ways::Tcp(end) => end.turn(wait_ns, on_event),
            Ways::Udp(end) => Ok(end.turn(wait_ns, on_event)),
            Ways::Shm(end) => Ok(end.turn(wait_ns, on_event)),
        }
    }
}
