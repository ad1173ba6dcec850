//! A member of a group with its links, driven turn by turn.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use onepipe_bulk::Group as Machine;
use onepipe_transport_bulk::{GroupDriver, Listener, PagePool, Rendezvous};
use onepipe_transport_clock::SystemClock;
use onepipe_transport_driver::Doorbell;

use super::shared::Shared;
use super::worker::Worker;
use crate::{GroupEnd, GroupError, GroupOptions};

/// How long a member keeps running after the end, so that the others learn of it.
const LINGER: Duration = Duration::from_secs(1);

/// A member, driven by its caller or by a thread.
pub(super) struct MemberDriver {
    worker: Worker,
    driver: GroupDriver<SystemClock>,
    linger_until: Option<Instant>,
    /// The links have failed.
    is_broken: bool,
}

impl MemberDriver {
    /// Connects to the other members.
    pub fn join(
        members: &[SocketAddr],
        own: u32,
        mut options: GroupOptions,
    ) -> Result<Self, GroupError> {
        let system = |what| move |source| GroupError::System { what, source };
        let Some(address) = members.get(own as usize).copied() else {
            return Err(GroupError::Rank { own, members: members.len() });
        };
        let (_, others) = members.split_first().unwrap_or((&address, &[]));
        let duplicate = (0..).zip(others).find(|(at, other)| others[..*at].contains(other));
        if let Some((_, duplicate)) = duplicate {
            return Err(GroupError::DuplicateMember(*duplicate));
        }
        let machine = Machine::with_memory(options.config(members.len(), own))?;
        let listener = match options.listener.take() {
            Some(listener) => listener,
            None => Listener::bind(if own == 0 { loopback_address(address) } else { address })
                .map_err(system("listen at this member's address"))?,
        };
        let (group, join_timeout) = (options.group, options.join_timeout);
        let rendezvous = Rendezvous { group, members, own, timeout: join_timeout };
        let driver = GroupDriver::join(
            options.carrier,
            machine,
            &rendezvous,
            &listener,
            SystemClock::calibrated(),
        )?;
        let worker = Worker {
            shared: Arc::default(),
            members: members.to_vec(),
            memory_bytes_max: options.memory_bytes_max,
            on_object: options.on_object,
            page_index: driver.page_index().cloned(),
            wanted: VecDeque::new(),
            in_flight_bytes: 0,
        };
        Ok(Self { worker, driver, linger_until: None, is_broken: false })
    }

    /// The state shared with the user.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.worker.shared
    }

    pub fn members(&self) -> &[SocketAddr] {
        &self.worker.members
    }

    /// At the root, over shared memory: the page pool.
    pub fn page_pool(&self) -> Option<&PagePool> {
        self.driver.page_pool()
    }

    /// The handle that ends a wait.
    pub fn doorbell(&self) -> Doorbell {
        self.driver.doorbell()
    }

    /// Applies commands, waits for at most `wait_ns` if there is nothing else to do, and handles
    /// events. Returns whether any work was done.
    pub fn turn(&mut self, wait_ns: u64) -> bool {
        let Self { worker, driver, linger_until, is_broken } = self;
        worker.apply_commands(driver.group_mut());
        let is_busy = match driver.turn(wait_ns, |group, event| worker.on_event(group, event)) {
            Ok(progress) => !progress.is_idle(),
            Err(error) => {
                worker.finish(Err(GroupEnd::System(error.to_string())));
                *is_broken = true;
                return true;
            }
        };
        if is_busy {
            worker.note_progress(driver.group());
        }
        if driver.group().outcome().is_some() {
            linger_until.get_or_insert_with(|| Instant::now() + LINGER);
        }
        is_busy
    }

    /// Whether the group has ended and all members know, or have had time to learn it.
    pub fn is_over(&self) -> bool {
        self.is_broken
            || self.driver.group().is_done()
            || self.linger_until.is_some_and(|at| Instant::now() >= at)
    }
}

/// Returns the loopback address of the same family with port 0, for the root's listener: no other
/// member connects to the root.
fn loopback_address(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(_) => (std::net::Ipv4Addr::LOCALHOST, 0).into(),
        SocketAddr::V6(_) => (std::net::Ipv6Addr::LOCALHOST, 0).into(),
    }
}
