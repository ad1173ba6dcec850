//! Instructions that some processors have, as calls that are safe on all.
//!
//! `[processor]` lies under those machines that count each instruction:
//! request → **give out a timeslot** → schedule.
//!
//! A build for plain x86-64 may not use them unasked. Here each group of them is a value of no
//! size, and there is one only where the processor that runs this has them. So whoever holds it may
//! call them, and who holds none does the same in another way.
//!
//! ```
//! use onepipe_processor::Bits;
//!
//! if let Some(bits) = Bits::detect() {
//!     assert_eq!(bits.deposit(0b011, 0b1011_0000), 0b0011_0000);
//! }
//! ```
//!
//! # Invariants
//! - What comes out of a call is fixed by what goes in, on every processor: so equal inputs give
//!   equal outputs wherever a machine runs, with these instructions and without.
//! - Nothing but this crate and what touches an operating system has unsafe code.

#![no_std]

mod bits;
mod lines;
mod sieve;

pub use bits::Bits;
pub use lines::{Line, Lines};
pub use sieve::{Marks, Mesh, Sieve};
