//! A network of members and switches that lives through virtual time.

use onepipe_bulk::{Group, Outcome as Ended, PIECE_FRONT_LEN};
use onepipe_sim_engine::NANOSECOND;
use onepipe_sim_network::{Config, Fault, Network, NodeId};
use onepipe_topology::Topology;

use crate::application::Workload;
use crate::node::Node;
use crate::setup::Setup;

/// What members have done, together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Frames sent.
    pub frames_sent: u64,
    /// Frames that were taken for lost.
    pub frames_lost: u64,
    /// Pieces sent, those sent again included.
    pub pieces_sent: u64,
    /// Pieces that came a second time.
    pub pieces_duplicate: u64,
}

/// What has become of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Everything has reached every member, and all of them say so.
    pub is_clean: bool,
    /// By rank: objects delivered; of the root none.
    pub delivered: Vec<u32>,
    /// By rank: objects lost.
    pub lost: Vec<u32>,
    /// By rank: when the last object was delivered, in ns; of the root never.
    pub complete_ns: Vec<Option<u64>>,
    /// By rank: how the group has ended there, if it has.
    pub ended: Vec<Option<Ended>>,
    /// Bytes of frames that have crossed from switch to switch, each crossing counted.
    pub core_bytes: u64,
    /// What all members together have done.
    pub stats: Stats,
    /// A digest of everything that happened.
    pub trace_hash: u64,
}

impl Outcome {
    /// When the last member had everything, in ns; `None` if one has not.
    pub fn last_ns(&self) -> Option<u64> {
        self.complete_ns[1..].iter().copied().try_fold(0, |last, whole| Some(last.max(whole?)))
    }
}

/// A network at some point of virtual time.
#[derive(Debug)]
pub struct World {
    network: Network<Node, Workload>,
    members: Vec<u32>,
}

impl World {
    /// Laid out as `setup` says, at the start of time.
    ///
    /// # Panics
    /// When a member is no host of the fabric, or no group can be made of them.
    pub fn new(setup: &Setup) -> Self {
        let topology = Topology::new(setup.shape, 1).expect("a host has one process");
        assert!(setup.members.iter().all(|host| *host < topology.hosts()), "they are hosts");
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

    /// The member of this rank dies so many ns from now.
    ///
    /// # Panics
    /// When there is no such rank.
    pub fn crash(&mut self, rank: usize, ns: u64) {
        let at = self.network.now().after(ns * NANOSECOND);
        self.network.schedule(at, Fault::Crash(NodeId(self.members[rank])));
    }

    /// Lets up to `ns` pass, or as many as it takes until every member that lives has ended.
    pub fn run(mut self, ns: u64) -> Outcome {
        let end = self.network.now().after(ns * NANOSECOND);
        // So often somebody looks whether there is anything left to wait for.
        let look = (ns / 1_000).max(1);
        while self.network.now() < end && !self.is_over() {
            self.network.run_for(look * NANOSECOND);
        }
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

    /// The members' counters, added up.
    fn stats(&self) -> Stats {
        let machines = self.members.iter().filter_map(|host| self.network.machine(NodeId(*host)));
        let groups = machines.filter_map(Node::group);
        groups.map(Group::stats).fold(Stats::default(), |sum, of| Stats {
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
