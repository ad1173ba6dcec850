//! What a replica stores in place of the records before.

use alloc::vec::Vec;

use onepipe_transaction::{Reader, Writer};

use crate::base::Base;
use crate::entries::{Accepted, Entries};
use crate::entry::Entry;
use crate::view::View;

/// The log of a member, with its view.
pub(crate) struct Checkpoint {
    pub view: View,
    pub entries: Entries,
}

impl Checkpoint {
    /// Returns the encoded log of a member of which only the trimmed beginning is included.
    pub fn encode_base(view: &View, base: &Base) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer(&mut bytes);
        view.write(&mut writer);
        base.write(&mut writer);
        [base.len, base.len, 0].into_iter().for_each(|number| writer.u64(number));
        bytes
    }

    /// Returns the encoded log of a member.
    pub fn encode(view: &View, entries: &Entries) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer(&mut bytes);
        view.write(&mut writer);
        entries.base().write(&mut writer);
        writer.u64(entries.stable_len());
        writer.u64(entries.committed_len());
        writer.u64(entries.retained().len() as u64);
        entries.retained().for_each(|entry| entry.write(&mut writer));
        bytes
    }

    /// Parses a checkpoint. Returns `None` if it is malformed.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let view = View::parse(&mut reader)?;
        let mut entries = Entries::from_base(Base::parse(&mut reader)?);
        let (stable_len, committed_len) = (reader.u64()?, reader.u64()?);
        for _ in 0..reader.u64()? {
            let accepted = entries.accept(Entry::parse(&mut reader)?);
            (accepted == Accepted::New).then_some(())?;
        }
        let stable = entries.checksum(stable_len)?;
        let committed = entries.checksum(committed_len)?;
        let is_valid = entries.set_stable(stable_len, stable)
            && entries.set_committed(committed_len, committed)
            && reader.is_at_end();
        is_valid.then_some(Self { view, entries })
    }
}
