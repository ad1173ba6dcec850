//! Regions: bytes, and which processes may do what with them.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use onepipe_base::ProcessId;
use onepipe_base::mistake::{Mistake, makes};

use crate::operation::{Operation, Outcome, WORD_LEN};
use crate::reply::Reason;

/// Processes that have a right.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Processes {
    /// No process but the owner's application.
    None,
    /// The processes of this list.
    Only(BTreeSet<ProcessId>),
    /// All processes.
    All,
}

impl Processes {
    /// Returns whether a process is among them.
    pub fn contains(&self, process: ProcessId) -> bool {
        match self {
            Self::None => false,
            Self::Only(processes) => processes.contains(&process),
            Self::All => true,
        }
    }
}

/// What processes may do with a region.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rights {
    /// Processes that may read.
    pub read: Processes,
    /// Processes that may write.
    pub write: Processes,
    /// Processes that may compare-and-swap and fetch-and-add.
    pub atomics: Processes,
}

impl Rights {
    /// Returns all rights for all processes.
    pub fn all() -> Self {
        Self { read: Processes::All, write: Processes::All, atomics: Processes::All }
    }

    /// Returns the right to read for all processes.
    pub fn read_only() -> Self {
        Self { read: Processes::All, write: Processes::None, atomics: Processes::None }
    }

    fn allow(&self, process: ProcessId, operation: &Operation<'_>) -> bool {
        let processes = match operation {
            Operation::Read { .. } => &self.read,
            Operation::Write { .. } => &self.write,
            Operation::CompareAndSwap { .. } | Operation::FetchAdd { .. } => &self.atomics,
        };
        processes.contains(process)
    }
}

/// Registered memory. `B` has the bytes: a vector, or a mapped file. Their number must not change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Region<B = Vec<u8>> {
    bytes: B,
    rights: Rights,
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Region<B> {
    /// Creates a region.
    pub fn new(bytes: B, rights: Rights) -> Self {
        Self { bytes, rights }
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_ref()
    }

    /// Returns the bytes for the owner's application. What it writes has no timestamp: it comes
    /// between two batches.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes.as_mut()
    }

    /// Returns the rights.
    pub fn rights(&self) -> &Rights {
        &self.rights
    }

    /// Replaces the rights, for batches that are executed from now on.
    pub fn set_rights(&mut self, rights: Rights) {
        self.rights = rights;
    }

    /// Returns why an operation of a process must not be executed, if so.
    pub(crate) fn refuses(&self, process: ProcessId, operation: &Operation<'_>) -> Option<Reason> {
        let len = self.bytes().len() as u64;
        let (offset, count) = operation.range();
        let end = offset.checked_add(count);
        // The mistake compares the first byte alone.
        let end = if makes(Mistake::BoundOfFirstByte) { Some(offset) } else { end };
        let is_word = operation.writes() && !matches!(operation, Operation::Write { .. });
        if !self.rights.allow(process, operation) {
            Some(Reason::NoRight)
        } else if end.is_none_or(|end| end > len) {
            Some(Reason::OutOfBounds { len })
        } else if is_word && !offset.is_multiple_of(WORD_LEN) {
            Some(Reason::Misaligned)
        } else {
            None
        }
    }

    /// Executes an operation that [`Region::refuses`] does not refuse.
    pub(crate) fn execute(&mut self, operation: &Operation<'_>) -> Outcome {
        let (offset, count) = operation.range();
        let range = offset as usize..(offset + count) as usize;
        debug_assert!(range.end <= self.bytes().len(), "bounds were checked");
        match operation {
            Operation::Read { .. } => Outcome::Read(self.bytes()[range].to_vec()),
            Operation::Write { bytes, .. } => {
                self.bytes_mut()[range].copy_from_slice(bytes);
                Outcome::Written
            }
            Operation::CompareAndSwap { expected, new, .. } => {
                let previous = self.word(offset);
                let is_swapped = previous == *expected;
                if is_swapped {
                    self.set_word(offset, *new);
                }
                Outcome::Compared { previous, is_swapped }
            }
            Operation::FetchAdd { addend, .. } => {
                let previous = self.word(offset);
                self.set_word(offset, previous.wrapping_add(*addend));
                Outcome::Added { previous }
            }
        }
    }

    fn word(&self, offset: u64) -> u64 {
        let word = self.bytes()[offset as usize..].first_chunk().expect("bounds were checked");
        u64::from_le_bytes(*word)
    }

    fn set_word(&mut self, offset: u64, value: u64) {
        let bytes = &mut self.bytes_mut()[offset as usize..];
        *bytes.first_chunk_mut().expect("bounds were checked") = value.to_le_bytes();
    }
}
