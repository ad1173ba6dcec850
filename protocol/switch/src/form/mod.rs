//! Where the aggregation runs: what becomes of a frame that is only passing through, and whose
//! promises count (design: ordering.md section 6; docs/design/forms.md).
//!
//! The registers, halves, beacons and timeouts are the same in every form.

pub(crate) mod chip;

/// Where the aggregation runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Form {
    /// In the data plane: what every frame promises counts, and every frame that passes is
    /// rewritten (1Pipe section 6.2.1).
    #[default]
    Chip,
    /// On a processor beside a chip that knows nothing of promises: the switch's own, or that of a
    /// host that stands for the switch, its delegate (1Pipe sections 6.2.2 and 6.2.3). Frames pass
    /// as they are and count nowhere; beacons leave at every instant, whether a link is idle or
    /// busy. How far away the processor is, and how long it takes, is the world's affair: what it
    /// says late promises less than it could, never more.
    ///
    /// Whoever hangs on such a switch must have this form, too, or be an [`Form::Edge`].
    OffChip,
    /// A host's virtual switch below a switch of the form [`Form::OffChip`]: a chip towards its
    /// processes; towards the network only beacons count, and frames that leave promise nothing.
    Edge,
}

impl Form {
    /// Whether every frame bears the promise of its link on the upper links, or the lower ones;
    /// else only frames do that speak of their link.
    #[inline]
    pub(crate) fn counts_frames(self, is_upper: bool) -> bool {
        match self {
            Self::Chip => true,
            Self::OffChip => false,
            Self::Edge => !is_upper,
        }
    }
}
