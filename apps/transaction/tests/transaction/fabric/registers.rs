//! A state for tests: registers that are read and appended to.

use std::collections::BTreeMap;

use onepipe_base::Timestamp;
use onepipe_transaction::{Exact, Reader, State, Writer};

/// Registers, each with the timestamp of its last write. A part is a list of operations of two
/// bytes: `[register, 0]` reads it, `[register, n]` multiplies it by 31 and adds n.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Registers {
    values: BTreeMap<u8, (u64, Timestamp)>,
    /// Every part that was executed, in order.
    history: Vec<(Timestamp, Vec<u8>)>,
}

impl Registers {
    /// Returns every part that was executed, in order.
    pub fn history(&self) -> &[(Timestamp, Vec<u8>)] {
        &self.history
    }

    fn parse(reader: &mut Reader<'_>) -> Option<Self> {
        let mut state = Self::default();
        for _ in 0..reader.u32()? {
            let (register, value) = (reader.u8()?, reader.u64()?);
            state.values.insert(register, (value, Timestamp::from_ns(reader.u64()?)));
        }
        for _ in 0..reader.u32()? {
            let at = Timestamp::from_ns(reader.u64()?);
            state.history.push((at, reader.bytes()?.to_vec()));
        }
        Some(state)
    }

    pub fn get(&self, register: u8) -> u64 {
        self.values.get(&register).map_or(0, |(value, _)| *value)
    }
}

impl State for Registers {
    fn execute(&mut self, at: Timestamp, part: &[u8], results: &mut Vec<u8>) {
        self.history.push((at, part.to_vec()));
        for operation in part.chunks_exact(2) {
            if operation[1] != 0 {
                let value = self.get(operation[0]).wrapping_mul(31) + u64::from(operation[1]);
                self.values.insert(operation[0], (value, at));
            }
            results.extend_from_slice(&self.get(operation[0]).to_le_bytes());
        }
    }

    fn read(&self, _: Timestamp, part: &[u8], results: &mut Vec<u8>) -> Exact {
        let mut from = None;
        for operation in part.chunks_exact(2) {
            from = from.max(self.values.get(&operation[0]).map(|(_, at)| *at));
            results.extend_from_slice(&self.get(operation[0]).to_le_bytes());
        }
        Exact { from, until: None }
    }

    fn digest(&self) -> u64 {
        let mix = |digest: u64, (register, (value, _)): (&u8, &(u64, Timestamp))| {
            digest.wrapping_mul(1_000_003) ^ value.wrapping_add(u64::from(*register))
        };
        self.values.iter().fold(0, mix)
    }

    fn save(&self, bytes: &mut Vec<u8>) {
        let mut writer = Writer(bytes);
        writer.u32(self.values.len() as u32);
        for (register, (value, at)) in &self.values {
            writer.u8(*register);
            writer.u64(*value);
            writer.u64(at.as_ns());
        }
        writer.u32(self.history.len() as u32);
        for (at, part) in &self.history {
            writer.u64(at.as_ns());
            writer.bytes(part);
        }
    }

    fn load(&mut self, bytes: &[u8]) -> bool {
        let mut reader = Reader(bytes);
        let Some(state) = Self::parse(&mut reader) else { return false };
        *self = state;
        reader.is_at_end()
    }
}
