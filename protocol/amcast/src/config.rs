//! Who belongs to which group, and how the machines are set up.

use alloc::vec::Vec;

use onepipe_base::{Incarnation, ProcessId};
use onepipe_wire::{AMCAST_OCTETS, GROUPS_MAX, GroupId, GroupSet, HEADER_OCTETS};

/// Members of a group at most: a set of them is half a word.
pub const MEMBERS_MAX: usize = 16;

/// One group: 2f + 1 members, of which f may crash, and its replicas.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    /// Who orders its messages; the first leads the first epoch. An odd number, up to
    /// [`MEMBERS_MAX`].
    pub members: Vec<ProcessId>,
    /// Who delivers them.
    pub replicas: Vec<ProcessId>,
}

/// All groups, and the clients that send to them: the same at every machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Groups {
    /// Group `g` is the one at `g`; up to 64.
    pub groups: Vec<Group>,
    /// Client `c` is the process at `c`. A number is not given to another client or another life of
    /// one while a message of the former one may be on its way.
    pub clients: Vec<ProcessId>,
    /// Messages of a client that may be open at a time, each until all its groups can deliver it;
    /// 1 to 4096. Every member has room for that many of each client: so no message that one group
    /// has taken is refused by another one, and groups cannot wait for each other for ever.
    pub window: u32,
    /// Groups that a message may be for, 1 to 64.
    pub message_groups_max: usize,
    /// Octets of a frame at most, its header with it: the MTU without the headers below. A message
    /// has [`Groups::message_octets_max`].
    pub frame_octets_max: usize,
}

impl Groups {
    /// Octets of a message at most: one message is one packet.
    pub const fn message_octets_max(&self) -> usize {
        self.frame_octets_max.saturating_sub(HEADER_OCTETS + AMCAST_OCTETS)
    }

    /// Messages that may be open at a time, of all clients.
    pub fn open_max(&self) -> usize {
        self.clients.len() * self.window as usize
    }

    /// The group, if there is such a one.
    pub fn get(&self, group: GroupId) -> Option<&Group> {
        self.groups.get(group.index())
    }

    /// Whether all of them exist, and they are neither none nor too many for one message.
    pub fn can_be_for(&self, groups: GroupSet) -> bool {
        (1..=self.message_groups_max).contains(&groups.len())
            && groups.iter().all(|group| self.get(group).is_some())
    }

    /// Who belongs to `group`, from its place among the members.
    pub(crate) fn member_place(&self, group: GroupId, process: ProcessId) -> Option<usize> {
        self.get(group)?.members.iter().position(|member| *member == process)
    }

    /// How many members are a majority of `group`.
    pub(crate) fn majority(&self, group: GroupId) -> u32 {
        self.get(group).map_or(u32::MAX, |group| group.members.len() as u32 / 2 + 1)
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let error = |name, value: usize| Err(ConfigError { name, value: value as u64 });
        if !(1..=usize::from(GROUPS_MAX)).contains(&self.groups.len()) {
            return error("groups", self.groups.len());
        }
        for group in &self.groups {
            let members = group.members.len();
            if members.is_multiple_of(2) || members > MEMBERS_MAX {
                return error("members", members);
            }
        }
        if !(1..=4_096).contains(&self.window) {
            return error("window", self.window as usize);
        }
        if !(1..=usize::from(GROUPS_MAX)).contains(&self.message_groups_max) {
            return error("message_groups_max", self.message_groups_max);
        }
        if self.clients.is_empty() || self.open_max() > 1 << 24 {
            return error("clients", self.clients.len());
        }
        let frame = self.frame_octets_max;
        if !(HEADER_OCTETS + AMCAST_OCTETS + 1..=usize::from(u16::MAX)).contains(&frame) {
            return error("frame_octets_max", frame);
        }
        Ok(())
    }
}

/// How a machine is set up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Who it is.
    pub process: ProcessId,
    /// Which life of it. A member or a client that has lost its memory is another one; it may not
    /// come back as itself.
    pub incarnation: Incarnation,
    /// All groups.
    pub groups: Groups,
    /// Of a member: who may say who leads. Default nobody: then only [`crate::Member::lead`] does.
    pub coordinators: Vec<ProcessId>,
    /// What was not answered is said again after so long, ns, and then ever less often, up to 64
    /// times as long. Some round trips. Default 100 us.
    pub repeat_ns: u64,
    /// Of a client: octets of messages that may ever be on their way at a time, more wait here. It
    /// begins with 64 KiB, and finds out how many there can be. Default no limit but the window.
    pub flight_octets: u64,
    /// Of a member: open messages at which clients are told that it is busy; those that another
    /// group has taken are taken nevertheless. Default 1024.
    pub busy_from: u64,
    /// Of a member and of a replica: messages that are kept behind the open ones for those who
    /// have missed them, at least 1. Who misses more has lost the thread. Default 1024.
    pub kept: usize,
    /// Of a member: packets that may wait to leave. What does not fit is as good as lost, and said
    /// again. Default 4096.
    pub outbox: usize,
}

impl Config {
    /// The defaults.
    pub const fn new(process: ProcessId, groups: Groups) -> Self {
        Self {
            process,
            incarnation: Incarnation(1),
            groups,
            coordinators: Vec::new(),
            repeat_ns: 100_000,
            flight_octets: u64::MAX,
            busy_from: 1_024,
            kept: 1_024,
            outbox: 4_096,
        }
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.groups.check()?;
        let check = |is_right, name, value| match is_right {
            true => Ok(()),
            false => Err(ConfigError { name, value }),
        };
        check((1..=1 << 50).contains(&self.repeat_ns), "repeat_ns", self.repeat_ns)?;
        check(self.busy_from > 0, "busy_from", self.busy_from)?;
        check((1..=1 << 24).contains(&self.kept), "kept", self.kept as u64)?;
        check((16..=1 << 24).contains(&self.outbox), "outbox", self.outbox as u64)
    }

    /// Whom a member of `group` may have something to say to.
    pub(crate) fn peers(&self, group: GroupId) -> impl Iterator<Item = ProcessId> {
        let groups = &self.groups;
        let members = groups.groups.iter().flat_map(|group| &group.members);
        let replicas = groups.get(group).into_iter().flat_map(|group| &group.replicas);
        members.chain(replicas).chain(&groups.clients).chain(&self.coordinators).copied()
    }

    /// Positions of the log that are held at a time.
    pub(crate) fn log_positions(&self) -> usize {
        self.groups.open_max() + self.kept
    }
}

/// A setting that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is {value}, out of range")]
pub struct ConfigError {
    /// Which one.
    pub name: &'static str,
    /// Its value.
    pub value: u64,
}
