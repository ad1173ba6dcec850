//! What a client learns of the device.

use alloc::string::String;

use crate::values::{PAYLOAD_MAX, STRING_MAX, export_flag};

/// The largest minimum block size that the protocol allows (section "Size constraints").
const MINIMUM_BLOCK_MAX: u32 = 1 << 16;

/// A device under a name, with what its clients may do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Export {
    /// Name that clients choose it by, at most 4,096 bytes; the empty name chooses it as well.
    pub name: String,
    /// Description for people, at most 4,096 bytes; may be empty.
    pub description: String,
    /// Size of the device in bytes, a multiple of the minimum block size.
    pub size: u64,
    /// Whether writes are refused.
    pub is_read_only: bool,
    /// Whether a flush on one connection covers the completed writes of all connections.
    pub is_flush_shared: bool,
    /// Whether the device executes [`Command::Status`](crate::Command::Status).
    pub knows_allocation: bool,
    /// Units of requests.
    pub block_sizes: BlockSizes,
}

/// Units of requests, in bytes (NBD's specification, section "Size constraints").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockSizes {
    /// Alignment of offsets and lengths: a power of two, 1 to 65,536. Default 1.
    pub minimum: u32,
    /// Unit of efficient requests: a power of two, at least 512 and the minimum. Default 4,096.
    pub preferred: u32,
    /// Longest read or write, at least the preferred size. Default 32 MiB.
    pub maximum: u32,
}

impl Default for BlockSizes {
    fn default() -> BlockSizes {
        BlockSizes { minimum: 1, preferred: 4_096, maximum: PAYLOAD_MAX }
    }
}

/// An export that the protocol does not allow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// The name or the description is too long or has a zero byte.
    #[error("the {0} has a zero byte or more than {STRING_MAX} bytes: choose another")]
    Text(&'static str),
    /// The block sizes break a rule.
    #[error(
        "block sizes {minimum}, {preferred}, {maximum}: the minimum must be a power of two up to \
         65536, the preferred a power of two from 512 and the minimum on, and the maximum no less"
    )]
    BlockSizes {
        /// The minimum size.
        minimum: u32,
        /// The preferred size.
        preferred: u32,
        /// The maximum size.
        maximum: u32,
    },
    /// The last bytes of the device could not be addressed.
    #[error("a device of {size} bytes is no multiple of its minimum block size {minimum}")]
    Size {
        /// The size of the device.
        size: u64,
        /// The minimum block size.
        minimum: u32,
    },
}

impl Export {
    /// Checks the rules of the protocol.
    ///
    /// # Errors
    /// If a name is too long, block sizes contradict each other, or the size is not a multiple of
    /// the minimum block size.
    pub fn check(&self) -> Result<(), ExportError> {
        for (text, what) in [(&self.name, "name"), (&self.description, "description")] {
            if text.len() > STRING_MAX || text.contains('\0') {
                return Err(ExportError::Text(what));
            }
        }
        let BlockSizes { minimum, preferred, maximum } = self.block_sizes;
        if !minimum.is_power_of_two()
            || minimum > MINIMUM_BLOCK_MAX
            || !preferred.is_power_of_two()
            || preferred < minimum.max(512)
            || maximum < preferred
        {
            return Err(ExportError::BlockSizes { minimum, preferred, maximum });
        }
        if !self.size.is_multiple_of(u64::from(minimum)) {
            return Err(ExportError::Size { size: self.size, minimum });
        }
        Ok(())
    }

    /// Returns whether a client's name chooses this export: its own name, or the empty one of the
    /// default export (NBD's specification, section "Option types", `NBD_OPT_EXPORT_NAME`).
    pub(crate) fn is_named(&self, name: &[u8]) -> bool {
        name.is_empty() || name == self.name.as_bytes()
    }

    /// Returns the transmission flags.
    pub(crate) fn flags(&self, is_structured: bool) -> u16 {
        use export_flag::{
            CAN_MULTI_CONN, HAS_FLAGS, READ_ONLY, SEND_CACHE, SEND_DF, SEND_FAST_ZERO, SEND_FLUSH,
            SEND_FUA, SEND_TRIM, SEND_WRITE_ZEROES,
        };
        let writes = match self.is_read_only {
            true => READ_ONLY,
            false => SEND_TRIM | SEND_WRITE_ZEROES | SEND_FAST_ZERO,
        };
        let shared = if self.is_flush_shared { CAN_MULTI_CONN } else { 0 };
        // The flag must be clear without structured replies (section "Transmission flags").
        let unfragmented = if is_structured { SEND_DF } else { 0 };
        HAS_FLAGS | SEND_FLUSH | SEND_FUA | SEND_CACHE | writes | shared | unfragmented
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export(size: u64, minimum: u32, preferred: u32, maximum: u32) -> Export {
        let block_sizes = BlockSizes { minimum, preferred, maximum };
        Export {
            name: "disk".into(),
            description: String::new(),
            size,
            is_read_only: false,
            is_flush_shared: true,
            knows_allocation: false,
            block_sizes,
        }
    }

    #[test]
    fn checks_the_rules_of_sizes() {
        for (size, minimum, preferred, maximum) in
            [(1_025, 1, 512, 512), (1_024, 512, 4_096, 1 << 25), (0, 1, 512, u32::MAX)]
        {
            assert_eq!(export(size, minimum, preferred, maximum).check(), Ok(()));
        }
        for (minimum, preferred, maximum) in [
            (0, 512, 512),
            (3, 512, 512),
            (1 << 17, 1 << 17, 1 << 25),
            (1, 256, 512),
            (1_024, 512, 1_024),
            (1, 513, 1_024),
            (1, 4_096, 512),
        ] {
            let refused = export(0, minimum, preferred, maximum).check();
            assert_eq!(refused, Err(ExportError::BlockSizes { minimum, preferred, maximum }));
        }
        let refused = export(1_000, 512, 4_096, 1 << 25).check();
        assert_eq!(refused, Err(ExportError::Size { size: 1_000, minimum: 512 }));
    }

    #[test]
    fn checks_names() {
        let mut named = export(0, 1, 512, 512);
        named.name = "x".repeat(STRING_MAX);
        assert_eq!(named.check(), Ok(()));
        named.name.push('x');
        assert_eq!(named.check(), Err(ExportError::Text("name")));
        named.name = "a\0b".into();
        assert_eq!(named.check(), Err(ExportError::Text("name")));
    }
}
