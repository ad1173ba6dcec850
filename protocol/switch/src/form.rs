//! Forms of in-network processing: what happens to a passing frame, and whose promises count
//! (`docs/design/forms.md`).
//!
//! The registers, aggregators, beacons and timeouts are the same in every form.

/// Where aggregation runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Form {
    /// In the data plane: the promise of every frame counts, and every passing frame is rewritten
    /// (1Pipe section 6.2.1).
    #[default]
    Chip,
    /// On a processor next to a chip that knows nothing of promises: the switch's own CPU, or that
    /// of a host that represents the switch, its delegate (1Pipe sections 6.2.2 and 6.2.3). Frames
    /// pass unchanged and do not count; beacons leave at every instant, whether a link is idle or
    /// busy. The distance and the delay of the processor are up to the caller: a late beacon
    /// promises less than it could, never more.
    ///
    /// Neighbours of such a switch must have this form as well, or be an [`Form::Edge`].
    OffChip,
    /// A host's virtual switch below a switch of the form [`Form::OffChip`]: a chip towards its
    /// processes. Towards the network only beacons count, and departing frames promise nothing.
    Edge,
}

impl Form {
    //= spec/ordering.md#R12
    /// Whether every frame on the upper links, or on the lower ones, carries the promise of its
    /// link; otherwise only hop-only frames do.
    #[inline]
    pub(crate) fn counts_frames(self, is_upper: bool) -> bool {
        match self {
            Self::Chip => true,
            Self::OffChip => false,
            Self::Edge => !is_upper,
        }
    }
}
