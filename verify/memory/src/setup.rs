//! Parameters of a cluster.

use std::collections::BTreeSet;

use onepipe_base::ProcessId;
use onepipe_memory::{MemoryOwner, OwnerOptions, Region, RegionId, Rights};
use onepipe_sim_scenarios::Plan;
use onepipe_sim_traffic::CpuTimes;
use onepipe_table::{Layout, TableOptions};

use crate::load::Load;

/// Parameters of a cluster. Equal setups with equal loads give equal histories.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Fabric, endpoints, switches, the seed, and at most one controller. The plan's load is not
    /// used. The controller has a host of its own, the last one.
    pub plan: Plan,
    /// Number of processes, a multiple of those on a host.
    pub processes: u32,
    /// The shape of the table.
    pub layout: Layout,
    /// The replicas of each shard.
    pub replicas: Vec<Vec<ProcessId>>,
    /// Processes with a client.
    pub clients: BTreeSet<u32>,
    /// Number of calls that a client has in flight.
    pub terminals: u32,
    /// Options of every client.
    pub table: TableOptions,
    /// CPU times of a process.
    pub cpu: CpuTimes,
}

impl Setup {
    /// Returns the shards of which a process is a replica.
    pub(crate) fn shards_of(&self, process: ProcessId) -> impl Iterator<Item = u16> {
        let of = self.replicas.iter().enumerate();
        of.filter(move |(_, replicas)| replicas.contains(&process)).map(|(shard, _)| shard as u16)
    }

    /// Returns the owner of a process, if it has one, and the number of nodes in use of each of its
    /// shards.
    pub(crate) fn owner(
        &self,
        process: ProcessId,
        load: &mut impl Load,
    ) -> Option<(MemoryOwner, Vec<(u16, u64)>)> {
        let mut owner = MemoryOwner::new(OwnerOptions::default());
        let mut used = Vec::new();
        for shard in self.shards_of(process) {
            let mut bytes = self.layout.empty_shard();
            used.push((shard, self.layout.fill(&mut bytes, load.content(shard))));
            let region = Region::new(bytes, Rights::all());
            owner.register(RegionId(shard.into()), region).expect("each shard once");
        }
        (!used.is_empty()).then_some((owner, used))
    }
}
