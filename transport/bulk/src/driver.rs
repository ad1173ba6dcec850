//! A member that is driven over whatever carries its group.

use std::io;

use onepipe_bulk::{Event, Group};
use onepipe_transport_clock::Clock;
use onepipe_transport_driver::Doorbell;
use onepipe_transport_pages as pages;
use onepipe_transport_pages::{AttachError, ObjectBytes, PageIndex, PagePool};
use onepipe_transport_tcp as tcp;
use onepipe_transport_tcp::{Listener, Progress, Rendezvous, RendezvousError};

use crate::Carrier;
use crate::state_guard::GroupStateGuard;
use crate::udp::UdpGroupDriver;

/// Why a member has not begun.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The members have not met.
    #[error(transparent)]
    Rendezvous(#[from] RendezvousError),
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
            pages::JoinError::Rendezvous(error) => Self::Rendezvous(error),
            pages::JoinError::Attach(error) => Self::Attach(error),
        }
    }
}

/// One member of a group, and its links. Who has a thread to spare calls [`GroupDriver::turn`] with the
/// time that it may wait in a loop.
#[derive(Debug)]
pub struct GroupDriver<C> {
    inner: Inner<C>,
    /// The door's knowledge of the group goes with it.
    _state_guard: GroupStateGuard,
}

/// Each keeps the driver rules of [`onepipe_base::Machine`] for itself.
#[derive(Debug)]
enum Inner<C> {
    Tcp(Box<tcp::TcpGroupDriver<C, ObjectBytes>>),
    Udp(Box<UdpGroupDriver<C, ObjectBytes>>),
    Shm(Box<pages::ShmGroupDriver<C>>),
}

impl<C: Clock> GroupDriver<C> {
    /// Meets all other members at their doors, and begins when everybody has met everybody.
    /// `group` was set up with [`Carrier::config`] of the same carrier and as many members.
    ///
    /// # Errors
    /// [`JoinError`]: who was not there, for instance. Nobody begins without all.
    pub fn join(
        carrier: Carrier,
        group: Group<ObjectBytes>,
        rendezvous: &Rendezvous<'_>,
        listener: &Listener,
        clock: C,
    ) -> Result<Self, JoinError> {
        let system = |what| move |source| JoinError::System { what, source };
        let state_guard = GroupStateGuard::new(listener, rendezvous.group);
        let inner = match carrier {
            Carrier::Tcp => {
                let streams = tcp::connect_members(rendezvous, listener)?;
                let driver = tcp::TcpGroupDriver::new(group, streams, clock);
                Inner::Tcp(Box::new(driver.map_err(system("use the connections"))?))
            }
            Carrier::Udp => {
                Inner::Udp(Box::new(UdpGroupDriver::join(group, rendezvous, listener, clock)?))
            }
            Carrier::Shm => {
                let links = pages::join(rendezvous, tcp::connect_members(rendezvous, listener)?)?;
                Inner::Shm(Box::new(pages::ShmGroupDriver::new(group, links, clock)))
            }
        };
        Ok(Self { inner, _state_guard: state_guard })
    }

    /// The group, to ask it.
    pub fn group(&self) -> &Group<ObjectBytes> {
        match &self.inner {
            Inner::Tcp(driver) => driver.group(),
            Inner::Udp(driver) => driver.group(),
            Inner::Shm(driver) => driver.group(),
        }
    }

    /// The group, to command it. The next turn says what comes of it.
    pub fn group_mut(&mut self) -> &mut Group<ObjectBytes> {
        match &mut self.inner {
            Inner::Tcp(driver) => driver.group_mut(),
            Inner::Udp(driver) => driver.group_mut(),
            Inner::Shm(driver) => driver.group_mut(),
        }
    }

    /// Where the root's memory for objects comes from that others read without a copy, where what
    /// carries frames can do that.
    pub fn page_pool(&self) -> Option<&PagePool> {
        match &self.inner {
            Inner::Shm(driver) => driver.page_pool(),
            Inner::Tcp(_) | Inner::Udp(_) => None,
        }
    }

    /// Where the pages come from that objects lie on, likewise, at other members.
    pub fn page_index(&self) -> Option<&PageIndex> {
        match &self.inner {
            Inner::Shm(driver) => driver.page_index(),
            Inner::Tcp(_) | Inner::Udp(_) => None,
        }
    }

    /// What ends a wait, from another thread.
    pub fn doorbell(&self) -> Doorbell {
        match &self.inner {
            Inner::Tcp(driver) => driver.doorbell(),
            Inner::Udp(driver) => driver.doorbell(),
            Inner::Shm(driver) => driver.doorbell(),
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
        on_event: impl FnMut(&mut Group<ObjectBytes>, Event<ObjectBytes>),
    ) -> io::Result<Progress> {
        match &mut self.inner {
            Inner::Tcp(driver) => driver.turn(wait_ns, on_event),
            Inner::Udp(driver) => Ok(driver.turn(wait_ns, on_event)),
            Inner::Shm(driver) => Ok(driver.turn(wait_ns, on_event)),
        }
    }
}
