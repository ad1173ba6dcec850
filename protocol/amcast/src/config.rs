//! Group membership and the settings of members, replicas and clients.

use alloc::vec::Vec;

use onepipe_base::{Incarnation, ProcessId, ProcessInstance};
use onepipe_reliability::{RetransmitTimer, RttEstimator};
use onepipe_wire::{AMCAST_LEN, GROUPS_MAX, GroupId, GroupSet, SHORT_HEADER_LEN};

/// Maximum number of members of a group: a set of members fits 16 bits.
pub const MEMBERS_MAX: usize = 16;
const _: () = assert!(MEMBERS_MAX <= u16::BITS as usize, "a set of members fits 16 bits");

/// A group: 2f + 1 members, of which f may crash, and its replicas.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    /// Processes that order the group's messages: an odd number, up to [`MEMBERS_MAX`]. The first
    /// one leads the first epoch.
    pub members: Vec<ProcessId>,
    /// Processes that deliver the group's messages.
    pub replicas: Vec<ProcessId>,
}

/// All groups and all clients. Every machine must be configured with the same value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Groups {
    /// Groups, indexed by [`GroupId`]; at most 64.
    pub groups: Vec<Group>,
    /// Clients, indexed by client number. A number must not be reused by another client, or by a
    /// later incarnation of the same one, while messages of its previous user may be in flight.
    pub clients: Vec<ProcessId>,
    /// Window of a client: the number of messages, 1 to 4096, that may be open, that is, not yet
    /// complete in all destination groups. Every member reserves space for the windows of all
    /// clients, so a message that one group has accepted is never refused by another one and groups
    /// cannot deadlock on each other.
    pub window: u32,
    /// Maximum number of destination groups of a message, 1 to 64.
    pub message_groups_max: usize,
    /// Maximum length of a frame in bytes, header included: the MTU less the headers below. Bounds
    /// the length of a message ([`Groups::message_len_max`]).
    pub frame_len_max: usize,
}

impl Groups {
    /// Returns the maximum length of a message in bytes: a message fits one packet.
    pub const fn message_len_max(&self) -> usize {
        self.frame_len_max.saturating_sub(SHORT_HEADER_LEN + AMCAST_LEN)
    }

    /// Returns the number of messages of all clients that may be open at a time.
    pub fn open_max(&self) -> usize {
        self.clients.len() * self.window as usize
    }

    /// Returns the group, or `None` if it does not exist.
    pub fn get(&self, group: GroupId) -> Option<&Group> {
        self.groups.get(group.index())
    }

    /// Returns whether `groups` is a valid destination: not empty, not more than
    /// `message_groups_max` groups, and all of them exist.
    pub fn is_valid_destination(&self, groups: GroupSet) -> bool {
        (1..=self.message_groups_max).contains(&groups.len())
            && groups.iter().all(|group| self.get(group).is_some())
    }

    /// Returns the index of `process` among the members of `group`.
    pub(crate) fn member_index(&self, group: GroupId, process: ProcessId) -> Option<usize> {
        self.get(group)?.members.iter().position(|member| *member == process)
    }

    /// Returns the size of a majority of `group`.
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
        let frame = self.frame_len_max;
        if !(SHORT_HEADER_LEN + AMCAST_LEN + 1..=usize::from(u16::MAX)).contains(&frame) {
            return error("frame_len_max", frame);
        }
        Ok(())
    }
}

/// Settings of a member, a replica or a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Own process.
    pub process: ProcessId,
    /// Own incarnation. A client that has lost its state must not rejoin under the same process id,
    /// and a member that has is refused by those that have received its first incarnation.
    pub incarnation: Incarnation,
    /// Groups and clients.
    pub groups: Groups,
    /// Member: processes that may appoint leaders. Default: none; then only
    /// [`crate::Member::lead`] does.
    pub coordinators: Vec<ProcessId>,
    /// Minimum retransmission timeout in ns; doubled on every expiry without progress, up to 64
    /// times this value. Should be a few round trips. Default 100 us.
    pub rto_min_ns: u64,
    /// Client: maximum number of message bytes in flight; further messages are queued. The
    /// congestion window starts at 64 KiB and adapts below this limit. Default: limited by the
    /// window only.
    pub in_flight_bytes_max: u64,
    /// Member: number of open messages from which on new messages of clients are refused with
    /// `Busy`. A message that another group has proposed is accepted nevertheless. Default 1024.
    pub busy_threshold: u64,
    /// Member and replica: number of completed messages, at least 1, that are retained for
    /// retransmission. A peer that lags by more cannot catch up. Default 1024.
    pub history: usize,
    /// Member: whether it announces its incarnation when it starts, and takes no part before a
    /// majority of its group has acknowledged that. So a member that has restarted with an empty
    /// memory is refused before it votes. All members must agree. Default: no.
    pub announces: bool,
    /// Member: capacity of the outbox in packets. A packet that does not fit is dropped and
    /// retransmitted later. Default 4096.
    pub outbox: usize,
}

impl Config {
    /// Returns the own process with its incarnation.
    pub(crate) const fn own(&self) -> ProcessInstance {
        ProcessInstance { process: self.process, incarnation: self.incarnation }
    }

    /// Returns the default settings.
    pub const fn new(process: ProcessId, groups: Groups) -> Self {
        Self {
            process,
            incarnation: Incarnation(1),
            groups,
            coordinators: Vec::new(),
            rto_min_ns: 100_000,
            in_flight_bytes_max: u64::MAX,
            busy_threshold: 1_024,
            history: 1_024,
            announces: false,
            outbox: 4_096,
        }
    }

    /// Returns an estimator of the round trip of an exchange.
    pub(crate) fn rtt(&self) -> RttEstimator {
        let rto_max_ns = self.rto_min_ns.saturating_mul(RetransmitTimer::BACKOFF_MAX);
        RttEstimator::new(self.rto_min_ns, rto_max_ns)
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        self.groups.check()?;
        let check = |is_right, name, value| match is_right {
            true => Ok(()),
            false => Err(ConfigError { name, value }),
        };
        check((1..=1 << 50).contains(&self.rto_min_ns), "rto_min_ns", self.rto_min_ns)?;
        check(self.busy_threshold > 0, "busy_threshold", self.busy_threshold)?;
        check((1..=1 << 24).contains(&self.history), "history", self.history as u64)?;
        check((16..=1 << 24).contains(&self.outbox), "outbox", self.outbox as u64)
    }

    /// Returns all processes to which a member of `group` may send packets.
    pub(crate) fn peers(&self, group: GroupId) -> impl Iterator<Item = ProcessId> {
        let groups = &self.groups;
        let members = groups.groups.iter().flat_map(|group| &group.members);
        let replicas = groups.get(group).into_iter().flat_map(|group| &group.replicas);
        members.chain(replicas).chain(&groups.clients).chain(&self.coordinators).copied()
    }

    //= spec/amcast.md#R30
    //= spec/amcast.md#R31
    /// Returns the number of log positions that are held at a time.
    pub(crate) fn log_capacity(&self) -> usize {
        debug_assert!(self.history > 0, "checked when the machine was created");
        self.groups.open_max() + self.history
    }
}

/// A setting is out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is {value}, out of range")]
pub struct ConfigError {
    /// Name of the setting.
    pub name: &'static str,
    /// Its value.
    pub value: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME_LEN_MIN: usize = SHORT_HEADER_LEN + AMCAST_LEN + 1;

    fn groups(count: usize, members: usize) -> Groups {
        let members: Vec<ProcessId> = (0..members as u32).map(ProcessId).collect();
        Groups {
            groups: alloc::vec![Group { members, replicas: Vec::new() }; count],
            clients: alloc::vec![ProcessId(99)],
            window: 8,
            message_groups_max: 1,
            frame_len_max: 1_472,
        }
    }

    /// Returns the setting that is out of range.
    fn refused(change: impl FnOnce(&mut Groups)) -> Option<&'static str> {
        let mut groups = groups(1, 3);
        change(&mut groups);
        groups.check().err().map(|error| error.name)
    }

    #[test]
    fn settings_at_their_limits_are_accepted_and_no_others() {
        let counts = [(0, 3), (1, 3), (64, 3), (65, 3), (1, 0), (1, 1), (1, 2), (1, 15), (1, 17)];
        let names = counts
            .map(|(count, members)| groups(count, members).check().err().map(|error| error.name));
        let (groups, members) = (Some("groups"), Some("members"));
        let expected = [groups, None, None, groups, members, None, members, None, members];
        assert_eq!(names, expected);
        let windows = [0, 1, 4_096, 4_097].map(|window| refused(|groups| groups.window = window));
        assert_eq!(windows, [Some("window"), None, None, Some("window")]);
        let limits = [0, 1, 64, 65].map(|max| refused(|groups| groups.message_groups_max = max));
        let name = Some("message_groups_max");
        assert_eq!(limits, [name, None, None, name]);
        let lens = [FRAME_LEN_MIN - 1, FRAME_LEN_MIN, 65_535, 65_536];
        let lens = lens.map(|len| refused(|groups| groups.frame_len_max = len));
        assert_eq!(lens, [Some("frame_len_max"), None, None, Some("frame_len_max")]);
        // Open messages of all clients: their number is limited to 2^24.
        let clients = [0, 1 << 12, (1 << 12) + 1].map(|count| {
            refused(|groups| {
                groups.window = 4_096;
                groups.clients = alloc::vec![ProcessId(99); count];
            })
        });
        assert_eq!(clients, [Some("clients"), None, Some("clients")]);
    }
}
