//! Requests: the arguments of commands, read from a stream of bytes.
//!
//! A client sends an array of bulk strings, or an inline command. No request needs more of RESP, in
//! either version of the protocol. The reader takes the bytes of a request as they arrive, so that
//! none is looked at twice.

use bytes::{Buf, BytesMut};
use thiserror::Error;

use super::inline;
use super::options::FrontOptions;

/// The largest bulk string of the protocol: `proto-max-bulk-len` of Redis.
pub(super) const BULK_MAX: usize = 512 << 20;
/// The largest number of arguments of a command.
const ARGUMENTS_MAX: usize = 1 << 20;
/// The longest line: an inline command, or a length.
pub(super) const LINE_MAX: usize = 64 << 10;
/// The memory of an argument besides its bytes.
const ARGUMENT_OVERHEAD: usize = 32;
/// Limits of Redis for a client that has not authenticated.
const UNAUTHENTICATED_ARGUMENTS_MAX: usize = 10;
const UNAUTHENTICATED_BULK_MAX: usize = 16 << 10;

/// Bytes that are not RESP, in the words of Redis. The connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum ProtocolError {
    #[error("ERR Protocol error: invalid multibulk length")]
    ArrayLength,
    #[error("ERR Protocol error: invalid bulk length")]
    BulkLength,
    #[error("ERR Protocol error: unauthenticated multibulk length")]
    UnauthenticatedArray,
    #[error("ERR Protocol error: unauthenticated bulk length")]
    UnauthenticatedBulk,
    #[error("ERR Protocol error: expected '$', got '{}'", char::from(*.0))]
    NotBulk(u8),
    #[error("ERR Protocol error: too big mbulk count string")]
    ArrayLine,
    #[error("ERR Protocol error: too big bulk count string")]
    BulkLine,
    #[error("ERR Protocol error: too big inline request")]
    InlineLine,
    #[error("ERR Protocol error: unbalanced quotes in request")]
    Quotes,
}

/// A request that has been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// The command with its arguments; there is at least one.
    Command {
        arguments: Vec<Vec<u8>>,
        /// Memory of the arguments, in bytes.
        bytes: usize,
    },
    /// The command is too large. Its bytes have been discarded; the next request follows.
    TooLarge(TooLarge),
    /// The bytes are not RESP.
    Invalid(ProtocolError),
}

/// A limit that a request exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum TooLarge {
    #[error("ERR an argument of {bytes} bytes exceeds the limit of {max} bytes (value_max)")]
    Value { bytes: usize, max: usize },
    #[error("ERR the command exceeds the limit of {max} bytes (transaction_bytes_max)")]
    Command { max: usize },
}

/// Reads requests.
#[derive(Debug)]
pub(super) struct RequestReader {
    value_max: usize,
    bytes_max: usize,
    stage: Stage,
    arguments: Vec<Vec<u8>>,
    bytes: usize,
    too_large: Option<TooLarge>,
}

/// What the next bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// A request begins.
    Begin,
    /// The length of a bulk string; `left` arguments are missing.
    Length { left: usize },
    /// The bytes of a bulk string with CR and LF, of which `missing` are missing.
    Bulk { left: usize, missing: usize },
}

type Result<T> = core::result::Result<T, ProtocolError>;

impl RequestReader {
    pub(super) fn new(options: &FrontOptions) -> Self {
        Self {
            value_max: options.value_max,
            bytes_max: options.transaction_bytes_max,
            stage: Stage::Begin,
            arguments: Vec::new(),
            bytes: 0,
            too_large: None,
        }
    }

    /// Takes the next request from the front of `input`; `None` if it is not complete. After
    /// [`Request::Invalid`] the stream has no further requests.
    pub(super) fn next(&mut self, input: &mut BytesMut, is_authenticated: bool) -> Option<Request> {
        match self.read(input, is_authenticated) {
            Ok(request) => request,
            Err(error) => Some(Request::Invalid(error)),
        }
    }

    fn read(&mut self, input: &mut BytesMut, is_authenticated: bool) -> Result<Option<Request>> {
        loop {
            self.stage = match self.stage {
                Stage::Begin => match input.first() {
                    None => return Ok(None),
                    Some(b'*') => {
                        let Some(length) = take_length(input, ProtocolError::ArrayLine)? else {
                            return Ok(None);
                        };
                        match array_length(length, is_authenticated)? {
                            0 => Stage::Begin,
                            left => {
                                self.arguments.reserve(left.min(UNAUTHENTICATED_ARGUMENTS_MAX));
                                Stage::Length { left }
                            }
                        }
                    }
                    Some(_) => {
                        let Some(words) = take_inline(input)? else { return Ok(None) };
                        let has_words = !words.is_empty();
                        words.into_iter().for_each(|word| self.admit(word.len(), word));
                        match has_words {
                            true => return Ok(Some(self.finish())),
                            false => Stage::Begin,
                        }
                    }
                },
                Stage::Length { left: 0 } => return Ok(Some(self.finish())),
                Stage::Length { left } => {
                    match input.first() {
                        None => return Ok(None),
                        Some(b'$') => {}
                        Some(other) => return Err(ProtocolError::NotBulk(*other)),
                    }
                    let Some(length) = take_length(input, ProtocolError::BulkLine)? else {
                        return Ok(None);
                    };
                    let length = bulk_length(length, is_authenticated)?;
                    self.admit(length, Vec::with_capacity(length.min(input.len())));
                    Stage::Bulk { left, missing: length + 2 }
                }
                Stage::Bulk { left, missing } => match self.take_bulk(input, missing) {
                    0 => Stage::Length { left: left - 1 },
                    missing => {
                        self.stage = Stage::Bulk { left, missing };
                        return Ok(None);
                    }
                },
            };
        }
    }

    /// Counts an argument of `length` bytes, of which `argument` are there. If it makes the request
    /// too large, the bytes of the request are discarded from now on.
    fn admit(&mut self, length: usize, argument: Vec<u8>) {
        self.bytes = self.bytes.saturating_add(length + ARGUMENT_OVERHEAD);
        let too_large = if length > self.value_max {
            TooLarge::Value { bytes: length, max: self.value_max }
        } else if self.bytes > self.bytes_max {
            TooLarge::Command { max: self.bytes_max }
        } else {
            if self.too_large.is_none() {
                self.arguments.push(argument);
            }
            return;
        };
        self.too_large.get_or_insert(too_large);
        self.arguments = Vec::new();
    }

    /// Takes bytes of the last argument. Returns the number of bytes that are missing still.
    fn take_bulk(&mut self, input: &mut BytesMut, missing: usize) -> usize {
        let taken = missing.min(input.len());
        // The last two bytes are CR and LF, which Redis does not check either.
        let content = taken.min(missing.saturating_sub(2));
        if self.too_large.is_none()
            && let Some(argument) = self.arguments.last_mut()
        {
            argument.extend_from_slice(&input[..content]);
        }
        input.advance(taken);
        missing - taken
    }

    fn finish(&mut self) -> Request {
        self.stage = Stage::Begin;
        let bytes = std::mem::take(&mut self.bytes);
        let arguments = std::mem::take(&mut self.arguments);
        match self.too_large.take() {
            Some(too_large) => Request::TooLarge(too_large),
            None => Request::Command { arguments, bytes },
        }
    }
}

/// Takes the line of a length, whose first byte is its type; `None` if the line is not complete.
/// The length is `None` if it is not a number.
fn take_length(input: &mut BytesMut, too_long: ProtocolError) -> Result<Option<Option<i64>>> {
    let Some(end) = memchr::memchr(b'\r', &input[..input.len().min(LINE_MAX + 1)]) else {
        return match input.len() > LINE_MAX {
            true => Err(too_long),
            false => Ok(None),
        };
    };
    // The byte after CR is LF, which Redis does not check either.
    if input.len() < end + 2 {
        return Ok(None);
    }
    let length = parse_integer(&input[1..end]);
    input.advance(end + 2);
    Ok(Some(length))
}

fn take_inline(input: &mut BytesMut) -> Result<Option<Vec<Vec<u8>>>> {
    let Some(end) = memchr::memchr(b'\n', &input[..input.len().min(LINE_MAX + 1)]) else {
        return match input.len() > LINE_MAX {
            true => Err(ProtocolError::InlineLine),
            false => Ok(None),
        };
    };
    let line = &input[..end];
    let words = inline::split(line.strip_suffix(b"\r").unwrap_or(line));
    input.advance(end + 1);
    words.map(Some).ok_or(ProtocolError::Quotes)
}

/// Returns the number of arguments. A negative number is none.
fn array_length(length: Option<i64>, is_authenticated: bool) -> Result<usize> {
    let length = length.ok_or(ProtocolError::ArrayLength)?;
    match usize::try_from(length).unwrap_or(0) {
        length if length > ARGUMENTS_MAX => Err(ProtocolError::ArrayLength),
        length if length > UNAUTHENTICATED_ARGUMENTS_MAX && !is_authenticated => {
            Err(ProtocolError::UnauthenticatedArray)
        }
        length => Ok(length),
    }
}

fn bulk_length(length: Option<i64>, is_authenticated: bool) -> Result<usize> {
    let length = length.and_then(|length| usize::try_from(length).ok());
    match length.ok_or(ProtocolError::BulkLength)? {
        length if length > BULK_MAX => Err(ProtocolError::BulkLength),
        length if length > UNAUTHENTICATED_BULK_MAX && !is_authenticated => {
            Err(ProtocolError::UnauthenticatedBulk)
        }
        length => Ok(length),
    }
}

/// Parses an integer as Redis does: without `+`, spaces or leading zeros.
pub(super) fn parse_integer(bytes: &[u8]) -> Option<i64> {
    let digits = bytes.strip_prefix(b"-").unwrap_or(bytes);
    match digits {
        [b'0'] => (bytes.len() == 1).then_some(0),
        [b'1'..=b'9', ..] => std::str::from_utf8(bytes).ok()?.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
