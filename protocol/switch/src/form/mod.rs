//! Where the aggregation runs: what becomes of a frame that is only passing through.
//!
//! The registers, halves, beacons and timeouts are the same in every form (design: ordering.md
//! section 6). The chip rewrites the promises of every frame. The forms to come, a switch's CPU
//! and a host's delegate, leave passing frames alone and send beacons on busy links, too: each of
//! them gets a file of its own here.

pub(crate) mod chip;
