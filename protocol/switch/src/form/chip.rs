//! The chip: aggregation for every packet, in the data plane.

use onepipe_base::Promises;
use onepipe_wire::{rewrite_promises, take_hop};

/// Makes a passing frame say what its output link is told. Answers false when it has passed too
/// many switches.
#[inline]
pub(crate) fn pass(frame: &mut [u8], promises: Promises) -> bool {
    let may_pass = take_hop(frame);
    if may_pass {
        rewrite_promises(frame, promises);
    }
    may_pass
}
