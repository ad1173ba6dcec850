//! Why a request failed, as its client receives it.

use alloc::borrow::Cow;

/// Error numbers of the protocol (NBD's specification, section "Error values").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ErrorCode {
    /// A write to a device that is read-only.
    NotPermitted = 1,
    /// The device failed.
    Io = 5,
    /// The request is wrong: its range, alignment, flags or command.
    Invalid = 22,
    /// No free space is left, or a write goes beyond the device.
    NoSpace = 28,
    /// The request is longer than the server accepts.
    Overflow = 75,
    /// Zeroes cannot be written faster than other data.
    NotSupported = 95,
    /// The server is shutting down.
    Shutdown = 108,
}

/// An error with a message for people, which clients with structured replies receive.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Failure {
    /// The number that programs act on.
    pub code: ErrorCode,
    /// What failed, and what to do; its end is cut off after 4,096 bytes.
    pub message: Cow<'static, str>,
}

impl Failure {
    /// Returns an error with a message.
    pub fn new(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Failure {
        Failure { code, message: message.into() }
    }
}
