//! Statuses, and the text of the last error of each thread.

use std::cell::RefCell;
use std::error::Error;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use onepipe::memory::{MemoryError, OperationError, RegionError, RequestError};

/// What a function returns: `onepipe_status` of the header.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The function has done what it says.
    Ok = 0,
    /// An argument is null, no UTF-8, or out of range.
    Argument = 1,
    /// The fabric cannot be joined.
    Join = 2,
    /// The owner refuses the operation.
    Refused = 3,
    /// The operation may have been executed.
    Unknown = 4,
    /// The request exceeds a limit.
    Limit = 5,
    /// This process has left.
    Left = 6,
    /// The time is over.
    Timeout = 7,
    /// A bug of this library.
    Bug = 8,
}

/// Why a function does not return [`Status::Ok`].
pub(crate) struct Failure {
    status: Status,
    text: String,
}

impl Failure {
    pub(crate) fn new(status: Status, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }

    /// Makes a failure of an error with its causes.
    pub(crate) fn of(status: Status, error: &dyn Error) -> Self {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        Self { status, text }
    }
}

impl From<RegionError> for Failure {
    fn from(error: RegionError) -> Self {
        let status = match error {
            RegionError::Left => Status::Left,
            _ => Status::Refused,
        };
        Self::new(status, error.to_string())
    }
}

impl From<OperationError> for Failure {
    fn from(error: OperationError) -> Self {
        let status = match &error {
            OperationError::Failed { reason: MemoryError::Refused(_), .. } => Status::Refused,
            OperationError::Request(RequestError::Left) => Status::Left,
            error if error.may_be_executed() => Status::Unknown,
            _ => Status::Limit,
        };
        Self::new(status, error.to_string())
    }
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// Runs a function of the interface. Notes the text of its failure.
pub(crate) fn run(call: impl FnOnce() -> Result<(), Failure>) -> Status {
    let result = catch_unwind(AssertUnwindSafe(call))
        .unwrap_or_else(|_| Err(Failure::new(Status::Bug, "the library has panicked")));
    let Failure { status, text } = match result {
        Ok(()) => return Status::Ok,
        Err(failure) => failure,
    };
    // The text ends where C ends it.
    let text: Vec<u8> = text.into_bytes().into_iter().filter(|byte| *byte != 0).collect();
    let text = CString::new(text).unwrap_or_default();
    LAST_ERROR.with(|last| *last.borrow_mut() = text);
    status
}

/// Returns the text of the last error of the calling thread, valid until its next call.
#[unsafe(no_mangle)]
pub extern "C" fn onepipe_error() -> *const c_char {
    LAST_ERROR.with(|last| last.borrow().as_ptr())
}
