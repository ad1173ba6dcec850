//! Setup of a simulation.

use onepipe_sim_network::{CpuConfig, LinkConfig};
use onepipe_topology::Shape;
use onepipe_wire::{GroupId, GroupSet};

/// Send pattern of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendPattern {
    /// Open loop: one message per interval, in ps. Messages that find the window full are counted
    /// and dropped.
    Every(u64),
    /// Closed loop: as many messages as the window permits, with random pauses.
    Eager {
        /// Maximum pause in ns.
        pause_ns_max: u64,
    },
}

/// Load of the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Number of messages per client.
    pub messages: u32,
    /// Minimum (at least 8) and maximum length of a message in bytes.
    pub bytes: (usize, usize),
    /// Whether each message is for a random subset of the groups, instead of all.
    pub is_subset: bool,
    /// Send pattern.
    pub pattern: SendPattern,
    /// Optional change of a group's load.
    pub shift: Option<Shift>,
}

/// Shift of the load to one group that had little load before. The clocks of the other groups run
/// ahead of its clock, and it learns of them with messages for several groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shift {
    /// The group.
    pub group: GroupId,
    /// Before this time, in ns, messages for the group alone go to the other groups instead.
    pub from_ns: u64,
    /// From then until this time, in ns, all messages are for the group alone.
    pub until_ns: u64,
}

impl Shift {
    /// Returns the destination of a message that would be for `groups`, out of `all`.
    pub(crate) fn of(&self, at_ns: u64, groups: GroupSet, all: GroupSet) -> GroupSet {
        let alone = GroupSet::EMPTY.with(self.group);
        match at_ns {
            _ if at_ns < self.from_ns && groups == alone => all.without(self.group),
            _ if (self.from_ns..self.until_ns).contains(&at_ns) => alone,
            _ => groups,
        }
    }
}

/// Fabric, groups, replicas, clients and load.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The fabric.
    pub shape: Shape,
    /// Links of hosts.
    pub host_link: LinkConfig,
    /// Links between switches.
    pub switch_link: LinkConfig,
    /// CPU cost of frames at hosts.
    pub cpu: CpuConfig,
    /// Additional CPU cost in ns of each entry in a frame at hosts, for the rival, whose frames
    /// carry many entries.
    pub entry_ns: u64,
    /// Whether hosts are the members and deliver themselves, as in PrimCast.
    pub is_rival: bool,
    /// Number of groups.
    pub groups: u32,
    /// Members per group.
    pub members: u32,
    /// Replicas per group.
    pub replicas: u32,
    /// Number of clients.
    pub clients: u32,
    /// Number of coordinators, one of which is active.
    pub coordinators: u32,
    /// Window of a client in messages.
    pub window: u32,
    /// Maximum length of a frame in bytes.
    pub frame_len_max: usize,
    /// Minimum retransmission timeout in ns.
    pub rto_min_ns: u64,
    /// Number of open messages from which on a leader is busy.
    pub busy_threshold: u64,
    /// Number of completed messages that members and replicas retain.
    pub history: usize,
    /// Interval at which coordinators probe members, in ns.
    pub probe_interval_ns: u64,
    /// Time without an answer after which a leader is replaced, in ns.
    pub leader_timeout_ns: u64,
    /// Duration of the coordinators' lease, in ns; it is renewed four times in that.
    pub lease_ns: u64,
    /// Maximum delay of a write to the store, in ns.
    pub store_ns: u64,
    /// Delay until routing avoids a failed component, in ns.
    pub reroute_ns: u64,
    /// Whether members announce their incarnations.
    pub announces: bool,
    /// Load of the clients.
    pub load: Load,
    /// Whether each frame is checked for genuineness.
    pub checks_frames: bool,
    /// Maximum number of events kept as text.
    pub trace_lines_max: usize,
    /// Seed of all random draws.
    pub seed: u64,
}

impl Setup {
    /// Returns a setup with one group of three members, two replicas and a client that sends
    /// nothing. Coordinators probe every 20 us with a timeout of 100 us: a round trip takes 6 us,
    /// and probes take 0.1 % of a link.
    pub fn new(shape: Shape) -> Self {
        let pattern = SendPattern::Eager { pause_ns_max: 100_000 };
        Self {
            shape,
            host_link: LinkConfig::default(),
            switch_link: LinkConfig::default(),
            cpu: CpuConfig::default(),
            entry_ns: 0,
            is_rival: false,
            groups: 1,
            members: 3,
            replicas: 2,
            clients: 1,
            coordinators: 2,
            window: 16,
            frame_len_max: 1_472,
            rto_min_ns: 50_000,
            busy_threshold: 1_024,
            history: 1_024,
            probe_interval_ns: 20_000,
            leader_timeout_ns: 100_000,
            lease_ns: 400_000,
            store_ns: 50_000,
            reroute_ns: 50_000,
            announces: false,
            load: Load { messages: 0, bytes: (16, 128), is_subset: true, pattern, shift: None },
            checks_frames: true,
            trace_lines_max: 0,
            seed: 1,
        }
    }
}
