//! The operations of a cluster that a measurement needs, for all protocols.

use onepipe_base::ProcessId;
use onepipe_sim_network::HopKind;
use onepipe_transaction::State;

use crate::cluster::Cluster;
use crate::environment::Environment;
use crate::load::Load;
use crate::setup::Setup;
use crate::usage::Sent;

/// A cluster that can be measured.
pub(crate) trait Measured {
    /// State of a shard.
    type State;
    /// What the clients do.
    type Load;

    /// Runs for `ns` ns of virtual time.
    fn run_ns(&mut self, ns: u64);

    /// Returns virtual time in ns.
    fn now_ns(&self) -> u64;

    /// Returns the setup.
    fn setup(&self) -> &Setup;

    /// Returns the load.
    fn load(&self) -> &Self::Load;

    /// Returns the load for changes.
    fn load_mut(&mut self) -> &mut Self::Load;

    /// Returns the number of frames over links.
    fn hops(&self) -> u64;

    /// Returns what a process has sent.
    fn sent(&self, process: ProcessId) -> Sent;

    /// Returns the bytes that have entered each link from or to a host.
    fn host_link_bytes(&self) -> Vec<[u64; HopKind::ALL.len()]>;

    /// Lets each link that leads to a host lose this share of its frames, in parts per billion.
    fn lose_at_hosts(&mut self, loss_ppb: u32);

    /// Returns the number of transactions in flight.
    fn in_flight(&self) -> usize;

    /// Returns the state of the replica of a process, if it has one.
    fn state(&self, process: ProcessId) -> Option<&Self::State>;

    /// Returns what is wrong with clients and replicas after all transactions have ended.
    fn violations(&self) -> Vec<String>;
}

impl<S: State, L: Load<S>> Measured for Cluster<S, L> {
    type State = S;
    type Load = L;

    fn run_ns(&mut self, ns: u64) {
        Environment::run_ns(self, ns);
    }

    fn now_ns(&self) -> u64 {
        Environment::now_ns(self)
    }

    fn setup(&self) -> &Setup {
        Cluster::setup(self)
    }

    fn load(&self) -> &L {
        Cluster::load(self)
    }

    fn load_mut(&mut self) -> &mut L {
        Cluster::load_mut(self)
    }

    fn hops(&self) -> u64 {
        self.network_stats().hops
    }

    fn sent(&self, process: ProcessId) -> Sent {
        Environment::sent(self, process)
    }

    fn host_link_bytes(&self) -> Vec<[u64; HopKind::ALL.len()]> {
        Environment::host_link_bytes(self)
    }

    fn lose_at_hosts(&mut self, loss_ppb: u32) {
        Environment::lose_at_hosts(self, loss_ppb);
    }

    fn in_flight(&self) -> usize {
        Environment::in_flight(self)
    }

    fn state(&self, process: ProcessId) -> Option<&S> {
        self.replica(process).map(|replica| replica.state())
    }

    fn violations(&self) -> Vec<String> {
        let stats = |id: u32| Some((id, self.client(ProcessId(id))?.stats()));
        let stats = (0..Cluster::setup(self).processes).filter_map(stats);
        let wrong = stats.filter(|(_, stats)| stats.disagreements + stats.malformed > 0);
        wrong.map(|(id, stats)| format!("client {id}: {stats:?}")).collect()
    }
}
