//! The chip: aggregation for every packet, in the data plane.

use onepipe_base::{Promises, Timestamp};
use onepipe_wire::{parse_header, rewrite_promises, take_hop};

//= spec/ordering.md#R12
/// Rewrites a passing frame with the promises of its output link. Returns false when its hop limit
/// is used up.
#[inline]
pub(crate) fn pass(frame: &mut [u8], promises: Promises) -> bool {
    let may_pass = take_hop(frame);
    if may_pass {
        rewrite_promises(frame, promises);
    }
    may_pass
}

/// Passes a control frame, whose promises are ignored and stay unchanged. Returns false when its
/// hop limit is used up.
pub(crate) fn pass_control(frame: &mut [u8], reference: Timestamp) -> bool {
    let Ok((header, _)) = parse_header(frame) else { return false };
    let promises = header.promises(reference);
    pass(frame, promises)
}
