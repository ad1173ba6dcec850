//! Replies to requests (NBD's specification, sections "Simple reply message", "Structured reply
//! chunk message" and "Structured reply types").

use alloc::vec::Vec;

use crate::command::Extent;
use crate::failure::Failure;
use crate::output::Output;
use crate::values::{SIMPLE_REPLY_MAGIC, STRING_MAX, STRUCTURED_REPLY_MAGIC, allocation, chunk};

/// Writes replies in the form that was negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReplyForm {
    /// Whether replies are chunks.
    pub is_structured: bool,
}

impl ReplyForm {
    /// Sends that a command without data is complete.
    pub fn push_done(self, cookie: u64, output: &mut Output) {
        match self.is_structured {
            true => push_chunk(cookie, chunk::NONE, 0, output),
            false => push_simple(cookie, 0, output),
        }
    }

    /// Sends the bytes that were read. They are all in memory: no error can follow, so that one
    /// chunk is the whole reply, as a client with the flag `DF` demands.
    pub fn push_data(self, cookie: u64, offset: u64, data: Vec<u8>, output: &mut Output) {
        debug_assert!(!data.is_empty(), "a chunk of data describes at least one byte");
        match self.is_structured {
            true => {
                push_chunk(cookie, chunk::OFFSET_DATA, 8 + data.len(), output);
                output.push(&offset.to_be_bytes());
            }
            false => push_simple(cookie, 0, output),
        }
        output.push_data(data);
    }

    /// Sends the states of extents.
    pub fn push_extents(self, cookie: u64, extents: &[Extent], output: &mut Output) {
        push_chunk(cookie, chunk::BLOCK_STATUS, 4 + 8 * extents.len(), output);
        output.push(&allocation::ID.to_be_bytes());
        for extent in extents {
            let hole = if extent.is_allocated { 0 } else { allocation::HOLE };
            let zero = if extent.is_zero { allocation::ZERO } else { 0 };
            output.push(&extent.length.to_be_bytes());
            output.push(&(hole | zero).to_be_bytes());
        }
    }

    /// Sends an error, with its message if replies are chunks.
    pub fn push_failure(self, cookie: u64, failure: &Failure, output: &mut Output) {
        let code = failure.code as u32;
        if !self.is_structured {
            return push_simple(cookie, code, output);
        }
        let message = failure.message.as_bytes();
        let message = &message[..failure.message.floor_char_boundary(STRING_MAX)];
        push_chunk(cookie, chunk::ERROR, 6 + message.len(), output);
        output.push(&code.to_be_bytes());
        // At most 4,096.
        output.push(&(message.len() as u16).to_be_bytes());
        output.push(message);
    }
}

fn push_simple(cookie: u64, error: u32, output: &mut Output) {
    output.push(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    output.push(&error.to_be_bytes());
    output.push(&cookie.to_be_bytes());
}

fn push_chunk(cookie: u64, kind: u16, length: usize, output: &mut Output) {
    output.push(&STRUCTURED_REPLY_MAGIC.to_be_bytes());
    output.push(&chunk::DONE.to_be_bytes());
    output.push(&kind.to_be_bytes());
    output.push(&cookie.to_be_bytes());
    let length = u32::try_from(length).expect("lengths are checked with each request");
    output.push(&length.to_be_bytes());
}
