//! The end of the controllers' log, as processes remember it.

use onepipe_base::{Incarnation, ProcessId};
use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::DecodeError;

/// Length of a [`DecisionTip`].
pub const DECISION_TIP_LEN: usize = 24;

/// The end of the active controller's log and its epoch. A process receives it in notices, in an
/// [`crate::Opcode::AnnounceAck`] and in an [`crate::Opcode::UndeliverableAck`], and returns it in
/// its announcements, so that a controller whose store went back in time learns of that
/// (`docs/design/failure.md`, "What if the store went back in time?").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DecisionTip {
    /// The controller's epoch, at least 1.
    pub epoch: u32,
    /// Number of failures of processes and recalls in the log.
    pub decided: u32,
    /// Digest of these in their order.
    pub digest: u64,
    /// The replica that is active in the epoch.
    pub replica: ProcessId,
    /// Its incarnation.
    pub incarnation: Incarnation,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Layout {
    epoch: U32,
    replica: U32,
    incarnation: U32,
    decided: U32,
    digest: U64,
}

const _: () = assert!(size_of::<Layout>() == DECISION_TIP_LEN);

impl DecisionTip {
    /// Writes the tip. Returns its length; `None` if it does not fit.
    pub fn write(self, buf: &mut [u8]) -> Option<usize> {
        let layout = Layout {
            epoch: U32::new(self.epoch),
            replica: U32::new(self.replica.0),
            incarnation: U32::new(self.incarnation.0),
            decided: U32::new(self.decided),
            digest: U64::new(self.digest),
        };
        buf.get_mut(..DECISION_TIP_LEN)?.copy_from_slice(layout.as_bytes());
        Some(DECISION_TIP_LEN)
    }

    /// Parses a tip at the start of `bytes`.
    ///
    /// # Errors
    /// If there are too few bytes, or the epoch is 0.
    pub fn parse(bytes: &[u8]) -> Result<Self, DecodeError> {
        let truncated = DecodeError::Truncated {
            part: "decision tip",
            need: DECISION_TIP_LEN,
            got: bytes.len(),
        };
        let (layout, _) = Layout::ref_from_prefix(bytes).map_err(|_| truncated)?;
        if layout.epoch.get() == 0 {
            return Err(DecodeError::Field { field: "epoch of a decision tip", value: 0 });
        }
        Ok(Self {
            epoch: layout.epoch.get(),
            decided: layout.decided.get(),
            digest: layout.digest.get(),
            replica: ProcessId(layout.replica.get()),
            incarnation: Incarnation(layout.incarnation.get()),
        })
    }

    /// Whether a process that knows `self` is to remember `other` instead: more decisions, or as
    /// many in a later epoch. Decisions count more than epochs: each controller that starts on an
    /// older copy of the store begins an epoch there, but a decision that a process knows of is
    /// never taken back. Of two replicas in one epoch, which no store allows, the one that started
    /// first counts.
    pub fn is_before(self, other: Self) -> bool {
        let lineage = |tip: Self| (tip.incarnation, tip.replica);
        if self.epoch == other.epoch && lineage(self) != lineage(other) {
            return lineage(other) < lineage(self);
        }
        (self.decided, self.epoch) < (other.decided, other.epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIP: DecisionTip = DecisionTip {
        epoch: 3,
        decided: 2,
        digest: 1 << 40,
        replica: ProcessId(90),
        incarnation: Incarnation(7),
    };

    #[test]
    fn tip_round_trips_and_refuses_epoch_zero() {
        let mut buf = [0; DECISION_TIP_LEN + 1];
        assert_eq!(TIP.write(&mut buf), Some(DECISION_TIP_LEN));
        assert_eq!(TIP.write(&mut [0; DECISION_TIP_LEN - 1]), None);
        assert_eq!(DecisionTip::parse(&buf), Ok(TIP));
        for bytes in 0..DECISION_TIP_LEN {
            let refused = DecisionTip::parse(&buf[..bytes]);
            assert!(matches!(refused, Err(DecodeError::Truncated { .. })), "{bytes}");
        }
        buf[..4].fill(0);
        assert!(matches!(DecisionTip::parse(&buf), Err(DecodeError::Field { .. })));
    }

    #[test]
    fn first_replica_of_an_epoch_counts() {
        let later = DecisionTip { incarnation: Incarnation(8), decided: 9, ..TIP };
        assert!(later.is_before(TIP) && !TIP.is_before(later) && !TIP.is_before(TIP));
        assert!(TIP.is_before(DecisionTip { decided: 3, ..TIP }));
    }

    /// Found by a soak: three controllers in turn had started on an older copy of the store.
    #[test]
    fn later_epoch_of_an_older_log_does_not_count() {
        let older = DecisionTip { epoch: 6, decided: 1, ..TIP };
        assert!(!TIP.is_before(older) && older.is_before(TIP));
        assert!(TIP.is_before(DecisionTip { epoch: 4, ..TIP }));
    }
}
