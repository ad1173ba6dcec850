//! Headers of requests and the rules that they must obey.

use crate::command::Range;
use crate::export::Export;
use crate::failure::{ErrorCode, Failure};
use crate::handshake::Negotiated;
use crate::input::Fields;
use crate::values::{REQUEST_MAGIC, request, request_flag};

/// Length of a header (NBD's specification, section "Request message").
pub const HEADER_LEN: usize = 28;

/// A request without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// Flags of the command.
    pub flags: u16,
    /// Type of the command.
    pub kind: u16,
    /// What the client recognises the reply by; opaque.
    pub cookie: u64,
    /// First byte of the range.
    pub offset: u64,
    /// Length of the range, and of the payload of a write.
    pub length: u32,
}

impl Header {
    /// Parses a header. Returns `None` if the magic number is wrong.
    pub fn parse(bytes: &[u8]) -> Option<Header> {
        let mut fields = Fields(bytes);
        if fields.u32()? != REQUEST_MAGIC {
            return None;
        }
        Some(Header {
            flags: fields.u16()?,
            kind: fields.u16()?,
            cookie: fields.u64()?,
            offset: fields.u64()?,
            length: fields.u32()?,
        })
    }

    /// Returns whether a flag is set.
    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Returns the range of the request.
    pub fn range(&self) -> Range {
        Range { offset: self.offset, length: self.length }
    }

    /// Returns the number of payload bytes that follow the header.
    pub fn payload_len(&self) -> u32 {
        if self.kind == request::WRITE { self.length } else { 0 }
    }

    /// Checks the request against the export (NBD's specification, sections "Size constraints",
    /// "Command flags" and "Error values").
    ///
    /// # Errors
    /// With the error that the protocol names for the first rule that the request breaks.
    pub fn check(&self, export: &Export, negotiated: Negotiated) -> Result<(), Failure> {
        self.check_kind_and_flags(export, negotiated)?;
        if self.kind == request::FLUSH {
            return match (self.offset, self.length) {
                (0, 0) => Ok(()),
                _ => Err(invalid("a flush has neither offset nor length")),
            };
        }
        let minimum = u64::from(export.block_sizes.minimum);
        let is_aligned = |number: u64| number.is_multiple_of(minimum);
        if !is_aligned(self.offset) || !is_aligned(u64::from(self.length)) {
            return Err(invalid("offset and length must be multiples of the minimum block size"));
        }
        self.check_length(export, negotiated.is_structured)?;
        let end = self.offset.checked_add(u64::from(self.length));
        if end.is_none_or(|end| end > export.size) {
            let code = match self.kind {
                request::WRITE | request::WRITE_ZEROES => ErrorCode::NoSpace,
                _ => ErrorCode::Invalid,
            };
            return Err(Failure::new(code, "the request goes beyond the end of the device"));
        }
        Ok(())
    }

    fn check_kind_and_flags(&self, export: &Export, negotiated: Negotiated) -> Result<(), Failure> {
        let specific = match self.kind {
            request::READ if negotiated.is_structured => request_flag::DF,
            request::WRITE_ZEROES => request_flag::NO_HOLE | request_flag::FAST_ZERO,
            request::READ | request::WRITE | request::FLUSH | request::TRIM | request::CACHE => 0,
            request::RESIZE => return Err(invalid("the device cannot be resized")),
            request::BLOCK_STATUS if negotiated.has_allocation => request_flag::REQ_ONE,
            request::BLOCK_STATUS => {
                return Err(invalid("no metadata context was negotiated for a block status"));
            }
            _ => return Err(invalid("the command is unknown")),
        };
        let is_write = matches!(self.kind, request::WRITE | request::TRIM | request::WRITE_ZEROES);
        if is_write && export.is_read_only {
            return Err(Failure::new(ErrorCode::NotPermitted, "the device is read-only"));
        }
        // `FUA` is accepted with every command, as the section "Command flags" demands.
        if self.flags & !(specific | request_flag::FUA) != 0 {
            return Err(invalid("a flag is unknown or does not apply to the command"));
        }
        Ok(())
    }

    /// A command without a payload may be as long as its length field allows.
    fn check_length(&self, export: &Export, is_structured: bool) -> Result<(), Failure> {
        if self.kind == request::BLOCK_STATUS && self.length == 0 {
            return Err(invalid("a block status has a length"));
        }
        let has_payload = matches!(self.kind, request::READ | request::WRITE);
        if !has_payload || self.length <= export.block_sizes.maximum {
            return Ok(());
        }
        let code = match self.kind {
            request::READ if is_structured => ErrorCode::Overflow,
            _ => ErrorCode::Invalid,
        };
        Err(Failure::new(code, "the request is longer than the maximum block size"))
    }
}

fn invalid(message: &'static str) -> Failure {
    Failure::new(ErrorCode::Invalid, message)
}
