//! What a replica stores.

use alloc::vec::Vec;

use onepipe_transaction::{Reader, Writer};

use crate::cut::Cut;
use crate::entry::Entry;
use crate::view::View;

const ENTRY: u8 = 1;
const VIEW: u8 = 2;
const TRUNCATED: u8 = 3;

/// A change of a replica's log, to be stored.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Consecutive among the records of a replica, from 1.
    pub number: u64,
    /// The change.
    pub change: Change,
}

/// A change of a replica's log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// An entry was added in its position.
    Entry(Entry),
    /// A view has begun. What the cut does not retain was removed.
    View(View, Cut),
    /// All entries from an index on were removed, because others may not have them.
    Truncated(u64),
}

impl Record {
    /// Returns the encoded record, without its number.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer(&mut bytes);
        match &self.change {
            Change::Entry(entry) => {
                writer.u8(ENTRY);
                entry.write(&mut writer);
            }
            Change::View(view, cut) => {
                writer.u8(VIEW);
                view.write(&mut writer);
                cut.write(&mut writer);
            }
            Change::Truncated(len) => {
                writer.u8(TRUNCATED);
                writer.u64(*len);
            }
        }
        bytes
    }

    /// Parses a record. Returns `None` if it is malformed.
    pub fn parse(number: u64, bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let change = match reader.u8()? {
            ENTRY => Change::Entry(Entry::parse(&mut reader)?),
            VIEW => Change::View(View::parse(&mut reader)?, Cut::parse(&mut reader)?),
            TRUNCATED => Change::Truncated(reader.u64()?),
            _ => return None,
        };
        reader.is_at_end().then_some(Self { number, change })
    }
}
