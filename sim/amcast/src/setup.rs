//! What a world is about.

use onepipe_sim_network::{CpuConfig, LinkConfig};
use onepipe_topology::Shape;
use onepipe_wire::{GroupId, GroupSet};

/// How clients send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendPattern {
    /// A message every so often, in ps, whatever has become of the others; what finds the window
    /// full is not sent, and counted.
    Every(u64),
    /// As many as the window takes, with pauses of up to so many ns.
    Eager {
        /// The longest pause.
        pause_ns_max: u64,
    },
}

/// What clients send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// How many messages each client sends.
    pub messages: u32,
    /// Bytes of a message: the fewest, at least 8, and the most.
    pub bytes: (usize, usize),
    /// Whether each is for some groups, drawn anew; else for all.
    pub is_subset: bool,
    /// When.
    pub pattern: SendPattern,
    /// Whether the load of a group changes.
    pub shift: Option<Shift>,
}

/// A group of which clients want little at first, and then much: the clocks of others run ahead of
/// its own, which it hears of with messages for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shift {
    /// Which group.
    pub group: GroupId,
    /// Before, in ns, what would be for it alone is for the others.
    pub from_ns: u64,
    /// Until then, in ns, everything is for it alone.
    pub until_ns: u64,
}

impl Shift {
    /// For whom a message is at this time that would be for `groups`, of those that `all` are.
    pub(crate) fn of(&self, at_ns: u64, groups: GroupSet, all: GroupSet) -> GroupSet {
        let alone = GroupSet::EMPTY.with(self.group);
        match at_ns {
            _ if at_ns < self.from_ns && groups == alone => all.without(self.group),
            _ if (self.from_ns..self.until_ns).contains(&at_ns) => alone,
            _ => groups,
        }
    }
}

/// A fabric, groups with their replicas and clients, and what they send.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The fabric.
    pub shape: Shape,
    /// Links of hosts.
    pub host_link: LinkConfig,
    /// Links between switches.
    pub switch_link: LinkConfig,
    /// What frames cost hosts.
    pub cpu: CpuConfig,
    /// What each thing that is said in a frame costs a host beside that, in ns: of the rival, whose
    /// frames carry many.
    pub entry_ns: u64,
    /// Whether hosts are the members, as PrimCast does it; they deliver themselves.
    pub is_rival: bool,
    /// How many groups.
    pub groups: u32,
    /// Members of each.
    pub members: u32,
    /// Replicas of each.
    pub replicas: u32,
    /// How many clients.
    pub clients: u32,
    /// How many coordinators, of which one is active.
    pub coordinators: u32,
    /// Messages of a client that may be open at a time.
    pub window: u32,
    /// Bytes of a frame at most.
    pub frame_len_max: usize,
    /// What was not answered is said again after so long, in ns.
    pub rto_min_ns: u64,
    /// Open messages at which a leader is busy.
    pub busy_threshold: u64,
    /// Messages that members and replicas keep for those who have missed them.
    pub history: usize,
    /// Coordinators ask members how they are this often, in ns.
    pub probe_interval_ns: u64,
    /// A leader that has not answered for so long is replaced, in ns.
    pub leader_timeout_ns: u64,
    /// The coordinators' lease in their store, in ns; they renew it four times in that.
    pub lease_ns: u64,
    /// The store takes up to so long to write, in ns.
    pub store_ns: u64,
    /// So long after something has died its neighbours send around it, in ns.
    pub reroute_ns: u64,
    /// What clients send.
    pub load: Load,
    /// Whether each frame is looked at, for who may hear of what.
    pub checks_frames: bool,
    /// How many of the last events are kept as text.
    pub trace_lines_max: usize,
    /// Everything that is drawn.
    pub seed: u64,
}

impl Setup {
    /// One group of three on the given fabric, with two replicas and a client, which sends nothing
    /// yet. Coordinators ask every 20 us and wait for 100: a round trip is 6 us, and asking takes
    /// 0.1 % of a link.
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
            load: Load { messages: 0, bytes: (16, 128), is_subset: true, pattern, shift: None },
            checks_frames: true,
            trace_lines_max: 0,
            seed: 1,
        }
    }
}
