//! Simulated network of members and switches.

use onepipe_bulk::{Group, Outcome as Ended, PIECE_FRONT_LEN};
use onepipe_sim_engine::NANOSECOND;
use onepipe_sim_network::{Config, Fault, Network, NodeId};
use onepipe_topology::Topology;

use crate::application::Workload;
use crate::node::Node;
use crate::setup::Setup;

/// Counters of all members together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Frames sent.
    pub frames_sent: u64,
    /// Frames that counted as lost.
    pub frames_lost: u64,
    /// Pieces sent, including retransmissions.
    pub pieces_sent: u64,
    /// Pieces received more than once.
    pub pieces_duplicate: u64,
}

/// Outcome of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether all members report that all objects have reached all members.
    pub is_clean: bool,
    /// Number of objects delivered by rank; 0 for the root.
    pub delivered: Vec<u32>,
    /// Number of objects lost by rank.
    pub lost: Vec<u32>,
    /// Time of the last delivery by rank, in ns; `None` for the root.
    pub complete_ns: Vec<Option<u64>>,
    /// Outcome by rank, if the group has ended there.
    pub ended: Vec<Option<Ended>>,
    /// Bytes of frames sent between switches, counted at each link.
    pub core_bytes: u64,
    /// Counters of all members together.
    pub stats: Stats,
    /// Hash of the whole history.
    pub trace_hash: u64,
}

impl Outcome {
    /// Returns when the last member had everything, in ns; `None` if a member has not.
    pub fn last_ns(&self) -> Option<u64> {
        self.complete_ns[1..].iter().copied().try_fold(0, |last, whole| Some(last.max(whole?)))
    }
}

/// Simulated network at some virtual time.
#[derive(Debug)]
pub struct SimEnv {
    network: Network<Node, Workload>,
    members: Vec<u32>,
}

impl SimEnv {
    /// Creates the network at virtual time zero.
    ///
    /// # Panics
    /// If a member is not a host of the fabric, or the group is invalid.
    pub fn new(setup: &Setup) -> Self {
        let topology = Topology::new(setup.shape, 1).expect("a host has one process");
        assert!(setup.members.iter().all(|host| *host < topology.hosts()), "members must be hosts");
        let config = Config {
            host_link: setup.host_link,
            switch_link: setup.switch_link,
            frame_len_max: PIECE_FRONT_LEN + setup.piece_len as usize,
            ..Config::default()
        };
        let workload = Workload::new(setup.clone(), topology.clone());
        let network = Network::new(topology, config, setup.seed, workload);
        Self { network, members: setup.members.clone() }
    }

    /// Schedules a crash of a member, in `ns` from now.
    ///
    /// # Panics
    /// If the rank does not exist.
    pub fn crash(&mut self, rank: usize, ns: u64) {
        let at = self.network.now().after(ns * NANOSECOND);
        self.network.schedule(at, Fault::Crash(NodeId(self.members[rank])));
    }

    /// Runs until the group has ended at all live members, for `ns` at most.
    pub fn run(mut self, ns: u64) -> Outcome {
        let end = self.network.now().after(ns * NANOSECOND);
        // Check for completion at this interval.
        let look = (ns / 1_000).max(1);
        while self.network.now() < end && !self.is_over() {
            self.network.run_for(look * NANOSECOND);
        }
        self.groups().for_each(Group::check_invariants);
        let workload = &self.network.application;
        Outcome {
            is_clean: workload.ended.iter().all(|ended| *ended == Some(Ended::Complete)),
            delivered: workload.delivered.clone(),
            lost: workload.lost.clone(),
            complete_ns: workload.completed_at.iter().map(|at| at.map(|at| at.as_ns())).collect(),
            ended: workload.ended.clone(),
            core_bytes: workload.core_bytes,
            stats: self.stats(),
            trace_hash: self.network.trace_hash(),
        }
    }

    /// Returns the groups of all live members.
    fn groups(&self) -> impl Iterator<Item = &Group> {
        let machines = self.members.iter().filter_map(|host| self.network.machine(NodeId(*host)));
        machines.filter_map(Node::host)
    }

    /// Returns the counters of all members, added up.
    fn stats(&self) -> Stats {
        self.groups().map(Group::stats).fold(Stats::default(), |sum, of| Stats {
            frames_sent: sum.frames_sent + of.frames_sent,
            frames_lost: sum.frames_lost + of.frames_lost,
            pieces_sent: sum.pieces_sent + of.pieces_sent,
            pieces_duplicate: sum.pieces_duplicate + of.pieces_duplicate,
        })
    }

    fn is_over(&self) -> bool {
        let ended = self.members.iter().zip(&self.network.application.ended);
        ended
            .into_iter()
            .all(|(host, ended)| ended.is_some() || self.network.machine(NodeId(*host)).is_none())
    }
}
