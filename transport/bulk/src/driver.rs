//! Drives a member over any carrier.

use std::io;

use onepipe_bulk::{Event, Group};
use onepipe_transport_clock::Clock;
use onepipe_transport_driver::Doorbell;
use onepipe_transport_pages as pages;
use onepipe_transport_pages::{ObjectBytes, PageIndex, PagePool};
use onepipe_transport_tcp as tcp;
use onepipe_transport_tcp::{Listener, Progress, Rendezvous};

use crate::state_guard::GroupStateGuard;
use crate::udp::UdpGroupDriver;
use crate::{Carrier, JoinError};

/// One member of a group and its links. A thread calls [`GroupDriver::turn`] in a loop, with the
/// time that it may wait.
#[derive(Debug)]
pub struct GroupDriver<C> {
    inner: Inner<C>,
    /// Ends the group at the listener when the driver is dropped.
    _state_guard: GroupStateGuard,
}

/// The driver of each carrier, which keeps the driver rules of [`onepipe_base::Machine`].
#[derive(Debug)]
enum Inner<C> {
    Tcp(Box<tcp::TcpGroupDriver<C, ObjectBytes>>),
    Udp(Box<UdpGroupDriver<C, ObjectBytes>>),
    Shm(Box<pages::ShmGroupDriver<C>>),
}

impl<C: Clock> GroupDriver<C> {
    /// Connects to all other members, and starts when all have connected to all. `group` must have
    /// the configuration of [`Carrier::config`] for the same carrier and number of members. Over
    /// UDP its frames and pieces become longer if the routes between all members permit it.
    ///
    /// # Errors
    /// [`JoinError`]. No member starts unless all have connected.
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
                Inner::Tcp(Box::new(driver.map_err(system("register the connections"))?))
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

    /// The group, for queries.
    pub fn group(&self) -> &Group<ObjectBytes> {
        match &self.inner {
            Inner::Tcp(driver) => driver.group(),
            Inner::Udp(driver) => driver.group(),
            Inner::Shm(driver) => driver.group(),
        }
    }

    /// The group, for commands. The next turn sends their output.
    pub fn group_mut(&mut self) -> &mut Group<ObjectBytes> {
        match &mut self.inner {
            Inner::Tcp(driver) => driver.group_mut(),
            Inner::Udp(driver) => driver.group_mut(),
            Inner::Shm(driver) => driver.group_mut(),
        }
    }

    /// At the root: the memory pool whose pages are sent without a copy, over carriers that share
    /// memory.
    pub fn page_pool(&self) -> Option<&PagePool> {
        match &self.inner {
            Inner::Shm(driver) => driver.page_pool(),
            Inner::Tcp(_) | Inner::Udp(_) => None,
        }
    }

    /// At receivers: the pages on which objects lie, over carriers that share memory.
    pub fn page_index(&self) -> Option<&PageIndex> {
        match &self.inner {
            Inner::Shm(driver) => driver.page_index(),
            Inner::Tcp(_) | Inner::Udp(_) => None,
        }
    }

    /// Number of frames dropped because they came from another address than that of the member
    /// which they name. Always 0 over carriers with a connection to each member.
    pub fn frames_misattributed(&self) -> u64 {
        match &self.inner {
            Inner::Udp(driver) => driver.frames_misattributed(),
            Inner::Tcp(_) | Inner::Shm(_) => 0,
        }
    }

    /// The handle that ends a wait from another thread.
    pub fn doorbell(&self) -> Doorbell {
        match &self.inner {
            Inner::Tcp(driver) => driver.doorbell(),
            Inner::Udp(driver) => driver.doorbell(),
            Inner::Shm(driver) => driver.doorbell(),
        }
    }

    /// Sends what was commanded; waits for at most `wait_ns` if there is nothing else to do;
    /// receives frames, runs expired timers, hands out events and sends the resulting output.
    ///
    /// # Errors
    /// The system's error of waiting, or the loss of the shared memory. A link that fails is
    /// reported to the group instead.
    pub fn turn(
        &mut self,
        wait_ns: u64,
        on_event: impl FnMut(&mut Group<ObjectBytes>, Event<ObjectBytes>),
    ) -> io::Result<Progress> {
        match &mut self.inner {
            Inner::Tcp(driver) => driver.turn(wait_ns, on_event),
            Inner::Udp(driver) => Ok(driver.turn(wait_ns, on_event)),
            Inner::Shm(driver) => {
                let progress = driver.turn(wait_ns, on_event);
                // A member without its segment or its pages makes no progress.
                let loss = if progress.is_idle() { driver.loss() } else { None };
                loss.map_or(Ok(progress), |lost| Err(io::Error::other(lost)))
            }
        }
    }
}
