//! The latest epoch of each group, as a bound of what is believed.

use alloc::vec;
use alloc::vec::Vec;

use onepipe_wire::GroupId;

/// Maximum number of elections that a process can have missed: those of five minutes with one in
/// every `leader_timeout_ns` (default 5 ms). Epochs do not wrap, so the last one ends elections.
pub(crate) const EPOCH_JUMP_MAX: u32 = 1 << 16;
const _: () = assert!(EPOCH_JUMP_MAX > 0, "an election is no jump");

/// The latest epoch of each group in any packet that counted. All groups begin in epoch 1.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LatestEpochs(Vec<u32>);

impl LatestEpochs {
    pub fn new(groups: usize) -> Self {
        Self(vec![1; groups])
    }

    //= spec/amcast.md#R37
    /// Returns whether `group` can be in `epoch`, and remembers it. Unknown groups have none.
    pub fn admits(&mut self, group: GroupId, epoch: u32) -> bool {
        let Some(latest) = self.0.get_mut(group.index()) else { return true };
        if jumps(*latest, epoch) {
            return false;
        }
        *latest = epoch.max(*latest);
        debug_assert!(*latest >= epoch, "epochs never go back");
        true
    }
}

/// Returns whether no election can have led from epoch `latest` to `epoch`.
pub(crate) fn jumps(latest: u32, epoch: u32) -> bool {
    epoch.saturating_sub(latest) > EPOCH_JUMP_MAX
}
