//! Compares all replicas, and repairs what differs.

use std::sync::mpsc::channel;

use onepipe_block::{ErrorCode, Failure};
use onepipe_block_replica::ScrubReport;

use super::ReplicatedBlocks;

impl ReplicatedBlocks {
    /// Compares all blocks of all replicas as of the position that was acknowledged last, and
    /// repairs what differs, in whatever program the replicas are. Takes as long as reading all of
    /// them; other requests go on. `on_progress` is called with the number of blocks that were
    /// compared, and of all.
    ///
    /// # Errors
    /// If the replica of this program ends.
    pub fn scrub_with(
        &self,
        mut on_progress: impl FnMut(u64, u64) + Send + 'static,
    ) -> Result<ScrubReport, Failure> {
        let ended = |reason: &str| Failure::new(ErrorCode::Io, reason.to_string());
        let position = match self.nodes.one() {
            None => self.reads.seen(),
            Some(node) => {
                let (sender, index) = channel();
                // The receiver waits.
                node.read_index(Box::new(move |result| drop(sender.send(result))));
                let index = index.recv().map_err(|_| ended("the replica has ended"))?;
                index.map_err(|reason| ended(&reason))?
            }
        };
        let blocks = self.image.blocks;
        let on_progress = Box::new(move |done| on_progress(done, blocks));
        let report = self.reads.repairer().scrub(position, on_progress);
        let report = report.ok_or_else(|| ended("the device is ending"))?;
        for replica in &report.missing {
            tracing::warn!(replica, "a replica does not answer, and was not scrubbed");
        }
        self.reads.count_scrubbed(&report);
        Ok(report)
    }

    /// As [`ReplicatedBlocks::scrub_with`], without a progress.
    ///
    /// # Errors
    /// As [`ReplicatedBlocks::scrub_with`].
    pub fn scrub(&self) -> Result<ScrubReport, Failure> {
        self.scrub_with(|_, _| {})
    }
}
