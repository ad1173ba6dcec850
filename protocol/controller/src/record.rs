//! Records of the controllers' log and their encoding.

use alloc::vec::Vec;

use onepipe_base::{Cause, Incarnation, Instance, ProcessId, Timestamp};
use onepipe_wire::{GroupId, Side, Undeliverable};

/// The term of one active replica. It rises with every change; the first is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u32);

/// One entry of the log that all controllers share (`docs/design/failure.md`, "How do controllers
/// survive?").
///
/// The encoding is stable: a tag, then the fields in order, big-endian; lists follow their length.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Record {
    /// A replica has become active. Written by the store itself, in [`crate::Store::campaign`].
    Epoch {
        /// Its epoch.
        epoch: Epoch,
        /// The replica.
        replica: ProcessId,
    },
    /// Nodes that have announced themselves, with all peers they were ever linked to. A later entry
    /// for an instance replaces an earlier one.
    Members(Vec<Member>),
    /// Instances that have failed. Final.
    Failed(Vec<FailedInstance>),
    /// Frozen links are released.
    Resumed {
        /// Instances whose failure all correct processes have completed: no link to them holds
        /// commits.
        instances: Vec<Instance>,
        /// Links whose two ends are both correct.
        links: Vec<Severed>,
    },
    /// Recalls of `sender` that their receivers have not acknowledged.
    Undeliverable {
        /// The sender of the recalled scatterings.
        sender: ProcessId,
        /// The scatterings and the receivers without an acknowledgement.
        entries: Vec<Undeliverable>,
    },
    /// Stands for adjacent recalls that are not needed any more, in a shortened log.
    Dropped {
        /// Number of recalls, at least 1.
        recalls: u32,
        /// Digest of all failures of processes and recalls up to the last of these.
        digest: u64,
    },
    /// The leader of an agreed-multicast group (`docs/design/amcast.md`, "How is a leader
    /// elected?"). The entry of the latest epoch of a group counts. Controllers only store it.
    Leads(Leadership),
}

/// The leader of an agreed-multicast group in one of its epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Leadership {
    /// The group.
    pub group: GroupId,
    /// The group's epoch, which is not that of the controllers.
    pub epoch: u32,
    /// Its leader.
    pub leader: ProcessId,
}

/// A node of the fabric and its neighbours.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// The instance.
    pub instance: Instance,
    /// All peers that it is or was linked to.
    pub links: Vec<MemberLink>,
}

/// One link of a [`Member`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberLink {
    /// Side of the member.
    pub side: Side,
    /// The peer.
    pub instance: Instance,
}

/// An instance that has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FailedInstance {
    /// The instance. All earlier incarnations of its address have failed as well.
    pub instance: Instance,
    /// Its failure timestamp F: nothing that it scattered at or above F is delivered. For a switch,
    /// the greatest commit that its neighbours have received from it.
    pub at: Timestamp,
    /// Whether every register that determines F was reported. If not, a process may have delivered
    /// what others discard.
    pub is_exact: bool,
    /// Why it counts as failed.
    pub cause: Cause,
}

/// A link that died alone: its owner does not wait for commits of `peer` on it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Severed {
    /// The end that had frozen it.
    pub owner: Instance,
    /// Number that the owner gave to the link's death.
    pub number: u32,
    /// The other end.
    pub peer: Instance,
}

/// Why bytes are not a valid [`Record`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The bytes end too early.
    #[error("the record is truncated")]
    Truncated,
    /// Bytes follow the record.
    #[error("{0} bytes follow the record")]
    Trailing(usize),
    /// The tag is unknown in this version.
    #[error("unknown kind of record {0}")]
    Kind(u8),
    /// A field has an invalid value.
    #[error("{0} of a record is out of range")]
    Field(&'static str),
}

const EPOCH: u8 = 1;
const MEMBERS: u8 = 2;
const FAILED: u8 = 3;
const RESUMED: u8 = 4;
const UNDELIVERABLE: u8 = 5;
const LEADS: u8 = 6;
const DROPPED: u8 = 7;

impl Record {
    /// Appends the encoding of the record to `bytes`.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        let start = bytes.len();
        self.put(bytes);
        debug_assert_eq!(Self::decode(&bytes[start..]).as_ref(), Ok(self), "the log is readable");
    }

    fn put(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Epoch { epoch, replica } => {
                bytes.push(EPOCH);
                put_u32(bytes, epoch.0);
                put_u32(bytes, replica.0);
            }
            Self::Members(members) => {
                bytes.push(MEMBERS);
                put_list(bytes, members, |bytes, member| {
                    put_instance(bytes, member.instance);
                    put_list(bytes, &member.links, |bytes, link| {
                        bytes.push(link.side as u8);
                        put_instance(bytes, link.instance);
                    });
                });
            }
            Self::Failed(failed) => {
                bytes.push(FAILED);
                put_list(bytes, failed, |bytes, failed| {
                    put_instance(bytes, failed.instance);
                    put_u64(bytes, failed.at.as_ns());
                    bytes.push(u8::from(failed.is_exact) | failed.cause.bits() << 1);
                });
            }
            Self::Resumed { instances, links } => {
                bytes.push(RESUMED);
                put_list(bytes, instances, |bytes, instance| put_instance(bytes, *instance));
                put_list(bytes, links, |bytes, link| {
                    put_instance(bytes, link.owner);
                    put_u32(bytes, link.number);
                    put_instance(bytes, link.peer);
                });
            }
            Self::Undeliverable { sender, entries } => {
                bytes.push(UNDELIVERABLE);
                put_u32(bytes, sender.0);
                put_list(bytes, entries, |bytes, entry| {
                    put_u32(bytes, entry.to.0);
                    put_u32(bytes, entry.incarnation.0);
                    put_u64(bytes, entry.timestamp.as_ns());
                });
            }
            Self::Leads(leads) => {
                bytes.push(LEADS);
                bytes.extend_from_slice(&leads.group.0.to_be_bytes());
                put_u32(bytes, leads.epoch);
                put_u32(bytes, leads.leader.0);
            }
            Self::Dropped { recalls, digest } => {
                bytes.push(DROPPED);
                put_u32(bytes, *recalls);
                put_u64(bytes, *digest);
            }
        }
    }

    /// Decodes a record from all of `bytes`.
    ///
    /// # Errors
    /// When they are not exactly one record.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let mut rest = Reader { bytes };
        let record = match rest.byte()? {
            EPOCH => Self::Epoch { epoch: Epoch(rest.word()?), replica: ProcessId(rest.word()?) },
            MEMBERS => Self::Members(rest.list(|rest| {
                let instance = rest.instance()?;
                let links = rest.list(|rest| {
                    let side = rest.side()?;
                    Ok(MemberLink { side, instance: rest.instance()? })
                })?;
                Ok(Member { instance, links })
            })?),
            FAILED => Self::Failed(rest.list(|rest| {
                let instance = rest.instance()?;
                let at = rest.timestamp()?;
                let byte = rest.byte()?;
                let (is_exact, cause) = (byte & 1 == 1, Cause::from_bits(byte >> 1));
                if byte >> 1 != cause.bits() {
                    return Err(RecordError::Field("exactness or cause"));
                }
                Ok(FailedInstance { instance, at, is_exact, cause })
            })?),
            RESUMED => {
                let instances = rest.list(Reader::instance)?;
                let links = rest.list(|rest| {
                    let (owner, number) = (rest.instance()?, rest.word()?);
                    Ok(Severed { owner, number, peer: rest.instance()? })
                })?;
                Self::Resumed { instances, links }
            }
            UNDELIVERABLE => {
                let sender = ProcessId(rest.word()?);
                let entries = rest.list(|rest| {
                    let (to, incarnation) = (ProcessId(rest.word()?), Incarnation(rest.word()?));
                    Ok(Undeliverable { to, incarnation, timestamp: rest.timestamp()? })
                })?;
                Self::Undeliverable { sender, entries }
            }
            LEADS => {
                let group = GroupId(rest.take().map(u16::from_be_bytes)?);
                let (epoch, leader) = (rest.word()?, ProcessId(rest.word()?));
                Self::Leads(Leadership { group, epoch, leader })
            }
            DROPPED => {
                let recalls = rest.word()?;
                let digest = rest.take().map(u64::from_be_bytes)?;
                if recalls == 0 {
                    return Err(RecordError::Field("number of recalls"));
                }
                Self::Dropped { recalls, digest }
            }
            other => return Err(RecordError::Kind(other)),
        };
        match rest.bytes.len() {
            0 => Ok(record),
            left => Err(RecordError::Trailing(left)),
        }
    }
}

fn put_u32(bytes: &mut Vec<u8>, word: u32) {
    bytes.extend_from_slice(&word.to_be_bytes());
}

fn put_u64(bytes: &mut Vec<u8>, word: u64) {
    bytes.extend_from_slice(&word.to_be_bytes());
}

fn put_instance(bytes: &mut Vec<u8>, instance: Instance) {
    let (address, incarnation) = Instance::to_words(Some(instance));
    put_u32(bytes, address);
    put_u32(bytes, incarnation);
}

fn put_list<T>(bytes: &mut Vec<u8>, list: &[T], put: impl Fn(&mut Vec<u8>, &T)) {
    put_u32(bytes, u32::try_from(list.len()).expect("fewer than 2^32 entries"));
    list.iter().for_each(|item| put(bytes, item));
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or(RecordError::Truncated)?;
        self.bytes = rest;
        Ok(*taken)
    }

    fn byte(&mut self) -> Result<u8, RecordError> {
        self.take().map(|[byte]| byte)
    }

    fn word(&mut self) -> Result<u32, RecordError> {
        self.take().map(u32::from_be_bytes)
    }

    fn timestamp(&mut self) -> Result<Timestamp, RecordError> {
        self.take().map(u64::from_be_bytes).map(Timestamp::from_ns)
    }

    fn instance(&mut self) -> Result<Instance, RecordError> {
        Instance::from_words(self.word()?, self.word()?).ok_or(RecordError::Field("the instance"))
    }

    fn side(&mut self) -> Result<Side, RecordError> {
        match self.byte()? {
            0 => Ok(Side::Lower),
            1 => Ok(Side::Upper),
            2 => Ok(Side::Direct),
            _ => Err(RecordError::Field("side of a link")),
        }
    }

    fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, RecordError>,
    ) -> Result<Vec<T>, RecordError> {
        let count = self.word()?;
        // No capacity is reserved: the count is untrusted.
        (0..count).map(|_| item(self)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use onepipe_base::Address;
    use proptest::prelude::*;

    fn any_instance() -> impl Strategy<Value = Instance> {
        (0..u32::MAX, any::<u32>()).prop_map(|(address, incarnation)| {
            Instance::from_words(address, incarnation).expect("valid address bits")
        })
    }

    fn any_record() -> impl Strategy<Value = Record> {
        let side = prop_oneof![Just(Side::Lower), Just(Side::Upper), Just(Side::Direct)];
        let link =
            (side, any_instance()).prop_map(|(side, instance)| MemberLink { side, instance });
        let member = (any_instance(), prop::collection::vec(link, 0..4))
            .prop_map(|(instance, links)| Member { instance, links });
        let failed =
            (any_instance(), any::<u64>(), any::<bool>()).prop_map(|(instance, ns, is_exact)| {
                FailedInstance {
                    instance,
                    at: Timestamp::from_ns(ns),
                    is_exact,
                    cause: Cause::from_bits(ns as u8),
                }
            });
        let entry = any::<(u32, u32, u64)>().prop_map(|(to, incarnation, ns)| Undeliverable {
            to: ProcessId(to),
            incarnation: Incarnation(incarnation),
            timestamp: Timestamp::from_ns(ns),
        });
        let severed = (any_instance(), any::<u32>(), any_instance())
            .prop_map(|(owner, number, peer)| Severed { owner, number, peer });
        prop_oneof![
            any::<(u32, u32)>().prop_map(|(epoch, replica)| Record::Epoch {
                epoch: Epoch(epoch),
                replica: ProcessId(replica)
            }),
            prop::collection::vec(member, 0..4).prop_map(Record::Members),
            prop::collection::vec(failed, 0..4).prop_map(Record::Failed),
            (prop::collection::vec(any_instance(), 0..4), prop::collection::vec(severed, 0..4))
                .prop_map(|(instances, links)| Record::Resumed { instances, links }),
            (any::<u32>(), prop::collection::vec(entry, 0..4)).prop_map(|(sender, entries)| {
                Record::Undeliverable { sender: ProcessId(sender), entries }
            }),
            any::<(u16, u32, u32)>().prop_map(|(group, epoch, leader)| {
                let (group, leader) = (GroupId(group), ProcessId(leader));
                Record::Leads(Leadership { group, epoch, leader })
            }),
            (1..=u32::MAX, any::<u64>())
                .prop_map(|(recalls, digest)| Record::Dropped { recalls, digest }),
        ]
    }

    proptest! {
        #[test]
        fn record_round_trips_and_rejects_truncation(record in any_record()) {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            prop_assert_eq!(Record::decode(&bytes), Ok(record));
            for short in 0..bytes.len() {
                prop_assert_eq!(Record::decode(&bytes[..short]), Err(RecordError::Truncated));
            }
            bytes.push(0);
            prop_assert_eq!(Record::decode(&bytes), Err(RecordError::Trailing(1)));
        }

        #[test]
        fn decodes_canonical_records_only(
            tag in 0u8..9,
            mut bytes in prop::collection::vec(any::<u8>(), 0..80),
        ) {
            bytes.insert(0, tag);
            if let Ok(record) = Record::decode(&bytes) {
                let mut again = Vec::new();
                record.encode(&mut again);
                prop_assert_eq!(again, bytes);
            }
        }
    }

    #[test]
    fn encoding_is_stable() {
        let address = Address::Process(ProcessId(7));
        let instance = Instance { address, incarnation: Incarnation(2) };
        let failed = FailedInstance {
            instance,
            at: Timestamp::from_ns(9),
            is_exact: true,
            cause: Cause::Left,
        };
        let mut bytes = Vec::new();
        Record::Failed(vec![failed]).encode(&mut bytes);
        let expected = [3, 0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 9, 9];
        assert_eq!(bytes, expected);
        let (group, leader) = (GroupId(258), ProcessId(9));
        let leads = Record::Leads(Leadership { group, epoch: 3, leader });
        let bytes = [6, 1, 2, 0, 0, 0, 3, 0, 0, 0, 9];
        assert_eq!(Record::decode(&bytes), Ok(leads));
        let dropped = Record::Dropped { recalls: 3, digest: 258 };
        assert_eq!(Record::decode(&[7, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 1, 2]), Ok(dropped));
        let none = Record::decode(&[7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]);
        assert!(matches!(none, Err(RecordError::Field(_))));
        assert_eq!(Record::decode(&[9]), Err(RecordError::Kind(9)));
        assert_eq!(Record::decode(&[RESUMED, 255, 255, 255, 255]), Err(RecordError::Truncated));
    }
}
