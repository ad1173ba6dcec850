//! What a replica stores.

use alloc::vec::Vec;

use onepipe_transaction::{Reader, Writer};

use crate::base::Base;
use crate::cut::Cut;
use crate::entry::Entry;
use crate::view::View;

const ENTRY: u8 = 1;
const VIEW: u8 = 2;
const TRUNCATED: u8 = 3;
const RESTORED: u8 = 4;
const COMMITTED: u8 = 5;
const INSTALLED: u8 = 6;

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
    /// The replica has begun to catch up, without the entries from an index on, because others may
    /// not have them. Until it has caught up, the log before the first such change counts if all
    /// replicas end.
    Truncated(u64),
    /// All replicas have ended, and the log before [`Change::Truncated`] counts again.
    Restored,
    /// The first entries, of this number, are known to be committed.
    Committed(u64),
    /// While the replica catches up, the beginning of the log was replaced by the state of another
    /// replica, which includes it.
    Installed(Base),
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
            Change::Restored => writer.u8(RESTORED),
            Change::Committed(len) => {
                writer.u8(COMMITTED);
                writer.u64(*len);
            }
            Change::Installed(base) => {
                writer.u8(INSTALLED);
                base.write(&mut writer);
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
            RESTORED => Change::Restored,
            COMMITTED => Change::Committed(reader.u64()?),
            INSTALLED => Change::Installed(Base::parse(&mut reader)?),
            _ => return None,
        };
        reader.is_at_end().then_some(Self { number, change })
    }
}
