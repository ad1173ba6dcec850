//! News on its way through all nodes, and its echo.

use onepipe_base::{Incarnation, Life, ProcessId, Timestamp};
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::DecodeError;
use crate::announce::expand;

/// Octets of a wave before its entries.
pub const WAVE_HEADER_OCTETS: usize = 12;
/// Octets of one entry of a notice.
pub const FAILURE_OCTETS: usize = 20;
/// Octets of one entry of a resume.
pub const RESOLVED_OCTETS: usize = 12;
/// Octets of one entry of a freeze.
pub const LIFE_OCTETS: usize = 8;
/// Octets of an echo.
pub const ECHO_OCTETS: usize = 12;

/// Which wave: the controller's epoch, and its number in it. Later ones supersede earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaveId {
    /// The epoch of the controller that has sent it.
    pub epoch: u32,
    /// Its number in the epoch.
    pub sequence: u32,
}

impl WaveId {
    /// Of no wave: said to one neighbour, who neither passes it on nor answers. A freeze that tells
    /// a switch that it was declared dead itself.
    pub const ASIDE: Self = Self { epoch: 0, sequence: 0 };
}

/// What a wave asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum WaveKind {
    /// Processes have failed: its entries are [`Failure`]s.
    Notice = 1,
    /// Frozen links are resolved: its entries are [`Resolved`]s.
    Resume = 2,
    /// Links to these lives are dead, even if they are heard: its entries are [`Life`]s. Whoever
    /// has such a link freezes it at once, hears that life there no more, says nothing there until
    /// it hears another, and answers the wave.
    Freeze = 3,
}

/// Processes that failed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Failure {
    /// The first of them.
    pub first: ProcessId,
    /// How many follow each other, at least 1. With `first` it adds to 2^31 at most.
    pub count: u32,
    /// Every life up to this one has failed.
    pub incarnation: Incarnation,
    /// When: what they have scattered at or above this is never delivered, all below it is. Of a
    /// former life of which was told earlier, what was told then stands.
    pub at: Timestamp,
}

impl Failure {
    /// Whether this life of `process` is among them.
    pub fn covers(&self, process: ProcessId, incarnation: Incarnation) -> bool {
        let place = process.0.wrapping_sub(self.first.0);
        place < self.count && incarnation <= self.incarnation
    }
}

/// A frozen link that holds nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resolved {
    /// Whose link.
    pub owner: Life,
    /// The owner's number of the death.
    pub number: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Front {
    epoch: U32,
    sequence: U32,
    kind: u8,
    reserved: u8,
    count: U16,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct FailureLayout {
    first: U32,
    count: U32,
    incarnation: U32,
    at: U64,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ResolvedLayout {
    address: U32,
    incarnation: U32,
    number: U32,
}

/// More ids of processes there are not ([`onepipe_base::Address`]).
const PROCESSES_MAX: u64 = 1 << 31;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct LifeLayout {
    address: U32,
    incarnation: U32,
}

const _: () = assert!(size_of::<LifeLayout>() == LIFE_OCTETS);
const _: () = assert!(size_of::<Front>() == WAVE_HEADER_OCTETS);
const _: () = assert!(size_of::<Front>() == ECHO_OCTETS);
const _: () = assert!(size_of::<FailureLayout>() == FAILURE_OCTETS);
const _: () = assert!(size_of::<ResolvedLayout>() == RESOLVED_OCTETS);

impl FailureLayout {
    pub(crate) fn new(failure: Failure) -> Self {
        Self {
            first: U32::new(failure.first.0),
            count: U32::new(failure.count),
            incarnation: U32::new(failure.incarnation.0),
            at: U64::new(failure.at.to_wire().bits()),
        }
    }

    /// Whether the processes exist: ids lie below 2^31, so who has checked may add.
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
        }
    }
}

impl ResolvedLayout {
    fn new(resolved: Resolved) -> Self {
        let (address, incarnation) = Life::to_words(Some(resolved.owner));
        let number = U32::new(resolved.number);
        Self { address: U32::new(address), incarnation: U32::new(incarnation), number }
    }

    fn read(&self) -> Result<Resolved, DecodeError> {
        let (address, number) = (self.address.get(), self.number.get());
        let owner = Life::from_words((address, self.incarnation.get()));
        let nobody = DecodeError::Field { field: "owner of a link", value: address.into() };
        owner.map(|owner| Resolved { owner, number }).ok_or(nobody)
    }
}

impl LifeLayout {
    fn new(life: Life) -> Self {
        let (address, incarnation) = Life::to_words(Some(life));
        Self { address: U32::new(address), incarnation: U32::new(incarnation) }
    }

    fn read(&self) -> Result<Life, DecodeError> {
        let words = (self.address.get(), self.incarnation.get());
        let value = u64::from(words.0);
        Life::from_words(words).ok_or(DecodeError::Field { field: "address of a life", value })
    }
}

/// Writes waves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wave {
    /// Which.
    pub id: WaveId,
}

impl Wave {
    /// Writes a notice of as many of `failures` as fit. Answers how many, and the octets used;
    /// `None` when not even the front fits.
    pub fn write_notice(
        &self,
        room: &mut [u8],
        failures: impl Iterator<Item = Failure>,
    ) -> Option<(u16, usize)> {
        let layouts = failures.map(FailureLayout::new);
        write(room, self.id, WaveKind::Notice, layouts)
    }

    /// Writes a resume of as many of `resolved` as fit. Answers how many, and the octets used;
    /// `None` when not even the front fits.
    pub fn write_resume(
        &self,
        room: &mut [u8],
        resolved: impl Iterator<Item = Resolved>,
    ) -> Option<(u16, usize)> {
        let layouts = resolved.map(ResolvedLayout::new);
        write(room, self.id, WaveKind::Resume, layouts)
    }

    /// Writes a freeze of as many of `lives` as fit. Answers how many, and the octets used; `None`
    /// when not even the front fits.
    pub fn write_freeze(
        &self,
        room: &mut [u8],
        lives: impl Iterator<Item = Life>,
    ) -> Option<(u16, usize)> {
        let layouts = lives.map(LifeLayout::new);
        write(room, self.id, WaveKind::Freeze, layouts)
    }
}

fn write<T: IntoBytes + Immutable>(
    room: &mut [u8],
    id: WaveId,
    kind: WaveKind,
    entries: impl Iterator<Item = T>,
) -> Option<(u16, usize)> {
    let (front, rest) = room.split_at_mut_checked(WAVE_HEADER_OCTETS)?;
    let mut count = 0u16;
    let places = rest.chunks_exact_mut(size_of::<T>()).take(u16::MAX.into());
    for (place, entry) in places.zip(entries) {
        place.copy_from_slice(entry.as_bytes());
        count += 1;
    }
    front.copy_from_slice(Front::new(id, kind, count).as_bytes());
    Some((count, WAVE_HEADER_OCTETS + usize::from(count) * size_of::<T>()))
}

impl Front {
    fn new(id: WaveId, kind: WaveKind, count: u16) -> Self {
        Self {
            epoch: U32::new(id.epoch),
            sequence: U32::new(id.sequence),
            kind: kind as u8,
            reserved: 0,
            count: U16::new(count),
        }
    }

    fn id(&self) -> WaveId {
        WaveId { epoch: self.epoch.get(), sequence: self.sequence.get() }
    }

    fn kind(&self) -> Result<WaveKind, DecodeError> {
        match self.kind {
            1 => Ok(WaveKind::Notice),
            2 => Ok(WaveKind::Resume),
            3 => Ok(WaveKind::Freeze),
            other => Err(DecodeError::Field { field: "kind of wave", value: other.into() }),
        }
    }
}

/// A wave read from a payload, its entries still in place.
#[derive(Clone, Copy, Debug)]
pub struct WaveView<'a> {
    /// Which.
    pub id: WaveId,
    /// What it asks for.
    pub kind: WaveKind,
    failures: &'a [FailureLayout],
    resolved: &'a [ResolvedLayout],
    dead: &'a [LifeLayout],
}

impl<'a> WaveView<'a> {
    /// Reads the payload of a frame with opcode [`crate::Opcode::Wave`] or
    /// [`crate::Opcode::Notice`].
    ///
    /// # Errors
    /// When it is too short for what it announces, or an entry makes no sense.
    pub fn parse(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let truncated = |need| DecodeError::Truncated { part: "wave", need, got: payload.len() };
        let (front, rest) =
            Front::ref_from_prefix(payload).map_err(|_| truncated(WAVE_HEADER_OCTETS))?;
        let count = usize::from(front.count.get());
        let (id, kind) = (front.id(), front.kind()?);
        let mut view = Self { id, kind, failures: &[], resolved: &[], dead: &[] };
        match view.kind {
            WaveKind::Notice => {
                let entries = <[FailureLayout]>::ref_from_prefix_with_elems(rest, count);
                let need = WAVE_HEADER_OCTETS + count * FAILURE_OCTETS;
                view.failures = entries.map_err(|_| truncated(need))?.0;
                view.failures.iter().try_for_each(FailureLayout::check)?;
            }
            WaveKind::Resume => {
                let entries = <[ResolvedLayout]>::ref_from_prefix_with_elems(rest, count);
                let need = WAVE_HEADER_OCTETS + count * RESOLVED_OCTETS;
                view.resolved = entries.map_err(|_| truncated(need))?.0;
                view.resolved.iter().try_for_each(|resolved| resolved.read().map(drop))?;
            }
            WaveKind::Freeze => {
                let entries = <[LifeLayout]>::ref_from_prefix_with_elems(rest, count);
                let need = WAVE_HEADER_OCTETS + count * LIFE_OCTETS;
                view.dead = entries.map_err(|_| truncated(need))?.0;
                view.dead.iter().try_for_each(|life| life.read().map(drop))?;
            }
        }
        Ok(view)
    }

    /// The failures of a notice, expanded against `near`; none of any other wave.
    pub fn failures(&self, near: Timestamp) -> impl ExactSizeIterator<Item = Failure> + 'a {
        self.failures.iter().map(move |failure| failure.read(near))
    }

    /// The resolved links of a resume; none of any other wave.
    pub fn resolved(&self) -> impl Iterator<Item = Resolved> + 'a {
        self.resolved.iter().filter_map(|resolved| resolved.read().ok())
    }

    /// The lives of a freeze; none of any other wave.
    pub fn dead(&self) -> impl Iterator<Item = Life> + 'a {
        self.dead.iter().filter_map(|life| life.read().ok())
    }
}

/// "Everybody behind me has done what the wave asks."
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Echo {
    /// Which wave.
    pub id: WaveId,
    /// What it asked for.
    pub kind: WaveKind,
}

impl Echo {
    /// Writes the payload. Answers the octets used, or `None` when `room` is too small.
    pub fn write(&self, room: &mut [u8]) -> Option<usize> {
        let layout = Front::new(self.id, self.kind, 0);
        room.get_mut(..ECHO_OCTETS)?.copy_from_slice(layout.as_bytes());
        Some(ECHO_OCTETS)
    }

    /// Reads the payload of a frame with opcode [`crate::Opcode::Echo`] or
    /// [`crate::Opcode::Completed`].
    ///
    /// # Errors
    /// When it is too short, or of an unknown kind.
    pub fn parse(payload: &[u8]) -> Result<Self, DecodeError> {
        let Ok((front, _)) = Front::ref_from_prefix(payload) else {
            let (need, got) = (ECHO_OCTETS, payload.len());
            return Err(DecodeError::Truncated { part: "echo", need, got });
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

    const ID: WaveId = WaveId { epoch: 3, sequence: 9 };

    fn failures() -> [Failure; 2] {
        let at = Timestamp::from_ns((1 << 48) + 77);
        let incarnation = Incarnation(4);
        [
            Failure { first: ProcessId(16), count: 16, incarnation, at },
            Failure { first: ProcessId(40), count: 1, incarnation, at },
        ]
    }

    #[test]
    fn a_notice_survives_the_wire() {
        let mut room = [0; 200];
        let (count, octets) =
            Wave { id: ID }.write_notice(&mut room, failures().into_iter()).expect("fits");
        assert_eq!((count, octets), (2, WAVE_HEADER_OCTETS + 2 * FAILURE_OCTETS));
        let view = WaveView::parse(&room[..octets]).expect("just written");
        assert_eq!((view.id, view.kind), (ID, WaveKind::Notice));
        let near = Timestamp::from_ns(1 << 48);
        assert_eq!(view.failures(near).collect::<Vec<_>>(), failures());
        assert_eq!(view.resolved().count(), 0);
        for short in 0..octets {
            assert!(WaveView::parse(&room[..short]).is_err());
        }
    }

    #[test]
    fn a_resume_survives_the_wire_as_far_as_it_fits() {
        let owner = Life { address: Address::Switch(SwitchId(5)), incarnation: Incarnation(1) };
        let resolved = [1, 2, 3].map(|number| Resolved { owner, number });
        let mut room = [0; WAVE_HEADER_OCTETS + 2 * RESOLVED_OCTETS + 3];
        let (count, octets) =
            Wave { id: ID }.write_resume(&mut room, resolved.into_iter()).expect("fits");
        assert_eq!(count, 2);
        let view = WaveView::parse(&room[..octets]).expect("just written");
        assert_eq!(view.resolved().collect::<Vec<_>>(), resolved[..2]);
        assert_eq!(view.failures(Timestamp::from_ns(0)).len(), 0);
    }

    #[test]
    fn a_freeze_survives_the_wire() {
        let life = |switch| Life {
            address: Address::Switch(SwitchId(switch)),
            incarnation: Incarnation(switch + 1),
        };
        let mut room = [0; WAVE_HEADER_OCTETS + 2 * LIFE_OCTETS];
        let lives = [4, 5].map(life);
        let written = Wave { id: ID }.write_freeze(&mut room, lives.into_iter());
        let (count, octets) = written.expect("fits");
        assert_eq!((count, octets), (2, room.len()));
        let view = WaveView::parse(&room).expect("just written");
        assert_eq!((view.kind, view.dead().collect::<Vec<_>>()), (WaveKind::Freeze, lives.into()));
        assert_eq!((view.resolved().count(), view.failures(Timestamp::from_ns(0)).len()), (0, 0));
        for short in 0..octets {
            assert!(WaveView::parse(&room[..short]).is_err());
        }
    }

    #[test]
    fn a_failure_covers_lives_up_to_its_own() {
        let failure = failures()[0];
        let covers = |process, life| failure.covers(ProcessId(process), Incarnation(life));
        assert!(covers(16, 4) && covers(31, 0));
        assert!(!covers(15, 4) && !covers(32, 4) && !covers(16, 5));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let mut room = [0; 200];
        let nobody = Failure { count: 0, ..failures()[0] };
        let (_, octets) =
            Wave { id: ID }.write_notice(&mut room, [nobody].into_iter()).expect("fits");
        assert!(WaveView::parse(&room[..octets]).is_err());
        room[8] = 7;
        assert!(WaveView::parse(&room[..octets]).is_err() && Echo::parse(&room).is_err());
    }

    #[test]
    fn an_echo_survives_the_wire() {
        let echo = Echo { id: ID, kind: WaveKind::Resume };
        let mut room = [0; ECHO_OCTETS];
        assert_eq!(echo.write(&mut room), Some(ECHO_OCTETS));
        assert_eq!(Echo::parse(&room), Ok(echo));
        assert!(Echo::parse(&room[1..]).is_err() && echo.write(&mut room[1..]).is_none());
    }
}
