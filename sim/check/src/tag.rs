//! Tags that identify scatterings.

/// Identifies a scattering among those of one process id and service by incarnation and number. The
/// tag travels in the payload, so that a delivery can be attributed to its scattering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag {
    /// Incarnation of the sender, counted from 0.
    pub incarnation: u32,
    /// Number of the scattering in this incarnation, counted from 0.
    pub scattering: u64,
}
