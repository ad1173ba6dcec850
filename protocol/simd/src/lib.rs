//! Optional processor instructions behind safe calls.
//!
//! `[simd]` is used where instructions count: request → **allocate timeslots** → schedule, and
//! send → **seal** → switch.
//!
//! A build for plain x86-64 may not use these instructions unconditionally. Each group of them is a
//! zero-sized capability that exists only if the processor has them: a caller that holds the
//! capability may use the instructions, any other falls back to portable code. [`crc32c`] chooses
//! by itself, because its callers have nowhere to hold a capability.
//!
//! ```
//! use onepipe_simd::Bits;
//!
//! if let Some(bits) = Bits::detect() {
//!     assert_eq!(bits.deposit(0b011, 0b1011_0000), 0b0011_0000);
//! }
//! ```
//!
//! # Invariants
//! - The result of a call depends only on its arguments, on every processor: equal inputs give
//!   equal outputs with and without these instructions.
//! - Unsafe code is confined to this crate and those that call the operating system.

#![no_std]
#![warn(missing_docs)]

mod bits;
mod blocks;
mod crc32c;
mod partition;

pub use bits::Bits;
pub use blocks::{MaskedCopy, WordBlock};
pub use crc32c::crc32c;
pub use partition::{BitTable, PartitionKernel, PartitionTables};
