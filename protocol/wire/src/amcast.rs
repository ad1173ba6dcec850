//! Packets of agreed multicast. All share one layout, so that a switch needs one parser.

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::DecodeError;

/// Length of a packet of agreed multicast without the message that it may carry.
pub const AMCAST_LEN: usize = 64;
/// Maximum number of groups: a set of groups is one 64-bit word.
pub const GROUPS_MAX: u16 = 64;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Layout {
    client: U32,
    sequence: U32,
    groups: U64,
    group: U16,
    flags: u8,
    further: u8,
    epoch: U32,
    timestamp: U64,
    clock: U64,
    barrier: U64,
    position: U64,
    count: U64,
}

const _: () = assert!(size_of::<Layout>() == AMCAST_LEN);

/// A group of replicas with the members that order messages for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u16);

impl GroupId {
    /// Returns the number as an index into a flat array.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A set of groups below [`GROUPS_MAX`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupSet(u64);

impl GroupSet {
    /// The empty set.
    pub const EMPTY: Self = Self(0);

    /// Returns the set of groups whose bits are 1.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns the set as bits: bit `g` is group `g`.
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// Returns whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the number of groups in the set.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns whether `group` is in the set.
    pub const fn contains(self, group: GroupId) -> bool {
        group.0 < GROUPS_MAX && self.0 >> group.0 & 1 == 1
    }

    /// Returns the set with `group`, which is ignored unless it is below [`GROUPS_MAX`].
    #[must_use]
    pub const fn with(self, group: GroupId) -> Self {
        if group.0 < GROUPS_MAX { Self(self.0 | 1 << group.0) } else { self }
    }

    /// Returns the set without `group`.
    #[must_use]
    pub const fn without(self, group: GroupId) -> Self {
        if group.0 < GROUPS_MAX { Self(self.0 & !(1 << group.0)) } else { self }
    }

    /// Returns the number of groups in the set below `group`: the rank of `group`.
    pub const fn rank(self, group: GroupId) -> usize {
        (self.0 & ((1 << (group.0 % GROUPS_MAX)) - 1)).count_ones() as usize
    }

    /// Returns the groups in ascending order.
    pub fn iter(self) -> impl Iterator<Item = GroupId> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            let group = (rest != 0).then(|| GroupId(rest.trailing_zeros() as u16))?;
            rest &= rest - 1;
            Some(group)
        })
    }
}

/// The unique id of a message: its client, and its sequence number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId {
    /// Number of the client, dense from 0.
    pub client: u32,
    /// Sequence number of the message among those of the client, from 0, never used twice.
    pub sequence: u32,
}

/// A value of the logical clocks of agreed multicast: has an order, but no unit. 0 comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogicalTime(pub u64);

/// The header of every packet of agreed multicast. The meaning of a field depends on the opcode and
/// is described in `docs/wire-format.md`; unused fields are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Amcast {
    /// The message, if [`Amcast::MESSAGE`] is set.
    pub id: MessageId,
    /// The destination groups of the message; empty if the packet is not about a message.
    pub groups: GroupSet,
    /// The group on whose behalf the packet is sent, below [`GROUPS_MAX`].
    pub group: GroupId,
    /// The flags below.
    pub flags: u8,
    /// The epoch of `group` that the sender is in.
    pub epoch: u32,
    /// The timestamp of the message: proposed by `group`, or final.
    pub timestamp: LogicalTime,
    /// The logical clock of the sender.
    pub clock: LogicalTime,
    /// The order of `group` is final up to this time; in a decided proposal, the final timestamp.
    pub barrier: LogicalTime,
    /// A position in the log of `group`.
    pub position: u64,
    /// Number of positions that the sender's log of `group` contains.
    pub count: u64,
    /// Number of further packets that the packet stands for beside itself: the run length minus
    /// one. Each is about the client's next message at the next timestamp and position, and is
    /// otherwise equal ([`Amcast::nth`]). 0 without a message.
    pub further: u8,
}

impl Amcast {
    /// The packet is about a message: `id` and `groups` are valid.
    pub const MESSAGE: u8 = 1 << 0;
    /// A response is requested.
    pub const WANTS_REPLY: u8 = 1 << 1;
    /// The final timestamp is known: it is `timestamp`, and in a proposal `barrier`.
    pub const DECIDED: u8 = 1 << 2;
    /// A log, or an entry of it, sent to the next leader.
    pub const FETCH: u8 = 1 << 3;
    /// The requested positions were dropped from the log: the requester is too far behind.
    pub const BEHIND: u8 = 1 << 4;
    /// The packet applies to everything before `position` in the log as well.
    pub const BEFORE: u8 = 1 << 5;
    /// The packet is about the incarnation `count` of a member, which starts.
    pub const JOIN: u8 = 1 << 6;
    /// The sender leads its epoch, or is a candidate for it.
    pub const LEADS: u8 = 1 << 7;

    /// Returns a packet of a group in an epoch, with all other fields 0.
    pub const fn new(group: GroupId, epoch: u32) -> Self {
        Self {
            id: MessageId { client: 0, sequence: 0 },
            groups: GroupSet::EMPTY,
            group,
            flags: 0,
            epoch,
            timestamp: LogicalTime(0),
            clock: LogicalTime(0),
            barrier: LogicalTime(0),
            position: 0,
            count: 0,
            further: 0,
        }
    }

    /// Returns whether all of these flags are set.
    pub const fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// Returns the packet with [`Amcast::MESSAGE`] set for message `id` to `groups`.
    #[must_use]
    pub const fn with_message(mut self, id: MessageId, groups: GroupSet) -> Self {
        self.flags |= Self::MESSAGE;
        (self.id, self.groups) = (id, groups);
        self
    }

    /// Writes the packet. Returns its length, or `None` if `buf` is too small.
    pub fn write(&self, buf: &mut [u8]) -> Option<usize> {
        let layout = Layout {
            client: U32::new(self.id.client),
            sequence: U32::new(self.id.sequence),
            groups: U64::new(self.groups.0),
            group: U16::new(self.group.0),
            flags: self.flags,
            further: self.further,
            epoch: U32::new(self.epoch),
            timestamp: U64::new(self.timestamp.0),
            clock: U64::new(self.clock.0),
            barrier: U64::new(self.barrier.0),
            position: U64::new(self.position),
            count: U64::new(self.count),
        };
        buf.get_mut(..AMCAST_LEN)?.copy_from_slice(layout.as_bytes());
        Some(AMCAST_LEN)
    }

    /// Parses the first packet of a payload. Returns the rest as well: the message of a Start or
    /// Prop, or further packets.
    ///
    /// # Errors
    /// If the payload is too short, or a field is out of range.
    pub fn parse(payload: &[u8]) -> Result<(Self, &[u8]), DecodeError> {
        let Ok((layout, message)) = Layout::ref_from_prefix(payload) else {
            let (need, got) = (AMCAST_LEN, payload.len());
            return Err(DecodeError::Truncated { part: "agreed multicast", need, got });
        };
        let refused = |field, value| Err(DecodeError::Field { field, value });
        let (group, flags, groups) = (layout.group.get(), layout.flags, layout.groups.get());
        if group >= GROUPS_MAX {
            return refused("group", u64::from(group));
        }
        if (groups == 0) == (flags & Self::MESSAGE != 0) {
            return refused("groups", groups);
        }
        let packet = Self {
            id: MessageId { client: layout.client.get(), sequence: layout.sequence.get() },
            groups: GroupSet(groups),
            group: GroupId(group),
            flags,
            epoch: layout.epoch.get(),
            timestamp: LogicalTime(layout.timestamp.get()),
            clock: LogicalTime(layout.clock.get()),
            barrier: LogicalTime(layout.barrier.get()),
            position: layout.position.get(),
            count: layout.count.get(),
            further: layout.further,
        };
        if packet.further > 0 && (!packet.has(Self::MESSAGE) || packet.last_of_run().is_none()) {
            return refused("further", u64::from(packet.further));
        }
        Ok((packet, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Opcode;

    #[test]
    fn frame_has_one_message_or_many_packets() {
        let packet = |count| Amcast { count, ..Amcast::new(GroupId(1), 1) };
        let mut bytes = [0; 3 * AMCAST_LEN];
        for (count, buf) in (1..).zip(bytes.chunks_mut(AMCAST_LEN)) {
            packet(count).write(buf).expect("it fits");
        }
        let each = [1, 2, 3].map(|count| Ok((packet(count), &[][..])));
        assert!(Amcast::packets(Opcode::AmcastAck, &bytes).eq(each));
        let one = [Ok((packet(1), &bytes[AMCAST_LEN..]))];
        assert!(Amcast::packets(Opcode::Prop, &bytes).eq(one));
        let mut cut = Amcast::packets(Opcode::Deliver, &bytes[..bytes.len() - 1]).skip(2);
        assert!(matches!(cut.next(), Some(Err(DecodeError::Truncated { got: 63, .. }))));
        assert_eq!(cut.next(), None);
        let none = Amcast::packets(Opcode::Gap, &[]).map(|packet| packet.is_err());
        assert!(none.eq([true]), "there is one at least");
        bytes[AMCAST_LEN + 16] = 255;
        let packet = Amcast::packets(Opcode::Gap, &bytes).map(|packet| packet.is_ok());
        assert!(packet.eq([true, false]), "nothing behind what is none");
    }

    #[test]
    fn groups_have_ranks_in_their_set() {
        let groups = [63, 3, 0].map(GroupId).into_iter().fold(GroupSet::EMPTY, GroupSet::with);
        assert!(groups.iter().map(|group| group.0).eq([0, 3, 63]));
        for (rank, group) in groups.iter().enumerate() {
            assert!(groups.contains(group) && groups.rank(group) == rank);
            assert!(!groups.without(group).contains(group));
        }
        assert!(!groups.contains(GroupId(64)) && groups.with(GroupId(64)) == groups);
    }

    #[test]
    fn refuses_invalid_fields() {
        let set = GroupSet::EMPTY.with(GroupId(1));
        let good =
            Amcast::new(GroupId(1), 1).with_message(MessageId { client: 0, sequence: 0 }, set);
        let bad = [
            Amcast { group: GroupId(64), ..good },
            Amcast { groups: GroupSet::EMPTY, ..good },
            Amcast { flags: 0, ..good },
        ];
        let mut buf = [0; AMCAST_LEN];
        good.write(&mut buf).expect("it fits");
        assert_eq!(Amcast::parse(&buf), Ok((good, &[][..])));
        for bad in bad {
            bad.write(&mut buf).expect("it fits");
            assert!(matches!(Amcast::parse(&buf), Err(DecodeError::Field { .. })), "{bad:?}");
        }
    }
}
