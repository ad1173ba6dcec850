//! The configuration of a controller.

use onepipe_base::{Controllers, Incarnation, Instance, ProcessId};
use onepipe_wire::{
    ANNOUNCE_HEADER_LEN, DECISION_TIP_LEN, FAILURE_LEN, FLOOD_HEADER_LEN, HEADER_LEN, LINK_LEN,
};

use crate::graph::Limits;

/// How the controller is attached to its fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Links {
    /// Port 0 leads to a switch.
    Uplink,
    /// Port p leads to process p, for every p below this number.
    Mesh(u16),
}

impl Links {
    /// Returns the number of links.
    #[inline]
    pub(crate) fn ports(self) -> u16 {
        match self {
            Self::Uplink => 1,
            Self::Mesh(count) => count,
        }
    }
}

/// How notices reach the processes and their completions return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Recovery {
    /// By flooding from node to node; takes time in proportion to the depth of the network.
    Tree,
    /// By unicast to each process, as in the paper (1Pipe section 5.2); for comparison in
    /// simulations.
    Flat,
}

/// The configuration of a controller. All times are in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Process id of this replica, one of `controllers`.
    pub process: ProcessId,
    /// Incarnation of this replica; a restarted replica takes a higher one.
    pub incarnation: Incarnation,
    /// All replicas.
    pub controllers: Controllers,
    /// How this replica is attached to the fabric.
    pub links: Links,
    /// How notices are delivered.
    pub recovery: Recovery,
    /// The longest frame of the fabric, in bytes.
    pub frame_len_max: usize,
    /// Process ids at or above this are rejected.
    pub processes_max: u32,
    /// Switch ids at or above this are rejected.
    pub switches_max: u32,
    /// Maximum number of past and present neighbours of one process whose failures are unresolved.
    /// A process behind a switch has that switch; in a mesh the limit is at least four per
    /// process. At least 1, default 256.
    pub process_neighbours_max: u32,
    /// The same of one switch. Default 131,072: 65,535 ports, each with a second incarnation.
    pub switch_neighbours_max: u32,
    /// Maximum number of incarnations of one address that one node announces. At least 1, default
    /// 256: restarts twice a second for two minutes without a controller.
    pub incarnations_max: u32,
    /// Interval between two Hello frames on each link. Must be below the link timeout of the
    /// switches (ten beacon intervals of 3 us; 1Pipe section 6.1).
    pub hello_interval_ns: u64,
    /// Interval between two Hello frames at rest, in ns: while nothing has changed for 50
    /// `hello_interval_ns`, nothing is pending, and the switch answers. Ten of them must be below
    /// the link timeout of idle links of the switches. 0: `hello_interval_ns` also at rest, as
    /// with beacons at the fixed interval. Default 0.
    pub heartbeat_interval_ns: u64,
    /// After this time without a frame, a process of a mesh counts as disconnected from the
    /// controller. At least three slow announcement intervals.
    pub link_timeout_ns: u64,
    /// Quiet time after the last report before a failure is decided: reports of one event arrive
    /// within a beacon interval and a crossing of the network.
    pub quiet_ns: u64,
    /// Longest time for which frames of a suspect postpone its failure: ten slow announcement
    /// intervals, in which every node announces its current links.
    pub grace_ns: u64,
    /// How long nothing may be received of a process, through a switch that has been connected all
    /// the time, before the process is declared failed without a certain report of its death. At
    /// least the link timeout. 0: at once when no path is left. Default 0.
    pub silent_after_ns: u64,
    /// How long a process whose switch has lost its own path is not declared failed without a
    /// certain report: the switch may have paused, or restart. Default 0; no effect if
    /// `silent_after_ns` is 0.
    pub switch_wait_ns: u64,
    /// How long correct nodes may list an instance that has no path to the controller as up, before
    /// the nodes have to freeze their links to it.
    pub freeze_after_ns: u64,
    /// How long a required register may be missing, before the failure is decided without it and
    /// counted as inexact; and how long a link that died alone may stay down between processes
    /// without another path to each other, before its commits are released and a partition is
    /// counted.
    pub inexact_after_ns: u64,
    /// Initial retransmission interval of an unacknowledged notification; doubles on every
    /// retransmission.
    pub retransmit_ns: u64,
    /// Upper limit of the retransmission interval.
    pub retransmit_max_ns: u64,
    /// After this time without an acknowledgement a notification restarts as a new flood, on the
    /// current paths; doubles on every restart until one is complete or paths change, up to 32
    /// times.
    pub restart_ns: u64,
    /// How long a process may take to answer a ping.
    pub ping_timeout_ns: u64,
    /// How long a failure is reported to joining processes and repeated in later notices.
    pub notice_retention_ns: u64,
    /// Interval at which a record is offered again after the store has failed.
    pub store_retry_ns: u64,
    /// After this time without any frame, and after ten heartbeats, a replica reports that it is
    /// isolated.
    pub isolated_after_ns: u64,
    /// Capacity of the send queue, of pending recalls and of recovery replies. What exceeds it is
    /// dropped; its sender retransmits.
    pub queue_max: usize,
}

/// Why a configuration is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// `process` is not among `controllers`.
    #[error("process {0} is not among the configured controllers")]
    NotAController(u32),
    /// A frame is too short for the smallest notice or announcement.
    #[error("frame_len_max = {0} is too short for a notice or an announcement")]
    FrameTooShort(usize),
    /// A duration or a count is zero.
    #[error("{0} must be at least 1")]
    Zero(&'static str),
}

impl Config {
    /// Returns the defaults for replica `process` behind a switch.
    pub fn new(process: ProcessId, controllers: Controllers) -> Self {
        Self {
            process,
            incarnation: Incarnation(0),
            controllers,
            links: Links::Uplink,
            recovery: Recovery::Tree,
            frame_len_max: 1500,
            processes_max: 1 << 20,
            switches_max: 1 << 20,
            process_neighbours_max: 256,
            switch_neighbours_max: 1 << 17,
            incarnations_max: 256,
            hello_interval_ns: 10_000,
            heartbeat_interval_ns: 0,
            link_timeout_ns: 30_000_000,
            quiet_ns: 10_000,
            grace_ns: 100_000_000,
            silent_after_ns: 0,
            switch_wait_ns: 0,
            freeze_after_ns: 1_000_000,
            inexact_after_ns: 1_000_000_000,
            retransmit_ns: 20_000,
            retransmit_max_ns: 1_000_000,
            restart_ns: 10_000_000,
            ping_timeout_ns: 5_000_000,
            notice_retention_ns: 600_000_000_000,
            store_retry_ns: 10_000_000,
            isolated_after_ns: 1_000_000_000,
            queue_max: 4_096,
        }
    }

    //= spec/failure.md#R49
    /// Takes over the link timeout of the fabric, in ns, and lengthens the times that follow from
    /// it: a process for which its links still wait must not be declared failed, and a neighbour
    /// may lose its link as much later than another one.
    pub fn adopt_link_timeout(&mut self, link_timeout_ns: u64) {
        self.link_timeout_ns = link_timeout_ns;
        self.silent_after_ns = self.silent_after_ns.max(link_timeout_ns);
        self.ping_timeout_ns = self.ping_timeout_ns.max(link_timeout_ns);
        self.inexact_after_ns = self.inexact_after_ns.max(link_timeout_ns.saturating_mul(3));
    }

    /// Returns this replica's own instance.
    pub(crate) fn own(&self) -> Instance {
        let address = onepipe_base::Address::Process(self.process);
        Instance { address, incarnation: self.incarnation }
    }

    /// Returns the limits of what one node announces.
    pub(crate) fn limits(&self) -> Limits {
        let in_mesh = match self.links {
            Links::Uplink => 0,
            Links::Mesh(ports) => 4 * usize::from(ports),
        };
        Limits {
            process_neighbours_max: in_mesh.max(self.process_neighbours_max as usize),
            switch_neighbours_max: self.switch_neighbours_max as usize,
            incarnations_max: self.incarnations_max as usize,
        }
    }

    //= spec/failure.md#R49
    /// Returns after what time without an announcement a switch counts as silent, in ns: half of
    /// what a process is given, beyond the interval between announcements at rest (R45). `None` if
    /// that interval is not known because there are no heartbeats.
    pub(crate) fn switch_idle_ns(&self) -> Option<u64> {
        let controllers = u64::from(self.controllers.count);
        let rest_ns = self.heartbeat_interval_ns.saturating_mul(controllers);
        (self.heartbeat_interval_ns > 0).then_some(self.silent_after_ns / 2 + rest_ns)
    }

    /// Returns the length of the longest payload, in bytes.
    pub(crate) fn payload_len_max(&self) -> usize {
        self.frame_len_max - HEADER_LEN
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if !self.controllers.contains(self.process) {
            return Err(ConfigError::NotAController(self.process.0));
        }
        let min_len = HEADER_LEN
            + (FLOOD_HEADER_LEN + FAILURE_LEN).max(ANNOUNCE_HEADER_LEN + LINK_LEN)
            + DECISION_TIP_LEN;
        if self.frame_len_max < min_len {
            return Err(ConfigError::FrameTooShort(self.frame_len_max));
        }
        let positive = [
            (self.hello_interval_ns, "hello_interval_ns"),
            (self.link_timeout_ns, "link_timeout_ns"),
            (self.retransmit_ns, "retransmit_ns"),
            (self.restart_ns, "restart_ns"),
            (self.store_retry_ns, "store_retry_ns"),
            (self.queue_max as u64, "queue_max"),
            (self.process_neighbours_max.into(), "process_neighbours_max"),
            (self.incarnations_max.into(), "incarnations_max"),
        ];
        match positive.into_iter().find(|(value, _)| *value == 0) {
            Some((_, name)) => Err(ConfigError::Zero(name)),
            None => Ok(()),
        }
    }
}
