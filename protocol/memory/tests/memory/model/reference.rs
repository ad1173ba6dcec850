//! What operations do, written again for comparison.

use std::collections::BTreeMap;

use onepipe_base::{ProcessId, Timestamp};
use onepipe_memory::{Operation, Outcome, Reason, Refusal, RegionId, Rights};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

/// An operation that owns its bytes.
#[derive(Clone, Debug)]
pub struct Owned {
    code: u8,
    region: RegionId,
    offset: u64,
    numbers: (u64, u64),
    bytes: Vec<u8>,
}

impl Owned {
    pub fn borrow(&self) -> Operation<'_> {
        let (region, offset, (expected, new)) = (self.region, self.offset, self.numbers);
        match self.code {
            0 => Operation::Read { region, offset, len: self.bytes.len() as u32 },
            1 => Operation::Write { region, offset, bytes: &self.bytes },
            2 => Operation::CompareAndSwap { region, offset, expected, new },
            _ => Operation::FetchAdd { region, offset, addend: new },
        }
    }

    pub fn writes(&self) -> bool {
        self.code > 0
    }
}

/// Draws an operation: most are allowed, some are out of bounds, misaligned or on a wrong region,
/// unless that is given.
pub fn draw(
    random: &mut Xoshiro256PlusPlus,
    only_reads: bool,
    words: u64,
    region: Option<RegionId>,
) -> Owned {
    let code = if only_reads { 0 } else { random.random_range(0..4) };
    let is_odd = random.random_range(0..12) == 0;
    let word = 8 * random.random_range(0..words);
    let offset = match random.random_range(0..4) {
        0 if is_odd => u64::MAX - random.random_range(0..9),
        // The first byte is in the region, the last one is not.
        1 if is_odd => 8 * words - random.random_range(0..8),
        2 if is_odd => word + 4,
        _ => word,
    };
    let region = region.unwrap_or(match random.random_range(0..20) {
        0 => RegionId(9),
        1..8 => RegionId(2),
        _ => RegionId(1),
    });
    let numbers = (random.random_range(0..3), random.random_range(0..3));
    let len = if code > 1 { 0 } else { random.random_range(0..9) };
    let bytes = (0..len).map(|_| random.random_range(0..3)).collect();
    Owned { code, region, offset, numbers, bytes }
}

type Memory = BTreeMap<RegionId, Vec<u8>>;
type Results = Result<Vec<Outcome>, Refusal>;

/// An owner as it should be.
pub struct Reference {
    rights: BTreeMap<RegionId, Rights>,
    memory: Memory,
    /// The memory after each request, by its timestamp and client.
    after: BTreeMap<(Timestamp, ProcessId), Memory>,
    first: Memory,
    results: BTreeMap<(ProcessId, u64, u64), Results>,
    /// Results of requests in the owner's order: of reads, those of each delivery.
    owner_order: BTreeMap<(ProcessId, u64, u64), Vec<Results>>,
}

impl Reference {
    pub fn new(regions: &[(RegionId, Rights)], words: u64) -> Self {
        let memory: Memory =
            regions.iter().map(|(id, _)| (*id, vec![0; 8 * words as usize])).collect();
        Self {
            rights: regions.iter().cloned().collect(),
            first: memory.clone(),
            memory,
            after: BTreeMap::new(),
            results: BTreeMap::new(),
            owner_order: BTreeMap::new(),
        }
    }

    /// Executes a reliable request, unless it was executed before.
    pub fn execute(
        &mut self,
        at: Timestamp,
        id: (ProcessId, u64, u64),
        operations: &[Operation<'_>],
    ) {
        if !self.results.contains_key(&id) {
            let mut memory = self.memory.clone();
            let result = self.run(&mut memory, id.0, operations);
            self.memory = memory;
            self.results.insert(id, result);
        }
        self.after.insert((at, id.0), self.memory.clone());
    }

    /// Executes a delivered request in the owner's order, unless it writes and was executed before.
    pub fn execute_in_owner_order(
        &mut self,
        id: (ProcessId, u64, u64),
        operations: &[Operation<'_>],
    ) {
        let writes = operations.iter().any(Operation::writes);
        if writes && self.owner_order.contains_key(&id) {
            return;
        }
        let mut memory = self.memory.clone();
        let result = self.run(&mut memory, id.0, operations);
        self.memory = memory;
        self.owner_order.entry(id).or_default().push(result);
    }

    /// Returns whether a request in the owner's order may have this result.
    pub fn is_result(&self, id: (ProcessId, u64, u64), result: &Results) -> bool {
        self.owner_order.get(&id).is_some_and(|results| results.contains(result))
    }

    pub fn result(&self, id: (ProcessId, u64, u64)) -> Option<&Results> {
        self.results.get(&id)
    }

    /// Returns what a batch finds that only reads, at a timestamp; without one it is refused, which
    /// does not depend on the time.
    pub fn read_at(&self, at: Option<Timestamp>, from: ProcessId, batch: &[Owned]) -> Results {
        let mut memory = match at {
            // A read with the timestamp of a request comes after it.
            Some(at) => {
                let before = self.after.range(..=(at, ProcessId(u32::MAX))).next_back();
                before.map_or(&self.first, |(_, memory)| memory).clone()
            }
            None => self.first.clone(),
        };
        let operations: Vec<Operation<'_>> = batch.iter().map(Owned::borrow).collect();
        self.run(&mut memory, from, &operations)
    }

    /// Returns whether a region has these bytes, if all requests were delivered.
    pub fn is_prefix_of(&self, id: RegionId, bytes: &[u8], is_complete: bool) -> bool {
        !is_complete || self.memory[&id] == bytes
    }

    fn run(&self, memory: &mut Memory, from: ProcessId, operations: &[Operation<'_>]) -> Results {
        for (index, operation) in operations.iter().enumerate() {
            if let Some(reason) = self.reason(memory, from, operation) {
                return Err(Refusal { index: index as u16, reason });
            }
        }
        let mut outcomes = Vec::new();
        for operation in operations {
            let has_failed = outcomes
                .iter()
                .any(|outcome| matches!(outcome, Outcome::Compared { is_swapped: false, .. }));
            if has_failed {
                outcomes.push(Outcome::Skipped);
                continue;
            }
            let bytes = memory.get_mut(&operation.region()).expect("checked above");
            outcomes.push(match *operation {
                Operation::Read { offset, len, .. } => {
                    Outcome::Read(bytes[offset as usize..][..len as usize].to_vec())
                }
                Operation::Write { offset, bytes: new, .. } => {
                    bytes[offset as usize..][..new.len()].copy_from_slice(new);
                    Outcome::Written
                }
                Operation::CompareAndSwap { offset, expected, new, .. } => {
                    let previous = word(bytes, offset);
                    if previous == expected {
                        bytes[offset as usize..][..8].copy_from_slice(&new.to_le_bytes());
                    }
                    Outcome::Compared { previous, is_swapped: previous == expected }
                }
                Operation::FetchAdd { offset, addend, .. } => {
                    let previous = word(bytes, offset);
                    let sum = previous.wrapping_add(addend);
                    bytes[offset as usize..][..8].copy_from_slice(&sum.to_le_bytes());
                    Outcome::Added { previous }
                }
            });
        }
        Ok(outcomes)
    }

    fn reason(
        &self,
        memory: &Memory,
        from: ProcessId,
        operation: &Operation<'_>,
    ) -> Option<Reason> {
        let Some(rights) = self.rights.get(&operation.region()) else {
            return Some(Reason::UnknownRegion);
        };
        let len = memory[&operation.region()].len() as u64;
        let (processes, first, count, is_word) = match *operation {
            Operation::Read { offset, len, .. } => (&rights.read, offset, len.into(), false),
            Operation::Write { offset, bytes, .. } => {
                (&rights.write, offset, bytes.len() as u64, false)
            }
            Operation::CompareAndSwap { offset, .. } | Operation::FetchAdd { offset, .. } => {
                (&rights.atomics, offset, 8, true)
            }
        };
        if !processes.contains(from) {
            return Some(Reason::NoRight);
        }
        if u128::from(first) + u128::from(count) > u128::from(len) {
            return Some(Reason::OutOfBounds { len });
        }
        (is_word && first % 8 != 0).then_some(Reason::Misaligned)
    }
}

fn word(bytes: &[u8], offset: u64) -> u64 {
    u64::from_le_bytes(*bytes[offset as usize..].first_chunk().expect("in bounds"))
}
