//! A state for tests: registers that are read and appended to.

use std::collections::BTreeMap;

use onepipe_base::Timestamp;
use onepipe_transaction::{Exact, State};

/// Registers, each with the timestamp of its last write. A part is a list of operations of two
/// bytes: `[register, 0]` reads it, `[register, n]` multiplies it by 31 and adds n.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Registers {
    values: BTreeMap<u8, (u64, Timestamp)>,
}

impl Registers {
    pub fn get(&self, register: u8) -> u64 {
        self.values.get(&register).map_or(0, |(value, _)| *value)
    }
}

impl State for Registers {
    fn execute(&mut self, at: Timestamp, part: &[u8], results: &mut Vec<u8>) {
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
        for (register, (value, at)) in &self.values {
            bytes.push(*register);
            bytes.extend_from_slice(&value.to_le_bytes());
            bytes.extend_from_slice(&at.as_ns().to_le_bytes());
        }
    }

    fn load(&mut self, bytes: &[u8]) -> bool {
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
        let parse = |entry: &[u8]| {
            (entry[0], (number(&entry[1..9]), Timestamp::from_ns(number(&entry[9..17]))))
        };
        self.values = bytes.chunks_exact(17).map(parse).collect();
        bytes.len().is_multiple_of(17)
    }
}
