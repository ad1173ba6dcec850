//! A region of another process.

use onepipe_base::{ProcessId, Timestamp};
use onepipe_memory::{Executed, MemoryError, Operation, Outcome, RegionId};

use super::error::OperationError;
use crate::Pipe;

/// A region of another process, or of this one: each function sends one request and waits for its
/// result. Made by [`Pipe::remote`].
///
/// Offsets and lengths are in bytes. Words have 8 bytes, little endian, and their offsets are
/// multiples of 8. The waits are bounded: after
/// [`ClientOptions::give_up_ns`](super::ClientOptions::give_up_ns) the owner is given up.
///
/// ```
/// use onepipe::memory::{OperationError, RegionId, Rights};
/// use onepipe::{Pipe, ProcessId};
///
/// let fabric = format!("doc-remote-{}", std::process::id());
/// let mut owner = Pipe::builder().fabric(&fabric).process(0).join()?;
/// let mut client = Pipe::builder().fabric(&fabric).process(1).join()?;
/// owner.register(RegionId(1), vec![0; 64], Rights::read_only())?;
/// let mut region = client.remote(ProcessId(0), RegionId(1));
/// assert_eq!(region.read(0, 4)?, [0; 4]);
/// let error = region.read(60, 8).expect_err("the region ends before");
/// assert_eq!(
///     error.to_string(),
///     "cannot read bytes 60..68 of region 1 of process 0: operation 0 is refused: out of bounds: \
///      the region has 64 bytes"
/// );
/// let error = region.write(0, b"mine").expect_err("the region is read-only");
/// assert!(matches!(error, OperationError::Failed { .. }) && !error.may_be_executed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RemoteRegion<'p> {
    pipe: &'p mut Pipe,
    owner: ProcessId,
    region: RegionId,
}

impl<'p> RemoteRegion<'p> {
    pub(crate) fn new(pipe: &'p mut Pipe, owner: ProcessId, region: RegionId) -> Self {
        Self { pipe, owner, region }
    }

    /// The process that owns the region.
    pub fn owner(&self) -> ProcessId {
        self.owner
    }

    /// The region's number.
    pub fn region(&self) -> RegionId {
        self.region
    }

    /// Reads `len` bytes from `offset` on.
    ///
    /// # Errors
    /// [`OperationError`]: the owner refuses to, has ended or does not answer.
    pub fn read(&mut self, offset: u64, len: u32) -> Result<Vec<u8>, OperationError> {
        let operation = Operation::Read { region: self.region, offset, len };
        match self.one(operation)?.1 {
            Outcome::Read(bytes) => Ok(bytes),
            _ => Err(self.unexpected(&operation)),
        }
    }

    /// Writes bytes from `offset` on. Returns the timestamp at which they were written.
    ///
    /// # Errors
    /// [`OperationError`]: the owner refuses to, has ended or does not answer.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<Timestamp, OperationError> {
        let operation = Operation::Write { region: self.region, offset, bytes };
        match self.one(operation)? {
            (at, Outcome::Written) => Ok(at),
            _ => Err(self.unexpected(&operation)),
        }
    }

    /// Replaces the word at `offset` by `new` if it is `expected`. Returns the word before: it was
    /// replaced if that is `expected`.
    ///
    /// # Errors
    /// [`OperationError`]: the owner refuses to, has ended or does not answer.
    pub fn compare_and_swap(
        &mut self,
        offset: u64,
        expected: u64,
        new: u64,
    ) -> Result<u64, OperationError> {
        let operation = Operation::CompareAndSwap { region: self.region, offset, expected, new };
        match self.one(operation)?.1 {
            Outcome::Compared { previous, .. } => Ok(previous),
            _ => Err(self.unexpected(&operation)),
        }
    }

    /// Adds to the word at `offset`, modulo 2^64. Returns the word before.
    ///
    /// # Errors
    /// [`OperationError`]: the owner refuses to, has ended or does not answer.
    pub fn fetch_add(&mut self, offset: u64, addend: u64) -> Result<u64, OperationError> {
        let operation = Operation::FetchAdd { region: self.region, offset, addend };
        match self.one(operation)?.1 {
            Outcome::Added { previous } => Ok(previous),
            _ => Err(self.unexpected(&operation)),
        }
    }

    /// Executes one operation.
    fn one(&mut self, operation: Operation<'_>) -> Result<(Timestamp, Outcome), OperationError> {
        let answers = self.pipe.execute(&[(self.owner, &[operation])])?;
        // A completed request has an answer of each owner.
        let answer = answers.into_iter().next().map(|(_, answer)| answer);
        let executed = answer.unwrap_or(Err(MemoryError::Unanswered));
        let Executed { at, outcomes } =
            executed.map_err(|reason| self.failed(&operation, reason))?;
        match outcomes.into_iter().next() {
            Some(outcome) => Ok((at, outcome)),
            None => Err(self.failed(&operation, MemoryError::Unanswered)),
        }
    }

    fn failed(&self, operation: &Operation<'_>, reason: MemoryError) -> OperationError {
        let (owner, region, operation) = (self.owner, self.region, describe(operation));
        OperationError::Failed { owner, region, operation, reason }
    }

    /// Returns the error of an outcome of another operation: the owner misbehaves, and may have
    /// done anything.
    #[cold]
    fn unexpected(&self, operation: &Operation<'_>) -> OperationError {
        self.failed(operation, MemoryError::Unanswered)
    }
}

/// Returns what an operation does, for people.
fn describe(operation: &Operation<'_>) -> String {
    match operation {
        Operation::Read { offset, len, .. } => {
            format!("read bytes {offset}..{}", u128::from(*offset) + u128::from(*len))
        }
        Operation::Write { offset, bytes, .. } => {
            format!("write bytes {offset}..{}", u128::from(*offset) + bytes.len() as u128)
        }
        Operation::CompareAndSwap { offset, .. } => format!("compare and swap the word {offset}"),
        Operation::FetchAdd { offset, .. } => format!("add to the word {offset}"),
    }
}
