//! The image of a replica: its state, sessions and members as bytes.

use alloc::vec::Vec;

use crate::State;
use crate::codec::{Reader, Writer};
use crate::members::Members;
use crate::recovery::Position;
use crate::replica::Replica;
use crate::sessions::Sessions;

impl<S: State> Replica<S> {
    /// Appends the state, the sessions and the members, encoded: all that a replica needs to go on
    /// after the last executed write. Returns the number of that write's record.
    pub fn save(&self, bytes: &mut Vec<u8>) -> u64 {
        let mut writer = Writer(bytes);
        writer.u16(self.shard);
        writer.u64(self.recorded);
        writer.position(self.executed);
        self.members.write(&mut writer);
        self.sessions.write(&mut writer);
        self.state.save(bytes);
        self.recorded
    }

    /// Replaces the state, the sessions and the members by those of an image. Records go on from
    /// the number of its last write, and the writes in it are taken for stored. Returns false, and
    /// changes nothing, if the image cannot be parsed or is of another shard.
    pub fn load(&mut self, bytes: &[u8]) -> bool {
        self.try_load(bytes).is_some()
    }

    fn try_load(&mut self, bytes: &[u8]) -> Option<()> {
        let mut reader = Reader(bytes);
        let ImageHeader { shard, number, position, members } = ImageHeader::read(&mut reader)?;
        let sessions = Sessions::parse(&mut reader, number)?;
        if shard != self.shard || !self.state.load(reader.0) {
            return None;
        }
        self.executed = position;
        (self.recorded, self.written) = (number, number);
        (self.members, self.sessions) = (members, sessions);
        Some(())
    }
}

/// What an image of a replica says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ImageHeader {
    /// The shard.
    pub shard: u16,
    /// Number of the record of the last executed write.
    pub number: u64,
    /// Position of that write in the total order. `None` if nothing was executed.
    pub position: Option<Position>,
    /// The membership as of that write.
    pub members: Members,
}

impl ImageHeader {
    /// Parses the beginning of what [`Replica::save`] has appended. Returns `None` if it is
    /// malformed.
    pub fn parse(image: &[u8]) -> Option<Self> {
        Self::read(&mut Reader(image))
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (shard, number) = (reader.u16()?, reader.u64()?);
        Some(Self { shard, number, position: reader.position()?, members: Members::parse(reader)? })
    }
}
