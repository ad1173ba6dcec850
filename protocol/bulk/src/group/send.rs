//! Submission of objects, at the root.

use onepipe_wire::Extent;

use super::Group;
use crate::Memory;
use crate::event::{SendError, Unsent};
use crate::object::{Object, Shape};

impl<M: Memory> Group<M> {
    //= spec/bulk.md#R12
    /// Sends an object to all other members. Returns its number.
    ///
    /// # Errors
    /// [`Unsent`] with the memory if this member is not the root or cannot send now.
    pub fn send(&mut self, memory: M) -> Result<u32, Unsent<M>> {
        let object = self.window.known();
        let bytes = memory.bytes().len() as u64;
        let extent = Extent {
            bytes,
            block_len: self.config.block_len_of(bytes),
            has_digests: self.config.has_digests,
        };
        let shape = Shape::new(extent, self.config.piece_len());
        let error = match shape {
            _ if self.config.own != 0 => SendError::NotRoot,
            _ if self.membership.is_over() || self.window.total().is_some() => SendError::Closed,
            _ if self.membership.has_failures() => SendError::Failed,
            _ if self.window.is_full() => SendError::Full,
            None => SendError::TooLarge,
            Some(shape) => {
                self.add_object(object, shape);
                self.window.insert(object, Object::complete(shape, memory));
                self.advance();
                return Ok(object);
            }
        };
        Err(Unsent { error, memory })
    }
}
