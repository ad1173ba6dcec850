//! Stops a replica, and starts it again, while the device goes on.

use std::sync::{MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use onepipe_log_server::{Cluster, LogHandle, NodeError};

use super::ReplicatedBlocks;
use super::nodes::{Nodes, open_state};
use super::replace::ReplaceError;

/// Pause between two looks at a replica that catches up.
const PAUSE: Duration = Duration::from_millis(10);
/// Time that another replica has to apply what was acknowledged.
const OTHER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time without progress after which a replica that catches up is given up.
const TIMEOUT: Duration = Duration::from_secs(60);

impl ReplicatedBlocks {
    /// Stops a replica, whose files stay. Other requests go on, with a pause while it leaves.
    ///
    /// # Errors
    /// If no other replica has all that was acknowledged.
    pub fn stop(&self, replica: u32) -> Result<(), ReplaceError> {
        self.stop_node(replica).map(drop)
    }

    /// Starts a replica that was stopped, or has ended since its disk was full, with the files that
    /// it has. Returns when it has what was acknowledged before the call.
    ///
    /// # Errors
    /// As [`ReplicatedBlocks::stop`], or if the replica does not start.
    pub fn start(&self, replica: u32) -> Result<(), ReplaceError> {
        let cluster = self.stop_node(replica)?;
        self.start_node(cluster, replica)
    }

    /// Stops a replica, unless it is stopped. Until the returned guard is dropped no other caller
    /// starts or stops one.
    pub(super) fn stop_node(&self, replica: u32) -> Result<MutexGuard<'_, Cluster>, ReplaceError> {
        let last = u32::from(self.replicas) - 1;
        if replica > last {
            return Err(ReplaceError::Unknown { replica, last });
        }
        let Nodes::All(cluster) = &self.nodes else { return Err(ReplaceError::Program) };
        let mut cluster = cluster.lock().unwrap_or_else(PoisonError::into_inner);
        self.wait_for_other(replica, self.reads.seen())?;
        self.appends.pause_with(self.nodes_without(replica));
        cluster.stop(replica);
        self.appends.resume();
        Ok(cluster)
    }

    /// Starts a replica that is stopped, and waits until it has what is acknowledged.
    pub(super) fn start_node(
        &self,
        mut cluster: MutexGuard<'_, Cluster>,
        replica: u32,
    ) -> Result<(), ReplaceError> {
        let wanted = self.reads.seen();
        let state = open_state(&self.path, self.image, (replica, &self.reads));
        let node = cluster.restart(replica, state.map_err(NodeError::State)?)?;
        self.appends.add_node(replica, node);
        drop(cluster);
        self.wait_for(replica, wanted)
    }

    /// Waits until another replica has applied a position.
    fn wait_for_other(&self, replica: u32, wanted: u64) -> Result<(), ReplaceError> {
        let deadline = Instant::now() + OTHER_TIMEOUT;
        let others = || (0..u32::from(self.replicas)).filter(|other| *other != replica);
        while !others().any(|other| self.reads.progress(other as usize).0 >= wanted) {
            if Instant::now() >= deadline {
                return Err(ReplaceError::Last);
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Waits until a replica has applied a position.
    fn wait_for(&self, replica: u32, wanted: u64) -> Result<(), ReplaceError> {
        let (mut before, mut deadline) = (0, Instant::now() + TIMEOUT);
        loop {
            let (applied, copied) = self.reads.progress(replica as usize);
            if applied >= wanted {
                return Ok(());
            }
            if let Some(reason) = self.replica_ended(replica) {
                return Err(ReplaceError::Ended(reason));
            }
            if applied + copied != before {
                (before, deadline) = (applied + copied, Instant::now() + TIMEOUT);
            }
            if Instant::now() >= deadline {
                return Err(ReplaceError::Stuck { applied, wanted });
            }
            thread::sleep(PAUSE);
        }
    }

    /// Returns the nodes of the other replicas.
    fn nodes_without(&self, replica: u32) -> Vec<(u32, LogHandle)> {
        let nodes = self.appends.nodes();
        nodes.into_iter().filter(|(number, _)| *number != replica).collect()
    }
}
