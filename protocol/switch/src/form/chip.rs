//! The chip: aggregation for every packet, in the data plane.

use onepipe_base::{Promises, Timestamp};
use onepipe_wire::{parse_header, rewrite_promises, take_hop};

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

/// Lets a frame pass that speaks of links: its promises count nowhere and stay as they are.
/// Answers false when it has passed too many switches.
pub(crate) fn pass_control(frame: &mut [u8], reference: Timestamp) -> bool {
    let Ok((header, _)) = parse_header(frame) else { return false };
    let promises = header.promises(reference);
    pass(frame, promises)
}
