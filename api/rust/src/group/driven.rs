//! A member of a group with its links, turn by turn.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use onepipe_bulk::Group as Machine;
use onepipe_transport_bulk::{Door, End, Meeting, Shelf};
use onepipe_transport_clock::SystemClock;
use onepipe_transport_driver::Doorbell;

use super::shared::Shared;
use super::worker::Worker;
use crate::{GroupEnd, GroupError, GroupOptions};

/// Whoever leaves waits so long for others to have heard of it.
const FAREWELL: Duration = Duration::from_secs(1);

/// A member that somebody drives.
pub(super) struct Driven {
    worker: Worker,
    end: End<SystemClock>,
    farewell: Option<Instant>,
    /// The sockets are of no use any more.
    is_broken: bool,
}

impl Driven {
    /// Meets the other members.
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
        let twice = (0..).zip(others).find(|(at, other)| others[..*at].contains(other));
        if let Some((_, twice)) = twice {
            return Err(GroupError::Twice(*twice));
        }
        let machine = Machine::with_memory(options.config(members.len(), own))?;
        let door = match options.door.take() {
            Some(door) => door,
            None => Door::open(if own == 0 { any(address) } else { address })
                .map_err(system("listen at this member's address"))?,
        };
        let (group, patience) = (options.group, options.patience);
        let meeting = Meeting { group, members, own, patience };
        let end = End::join(options.carrier, machine, &meeting, &door, SystemClock::calibrated())?;
        let worker = Worker {
            shared: Arc::default(),
            members: members.to_vec(),
            memory_bytes_max: options.memory_bytes_max,
            on_object: options.on_object,
            lender: end.lender().cloned(),
            wanted: VecDeque::new(),
            under_way_bytes: 0,
        };
        Ok(Self { worker, end, farewell: None, is_broken: false })
    }

    /// What it shares with its user.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.worker.shared
    }

    pub fn members(&self) -> &[SocketAddr] {
        &self.worker.members
    }

    /// Where the root's memory comes from that others read without a copy, if there is such.
    pub fn shelf(&self) -> Option<&Shelf> {
        self.end.shelf()
    }

    /// What ends a wait.
    pub fn doorbell(&self) -> Doorbell {
        self.end.doorbell()
    }

    /// Does what was asked for, waits for `wait_ns` at most if there is nothing else to do, and
    /// tells what has happened. Answers whether anything has.
    pub fn turn(&mut self, wait_ns: u64) -> bool {
        let Self { worker, end, farewell, is_broken } = self;
        worker.command(end.group_mut());
        let is_busy = match end.turn(wait_ns, |group, event| worker.on_event(group, event)) {
            Ok(progress) => !progress.is_idle(),
            Err(error) => {
                worker.finish(Err(GroupEnd::System(error.to_string())));
                *is_broken = true;
                return true;
            }
        };
        if is_busy {
            worker.note_progress(end.group());
        }
        if end.group().outcome().is_some() {
            farewell.get_or_insert_with(|| Instant::now() + FAREWELL);
        }
        is_busy
    }

    /// Whether the group is over, and everybody knows, or has had time to hear it.
    pub fn is_over(&self) -> bool {
        self.is_broken
            || self.end.group().is_done()
            || self.farewell.is_some_and(|at| Instant::now() >= at)
    }
}

/// Any port of the same kind of address: a root is not looked for.
fn any(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(_) => (std::net::Ipv4Addr::LOCALHOST, 0).into(),
        SocketAddr::V6(_) => (std::net::Ipv6Addr::LOCALHOST, 0).into(),
    }
}
