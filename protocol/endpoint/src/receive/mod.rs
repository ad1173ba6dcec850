//! From a frame to a message that waits for its barrier.

/// Where a message lies in the receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub segment: u32,
    pub offset: u32,
}
