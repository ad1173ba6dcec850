//! Floods: updates that the controller sends to all nodes hop by hop, and their acknowledgement.

use onepipe_base::{Cause, Incarnation, Instance, ProcessId, Timestamp};
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::DecodeError;
use crate::announce::{cause_of, expand, with_cause};
use crate::tip::{DECISION_TIP_LEN, DecisionTip};

/// Length of a flood without its entries.
pub const FLOOD_HEADER_LEN: usize = 12;
/// Length of a notice entry.
pub const FAILURE_LEN: usize = 20;
/// Length of a resume entry.
pub const RESOLVED_LEN: usize = 12;
/// Length of a freeze entry.
pub const INSTANCE_LEN: usize = 8;
/// Length of a flood acknowledgement.
pub const FLOOD_ACK_LEN: usize = 12;

/// Identifies a flood. Later floods supersede earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FloodId {
    /// The epoch of the controller that started the flood.
    pub epoch: u32,
    /// Its sequence number in the epoch.
    pub sequence: u32,
}

impl FloodId {
    /// Stands for "not flooded": the id of a freeze that is sent to one neighbour, which neither
    /// forwards nor acknowledges it. It informs a switch that it was declared dead itself.
    pub const HOP_ONLY: Self = Self { epoch: 0, sequence: 0 };

    //= spec/ordering.md#R69
    /// Returns whether no store can have given this epoch to a controller since epoch `last`; 0:
    /// none was seen yet. Epochs do not wrap, so that believing one that jumps would end recovery.
    pub const fn jumps_from(self, last: u32) -> bool {
        last != 0 && self.epoch.saturating_sub(last) > EPOCH_JUMP_MAX
    }
}

/// Maximum number of elections that a node can have missed: those of four hours, at four campaigns
/// a second.
const EPOCH_JUMP_MAX: u32 = 1 << 16;

/// The action that a flood requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FloodKind {
    /// Processes have failed: the entries are [`Failure`]s.
    Notice = 1,
    /// Frozen links are resolved: the entries are [`Resolved`]s.
    Resume = 2,
    /// Links to these instances are dead, even if frames still arrive: the entries are
    /// [`Instance`]s. A node with such a link freezes it at once, ignores that instance, sends
    /// nothing on the link until another instance appears, and acknowledges the flood.
    Freeze = 3,
}

/// Consecutive processes that failed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Failure {
    /// The first process.
    pub first: ProcessId,
    /// Number of processes, at least 1; `first` + `count` is at most 2^31.
    pub count: u32,
    /// All incarnations up to this one have failed.
    pub incarnation: Incarnation,
    /// Failure timestamp: scatterings at or above it are never delivered, all below it are. Does
    /// not change the timestamp of earlier incarnations whose failure was reported before.
    pub at: Timestamp,
    /// Why the processes count as failed.
    pub cause: Cause,
}

impl Failure {
    /// Returns whether the failure includes this incarnation of `process`.
    pub fn covers(&self, process: ProcessId, incarnation: Incarnation) -> bool {
        let offset = process.0.wrapping_sub(self.first.0);
        offset < self.count && incarnation <= self.incarnation
    }
}

/// A frozen link that is resolved, and must hold nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resolved {
    /// The node that froze the link.
    pub owner: Instance,
    /// The node's own number of the failure.
    pub number: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Front {
    epoch: U32,
    sequence: U32,
    kind: u8,
    flags: u8,
    count: U16,
}

/// Flag: a [`DecisionTip`] follows the entries.
const HAS_TIP: u8 = 1;
/// Offset of the flags.
const FLAGS_AT: usize = 9;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct FailureLayout {
    first: U32,
    count: U32,
    incarnation: U32,
    /// The upper 16 bits are no part of the timestamp; the lowest three of the first byte are the
    /// cause.
    at: U64,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ResolvedLayout {
    address: U32,
    incarnation: U32,
    number: U32,
}

/// Process ids lie below this bound ([`onepipe_base::Address`]).
const PROCESSES_MAX: u64 = 1 << 31;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct InstanceLayout {
    address: U32,
    incarnation: U32,
}

const _: () = assert!(size_of::<InstanceLayout>() == INSTANCE_LEN);
const _: () = assert!(size_of::<Front>() == FLOOD_HEADER_LEN);
const _: () = assert!(size_of::<Front>() == FLOOD_ACK_LEN);
const _: () = assert!(size_of::<FailureLayout>() == FAILURE_LEN);
const _: () = assert!(size_of::<ResolvedLayout>() == RESOLVED_LEN);

impl FailureLayout {
    pub(crate) fn new(failure: Failure) -> Self {
        Self {
            first: U32::new(failure.first.0),
            count: U32::new(failure.count),
            incarnation: U32::new(failure.incarnation.0),
            at: U64::new(with_cause(failure.at, failure.cause)),
        }
    }

    /// Checks that the processes exist: afterwards `first` + `count` cannot overflow.
    pub(crate) fn check(&self) -> Result<(), DecodeError> {
        let (first, count) = (self.first.get(), self.count.get());
        let end = u64::from(first) + u64::from(count);
        match count {
            0 => Err(DecodeError::Field { field: "failed processes", value: 0 }),
            _ if end > PROCESSES_MAX => {
                Err(DecodeError::Field { field: "end of failed processes", value: end })
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn read(&self, near: Timestamp) -> Failure {
        Failure {
            first: ProcessId(self.first.get()),
            count: self.count.get(),
            incarnation: Incarnation(self.incarnation.get()),
            at: expand(self.at.get(), near),
            cause: cause_of(self.at.get()),
        }
    }
}

impl ResolvedLayout {
    fn new(resolved: Resolved) -> Self {
        let (address, incarnation) = Instance::to_words(Some(resolved.owner));
        let number = U32::new(resolved.number);
        Self { address: U32::new(address), incarnation: U32::new(incarnation), number }
    }

    fn read(&self) -> Result<Resolved, DecodeError> {
        let (address, number) = (self.address.get(), self.number.get());
        let owner = Instance::from_words(address, self.incarnation.get());
        let missing = DecodeError::Field { field: "owner of a link", value: address.into() };
        owner.map(|owner| Resolved { owner, number }).ok_or(missing)
    }
}

impl InstanceLayout {
    fn new(instance: Instance) -> Self {
        let (address, incarnation) = Instance::to_words(Some(instance));
        Self { address: U32::new(address), incarnation: U32::new(incarnation) }
    }

    fn read(&self) -> Result<Instance, DecodeError> {
        let address = self.address.get();
        let value = u64::from(address);
        Instance::from_words(address, self.incarnation.get())
            .ok_or(DecodeError::Field { field: "address of a dead instance", value })
    }
}

/// Writes the payloads of floods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flood {
    /// Identifies the flood.
    pub id: FloodId,
}

impl Flood {
    /// Writes a notice with as many of `failures` as fit. Returns their number and the length;
    /// `None` if not even the header fits.
    pub fn write_notice(
        &self,
        buf: &mut [u8],
        failures: impl Iterator<Item = Failure>,
    ) -> Option<(u16, usize)> {
        let layouts = failures.map(FailureLayout::new);
        write(buf, self.id, FloodKind::Notice, layouts)
    }

    /// Writes a resume with as many of `resolved` as fit. Returns their number and the length;
    /// `None` if not even the header fits.
    pub fn write_resume(
        &self,
        buf: &mut [u8],
        resolved: impl Iterator<Item = Resolved>,
    ) -> Option<(u16, usize)> {
        let layouts = resolved.map(ResolvedLayout::new);
        write(buf, self.id, FloodKind::Resume, layouts)
    }

    /// Writes a freeze with as many of `instances` as fit. Returns their number and the length;
    /// `None` if not even the header fits.
    pub fn write_freeze(
        &self,
        buf: &mut [u8],
        instances: impl Iterator<Item = Instance>,
    ) -> Option<(u16, usize)> {
        let layouts = instances.map(InstanceLayout::new);
        write(buf, self.id, FloodKind::Freeze, layouts)
    }
}

impl DecisionTip {
    /// Appends this tip to a flood of `len` bytes at the start of `buf`. Returns the new length;
    /// `None` if the tip does not fit.
    pub fn append_to_flood(self, buf: &mut [u8], len: usize) -> Option<usize> {
        self.write(buf.get_mut(len..)?)?;
        *buf.get_mut(FLAGS_AT)? |= HAS_TIP;
        Some(len + DECISION_TIP_LEN)
    }
}

fn write<T: IntoBytes + Immutable>(
    buf: &mut [u8],
    id: FloodId,
    kind: FloodKind,
    entries: impl Iterator<Item = T>,
) -> Option<(u16, usize)> {
    let (front, rest) = buf.split_at_mut_checked(FLOOD_HEADER_LEN)?;
    let mut count = 0u16;
    let slots = rest.chunks_exact_mut(size_of::<T>()).take(u16::MAX.into());
    for (slot, entry) in slots.zip(entries) {
        slot.copy_from_slice(entry.as_bytes());
        count += 1;
    }
    front.copy_from_slice(Front::new(id, kind, count).as_bytes());
    Some((count, FLOOD_HEADER_LEN + usize::from(count) * size_of::<T>()))
}

impl Front {
    fn new(id: FloodId, kind: FloodKind, count: u16) -> Self {
        Self {
            epoch: U32::new(id.epoch),
            sequence: U32::new(id.sequence),
            kind: kind as u8,
            flags: 0,
            count: U16::new(count),
        }
    }

    fn id(&self) -> FloodId {
        FloodId { epoch: self.epoch.get(), sequence: self.sequence.get() }
    }

    fn kind(&self) -> Result<FloodKind, DecodeError> {
        match self.kind {
            1 => Ok(FloodKind::Notice),
            2 => Ok(FloodKind::Resume),
            3 => Ok(FloodKind::Freeze),
            other => Err(DecodeError::Field { field: "kind of flood", value: other.into() }),
        }
    }
}

/// A parsed flood, with its entries borrowed from the payload.
#[derive(Clone, Copy, Debug)]
pub struct FloodView<'a> {
    /// Identifies the flood.
    pub id: FloodId,
    /// The requested action.
    pub kind: FloodKind,
    /// The end of the controllers' log, in a notice of a controller that has one.
    pub tip: Option<DecisionTip>,
    failures: &'a [FailureLayout],
    resolved: &'a [ResolvedLayout],
    dead: &'a [InstanceLayout],
}

impl<'a> FloodView<'a> {
    /// Parses the payload of a frame with opcode [`crate::Opcode::Flood`] or
    /// [`crate::Opcode::Notice`].
    ///
    /// # Errors
    /// If it is shorter than it claims, or an entry is invalid.
    pub fn parse(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let truncated = |need| DecodeError::Truncated { part: "flood", need, got: payload.len() };
        let (front, rest) =
            Front::ref_from_prefix(payload).map_err(|_| truncated(FLOOD_HEADER_LEN))?;
        let count = usize::from(front.count.get());
        let (id, kind) = (front.id(), front.kind()?);
        let mut view = Self { id, kind, tip: None, failures: &[], resolved: &[], dead: &[] };
        let entries_len = match view.kind {
            FloodKind::Notice => {
                let entries = <[FailureLayout]>::ref_from_prefix_with_elems(rest, count);
                let need = FLOOD_HEADER_LEN + count * FAILURE_LEN;
                view.failures = entries.map_err(|_| truncated(need))?.0;
                view.failures.iter().try_for_each(FailureLayout::check)?;
                count * FAILURE_LEN
            }
            FloodKind::Resume => {
                let entries = <[ResolvedLayout]>::ref_from_prefix_with_elems(rest, count);
                let need = FLOOD_HEADER_LEN + count * RESOLVED_LEN;
                view.resolved = entries.map_err(|_| truncated(need))?.0;
                view.resolved.iter().try_for_each(|resolved| resolved.read().map(drop))?;
                count * RESOLVED_LEN
            }
            FloodKind::Freeze => {
                let entries = <[InstanceLayout]>::ref_from_prefix_with_elems(rest, count);
                let need = FLOOD_HEADER_LEN + count * INSTANCE_LEN;
                view.dead = entries.map_err(|_| truncated(need))?.0;
                view.dead.iter().try_for_each(|instance| instance.read().map(drop))?;
                count * INSTANCE_LEN
            }
        };
        if front.flags & HAS_TIP != 0 {
            view.tip = Some(DecisionTip::parse(&rest[entries_len..])?);
        }
        Ok(view)
    }

    /// Returns the failures of a notice, expanded against `near`; none for other kinds.
    pub fn failures(&self, near: Timestamp) -> impl ExactSizeIterator<Item = Failure> + 'a {
        self.failures.iter().map(move |failure| failure.read(near))
    }

    /// Returns the resolved links of a resume; none for other kinds.
    pub fn resolved(&self) -> impl Iterator<Item = Resolved> + 'a {
        self.resolved.iter().filter_map(|resolved| resolved.read().ok())
    }

    /// Returns the dead instances of a freeze; none for other kinds.
    pub fn dead(&self) -> impl Iterator<Item = Instance> + 'a {
        self.dead.iter().filter_map(|instance| instance.read().ok())
    }
}

/// Acknowledges a flood: all nodes behind the sender have carried it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FloodAck {
    /// Identifies the flood.
    pub id: FloodId,
    /// The action that was carried out.
    pub kind: FloodKind,
}

impl FloodAck {
    /// Writes the payload. Returns its length, or `None` if `buf` is too small.
    pub fn write(&self, buf: &mut [u8]) -> Option<usize> {
        let layout = Front::new(self.id, self.kind, 0);
        buf.get_mut(..FLOOD_ACK_LEN)?.copy_from_slice(layout.as_bytes());
        Some(FLOOD_ACK_LEN)
    }

    /// Parses the payload of a frame with opcode [`crate::Opcode::FloodAck`] or
    /// [`crate::Opcode::Completed`].
    ///
    /// # Errors
    /// If it is too short, or of an unknown kind.
    pub fn parse(payload: &[u8]) -> Result<Self, DecodeError> {
        let Ok((front, _)) = Front::ref_from_prefix(payload) else {
            let (need, got) = (FLOOD_ACK_LEN, payload.len());
            return Err(DecodeError::Truncated { part: "flood acknowledgement", need, got });
        };
        Ok(Self { id: front.id(), kind: front.kind()? })
    }
}

#[cfg(test)]
mod tests {
    extern crate alloc;

    use super::*;
    use alloc::vec::Vec;
    use onepipe_base::{Address, SwitchId};

    const ID: FloodId = FloodId { epoch: 3, sequence: 9 };

    fn failures() -> [Failure; 2] {
        let at = Timestamp::from_ns((1 << 48) + 77);
        let incarnation = Incarnation(4);
        [
            Failure { first: ProcessId(16), count: 16, incarnation, at, cause: Cause::Left },
            Failure { first: ProcessId(40), count: 1, incarnation, at, cause: Cause::Unknown },
        ]
    }

    #[test]
    fn notice_round_trips() {
        let mut buf = [0; 200];
        let (count, bytes) =
            Flood { id: ID }.write_notice(&mut buf, failures().into_iter()).expect("fits");
        assert_eq!((count, bytes), (2, FLOOD_HEADER_LEN + 2 * FAILURE_LEN));
        let view = FloodView::parse(&buf[..bytes]).expect("just written");
        assert_eq!((view.id, view.kind), (ID, FloodKind::Notice));
        let near = Timestamp::from_ns(1 << 48);
        assert_eq!(view.failures(near).collect::<Vec<_>>(), failures());
        assert_eq!(view.resolved().count(), 0);
        for short in 0..bytes {
            assert!(FloodView::parse(&buf[..short]).is_err());
        }
    }

    #[test]
    fn resume_writes_as_many_entries_as_fit() {
        let owner = Instance { address: Address::Switch(SwitchId(5)), incarnation: Incarnation(1) };
        let resolved = [1, 2, 3].map(|number| Resolved { owner, number });
        let mut buf = [0; FLOOD_HEADER_LEN + 2 * RESOLVED_LEN + 3];
        let (count, bytes) =
            Flood { id: ID }.write_resume(&mut buf, resolved.into_iter()).expect("fits");
        assert_eq!(count, 2);
        let view = FloodView::parse(&buf[..bytes]).expect("just written");
        assert_eq!(view.resolved().collect::<Vec<_>>(), resolved[..2]);
        assert_eq!(view.failures(Timestamp::from_ns(0)).len(), 0);
    }

    #[test]
    fn freeze_round_trips() {
        let instance = |switch| Instance {
            address: Address::Switch(SwitchId(switch)),
            incarnation: Incarnation(switch + 1),
        };
        let mut buf = [0; FLOOD_HEADER_LEN + 2 * INSTANCE_LEN];
        let instances = [4, 5].map(instance);
        let written = Flood { id: ID }.write_freeze(&mut buf, instances.into_iter());
        let (count, bytes) = written.expect("fits");
        assert_eq!((count, bytes), (2, buf.len()));
        let view = FloodView::parse(&buf).expect("just written");
        assert_eq!(
            (view.kind, view.dead().collect::<Vec<_>>()),
            (FloodKind::Freeze, instances.into())
        );
        assert_eq!((view.resolved().count(), view.failures(Timestamp::from_ns(0)).len()), (0, 0));
        for short in 0..bytes {
            assert!(FloodView::parse(&buf[..short]).is_err());
        }
    }

    #[test]
    fn failure_covers_incarnations_up_to_its_own() {
        let failure = failures()[0];
        let covers =
            |process, incarnation| failure.covers(ProcessId(process), Incarnation(incarnation));
        assert!(covers(16, 4) && covers(31, 0));
        assert!(!covers(15, 4) && !covers(32, 4) && !covers(16, 5));
    }

    #[test]
    fn refuses_invalid_entries() {
        let mut buf = [0; 200];
        let missing = Failure { count: 0, ..failures()[0] };
        let (_, bytes) =
            Flood { id: ID }.write_notice(&mut buf, [missing].into_iter()).expect("fits");
        assert!(FloodView::parse(&buf[..bytes]).is_err());
        buf[8] = 7;
        assert!(FloodView::parse(&buf[..bytes]).is_err() && FloodAck::parse(&buf).is_err());
    }

    #[test]
    fn flood_ack_round_trips() {
        let ack = FloodAck { id: ID, kind: FloodKind::Resume };
        let mut buf = [0; FLOOD_ACK_LEN];
        assert_eq!(ack.write(&mut buf), Some(FLOOD_ACK_LEN));
        assert_eq!(FloodAck::parse(&buf), Ok(ack));
        assert!(FloodAck::parse(&buf[1..]).is_err() && ack.write(&mut buf[1..]).is_none());
    }
}
