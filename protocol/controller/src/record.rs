//! What a controller must not forget, and its octets in a store.

use alloc::vec::Vec;

use onepipe_base::{Incarnation, Life, ProcessId, Timestamp};
use onepipe_wire::{GroupId, Side, Undeliverable};

use crate::Epoch;

/// One entry of the controllers' common log (design: failure.md, "How do controllers survive?").
///
/// The octets are stable: a tag, then the fields in order, big-endian, lists behind their length.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Record {
    /// A replica has become active. Written by the store itself, in [`crate::Store::campaign`].
    Epoch {
        /// Its epoch.
        epoch: Epoch,
        /// Who.
        replica: ProcessId,
    },
    /// Nodes that have announced themselves, with all that they were ever linked to. A later entry
    /// for a life replaces an earlier one.
    Members(Vec<Member>),
    /// Lives that have failed, decided for ever.
    Failed(Vec<FailedLife>),
    /// Frozen links hold nothing any more.
    Resumed {
        /// Every correct process has completed what the failure of these lives asks of it: no link
        /// to them holds anything.
        lives: Vec<Life>,
        /// Links whose two ends are both correct.
        links: Vec<Severed>,
    },
    /// Recalls of `sender` that their receivers have not heard.
    Undeliverable {
        /// Whose scatterings.
        sender: ProcessId,
        /// Which scatterings, and who did not hear of their recall.
        entries: Vec<Undeliverable>,
    },
    /// Who leads a group of agreed multicast (design: amcast.md). Of several of one group the one
    /// of the latest epoch counts. Controllers of scattering keep it, and do nothing with it.
    Leads(Leadership),
}

/// Who leads a group of agreed multicast in one of its epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Leadership {
    /// The group.
    pub group: GroupId,
    /// The group's epoch, which is not that of the controllers.
    pub epoch: u32,
    /// Who leads in it.
    pub leader: ProcessId,
}

/// A node of the fabric and its neighbours.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// Who.
    pub life: Life,
    /// Whom it is linked to, or was.
    pub links: Vec<MemberLink>,
}

/// One link of a [`Member`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberLink {
    /// Where it leads, seen from the member.
    pub side: Side,
    /// Who is there.
    pub life: Life,
}

/// One life that has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FailedLife {
    /// Whose. Every earlier life of the same address has failed, too.
    pub life: Life,
    /// Its failure timestamp: nothing that it scattered at or above is delivered. Of a switch, the
    /// greatest commit that its neighbours have heard from it.
    pub at: Timestamp,
    /// Whether every register that decides it was reported. If not, somebody may have delivered
    /// what others discard.
    pub is_exact: bool,
}

/// A link that died alone: its owner does not wait for the commits of `peer` on it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Severed {
    /// Who had frozen it.
    pub owner: Life,
    /// The owner's number of the death.
    pub number: u32,
    /// Who is at the other end.
    pub peer: Life,
}

/// Why octets are no [`Record`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// They end too early.
    #[error("a record ends too early")]
    Truncated,
    /// They go on behind the record.
    #[error("{0} octets behind a record")]
    Trailing(usize),
    /// The tag is none of this version.
    #[error("unknown kind of record {0}")]
    Kind(u8),
    /// A field has a value that nobody writes.
    #[error("{0} of a record is out of range")]
    Field(&'static str),
}

const EPOCH: u8 = 1;
const MEMBERS: u8 = 2;
const FAILED: u8 = 3;
const RESUMED: u8 = 4;
const UNDELIVERABLE: u8 = 5;
const LEADS: u8 = 6;

impl Record {
    /// Appends the record's octets to `octets`.
    pub fn encode(&self, octets: &mut Vec<u8>) {
        match self {
            Self::Epoch { epoch, replica } => {
                octets.push(EPOCH);
                put_u32(octets, epoch.0);
                put_u32(octets, replica.0);
            }
            Self::Members(members) => {
                octets.push(MEMBERS);
                put_list(octets, members, |octets, member| {
                    put_life(octets, member.life);
                    put_list(octets, &member.links, |octets, link| {
                        octets.push(link.side as u8);
                        put_life(octets, link.life);
                    });
                });
            }
            Self::Failed(failed) => {
                octets.push(FAILED);
                put_list(octets, failed, |octets, failed| {
                    put_life(octets, failed.life);
                    put_u64(octets, failed.at.as_ns());
                    octets.push(u8::from(failed.is_exact));
                });
            }
            Self::Resumed { lives, links } => {
                octets.push(RESUMED);
                put_list(octets, lives, |octets, life| put_life(octets, *life));
                put_list(octets, links, |octets, link| {
                    put_life(octets, link.owner);
                    put_u32(octets, link.number);
                    put_life(octets, link.peer);
                });
            }
            Self::Undeliverable { sender, entries } => {
                octets.push(UNDELIVERABLE);
                put_u32(octets, sender.0);
                put_list(octets, entries, |octets, entry| {
                    put_u32(octets, entry.to.0);
                    put_u32(octets, entry.incarnation.0);
                    put_u64(octets, entry.timestamp.as_ns());
                });
            }
            Self::Leads(leads) => {
                octets.push(LEADS);
                octets.extend_from_slice(&leads.group.0.to_be_bytes());
                put_u32(octets, leads.epoch);
                put_u32(octets, leads.leader.0);
            }
        }
    }

    /// Reads a record from all of `octets`.
    ///
    /// # Errors
    /// When they are not exactly one record.
    pub fn decode(octets: &[u8]) -> Result<Self, RecordError> {
        let mut rest = Reader { octets };
        let record = match rest.octet()? {
            EPOCH => Self::Epoch { epoch: Epoch(rest.word()?), replica: ProcessId(rest.word()?) },
            MEMBERS => Self::Members(rest.list(|rest| {
                let life = rest.life()?;
                let links = rest.list(|rest| {
                    let side = rest.side()?;
                    Ok(MemberLink { side, life: rest.life()? })
                })?;
                Ok(Member { life, links })
            })?),
            FAILED => Self::Failed(rest.list(|rest| {
                let life = rest.life()?;
                let at = rest.timestamp()?;
                let is_exact = match rest.octet()? {
                    0 => false,
                    1 => true,
                    _ => return Err(RecordError::Field("exactness")),
                };
                Ok(FailedLife { life, at, is_exact })
            })?),
            RESUMED => {
                let lives = rest.list(Reader::life)?;
                let links = rest.list(|rest| {
                    let (owner, number) = (rest.life()?, rest.word()?);
                    Ok(Severed { owner, number, peer: rest.life()? })
                })?;
                Self::Resumed { lives, links }
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
            other => return Err(RecordError::Kind(other)),
        };
        match rest.octets.len() {
            0 => Ok(record),
            left => Err(RecordError::Trailing(left)),
        }
    }
}

fn put_u32(octets: &mut Vec<u8>, word: u32) {
    octets.extend_from_slice(&word.to_be_bytes());
}

fn put_u64(octets: &mut Vec<u8>, word: u64) {
    octets.extend_from_slice(&word.to_be_bytes());
}

fn put_life(octets: &mut Vec<u8>, life: Life) {
    let (address, incarnation) = Life::to_words(Some(life));
    put_u32(octets, address);
    put_u32(octets, incarnation);
}

fn put_list<T>(octets: &mut Vec<u8>, list: &[T], put: impl Fn(&mut Vec<u8>, &T)) {
    put_u32(octets, u32::try_from(list.len()).expect("no fabric has 2^32 lives"));
    list.iter().for_each(|item| put(octets, item));
}

struct Reader<'a> {
    octets: &'a [u8],
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        let (taken, rest) = self.octets.split_first_chunk().ok_or(RecordError::Truncated)?;
        self.octets = rest;
        Ok(*taken)
    }

    fn octet(&mut self) -> Result<u8, RecordError> {
        self.take().map(|[octet]| octet)
    }

    fn word(&mut self) -> Result<u32, RecordError> {
        self.take().map(u32::from_be_bytes)
    }

    fn timestamp(&mut self) -> Result<Timestamp, RecordError> {
        self.take().map(u64::from_be_bytes).map(Timestamp::from_ns)
    }

    fn life(&mut self) -> Result<Life, RecordError> {
        Life::from_words((self.word()?, self.word()?)).ok_or(RecordError::Field("a life"))
    }

    fn side(&mut self) -> Result<Side, RecordError> {
        match self.octet()? {
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
        // Nothing is reserved: the count is not to be believed.
        (0..count).map(|_| item(self)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use onepipe_base::Address;
    use proptest::prelude::*;

    fn any_life() -> impl Strategy<Value = Life> {
        (0..u32::MAX, any::<u32>())
            .prop_map(|words| Life::from_words(words).expect("below the bits of nobody"))
    }

    fn any_record() -> impl Strategy<Value = Record> {
        let side = prop_oneof![Just(Side::Lower), Just(Side::Upper), Just(Side::Direct)];
        let link = (side, any_life()).prop_map(|(side, life)| MemberLink { side, life });
        let member = (any_life(), prop::collection::vec(link, 0..4))
            .prop_map(|(life, links)| Member { life, links });
        let failed = (any_life(), any::<u64>(), any::<bool>()).prop_map(|(life, ns, is_exact)| {
            FailedLife { life, at: Timestamp::from_ns(ns), is_exact }
        });
        let entry = any::<(u32, u32, u64)>().prop_map(|(to, incarnation, ns)| Undeliverable {
            to: ProcessId(to),
            incarnation: Incarnation(incarnation),
            timestamp: Timestamp::from_ns(ns),
        });
        let severed = (any_life(), any::<u32>(), any_life())
            .prop_map(|(owner, number, peer)| Severed { owner, number, peer });
        prop_oneof![
            any::<(u32, u32)>().prop_map(|(epoch, replica)| Record::Epoch {
                epoch: Epoch(epoch),
                replica: ProcessId(replica)
            }),
            prop::collection::vec(member, 0..4).prop_map(Record::Members),
            prop::collection::vec(failed, 0..4).prop_map(Record::Failed),
            (prop::collection::vec(any_life(), 0..4), prop::collection::vec(severed, 0..4))
                .prop_map(|(lives, links)| Record::Resumed { lives, links }),
            (any::<u32>(), prop::collection::vec(entry, 0..4)).prop_map(|(sender, entries)| {
                Record::Undeliverable { sender: ProcessId(sender), entries }
            }),
            any::<(u16, u32, u32)>().prop_map(|(group, epoch, leader)| {
                let (group, leader) = (GroupId(group), ProcessId(leader));
                Record::Leads(Leadership { group, epoch, leader })
            }),
        ]
    }

    proptest! {
        #[test]
        fn a_record_survives_the_store_and_no_piece_of_it_is_one(record in any_record()) {
            let mut octets = Vec::new();
            record.encode(&mut octets);
            prop_assert_eq!(Record::decode(&octets), Ok(record));
            for short in 0..octets.len() {
                prop_assert_eq!(Record::decode(&octets[..short]), Err(RecordError::Truncated));
            }
            octets.push(0);
            prop_assert_eq!(Record::decode(&octets), Err(RecordError::Trailing(1)));
        }

        #[test]
        fn any_octets_are_a_record_or_an_error(
            tag in 0u8..8,
            mut octets in prop::collection::vec(any::<u8>(), 0..80),
        ) {
            octets.insert(0, tag);
            if let Ok(record) = Record::decode(&octets) {
                let mut again = Vec::new();
                record.encode(&mut again);
                prop_assert_eq!(again, octets);
            }
        }
    }

    #[test]
    fn the_octets_stay_as_they_are() {
        let address = Address::Process(ProcessId(7));
        let life = Life { address, incarnation: Incarnation(2) };
        let failed = FailedLife { life, at: Timestamp::from_ns(9), is_exact: true };
        let mut octets = Vec::new();
        Record::Failed(vec![failed]).encode(&mut octets);
        let expected = [3, 0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 9, 1];
        assert_eq!(octets, expected);
        let (group, leader) = (GroupId(258), ProcessId(9));
        let leads = Record::Leads(Leadership { group, epoch: 3, leader });
        let octets = [6, 1, 2, 0, 0, 0, 3, 0, 0, 0, 9];
        assert_eq!(Record::decode(&octets), Ok(leads));
        assert_eq!(Record::decode(&[9]), Err(RecordError::Kind(9)));
        assert_eq!(Record::decode(&[RESUMED, 255, 255, 255, 255]), Err(RecordError::Truncated));
    }
}
