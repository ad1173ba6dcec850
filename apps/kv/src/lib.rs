//! A transactional key-value store that speaks Redis commands: the parts without I/O.
//!
//! arguments → [`Command`] → [`Plan`] → parts of a transaction → `[store]` → results → [`Value`]
//!
//! A client parses its commands and plans one transaction for all of them: one command, or a block
//! of `MULTI` and `EXEC`. The plan has at most one part for each shard. Every replica of a shard
//! has a [`Store`], which executes the parts in the order of their timestamps. From the results of
//! all shards the plan then makes one reply to each command.
//!
//! ```
//! use onepipe_base::Timestamp;
//! use onepipe_kv::{Command, Plan, Store, Value};
//! use onepipe_transaction::State;
//!
//! let line = |line: &str| {
//!     line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>()
//! };
//! let commands = [Command::parse(&line("MSET a 1 b 2"))?, Command::parse(&line("INCR b"))?];
//! let plan = Plan::new(&commands, 4);
//! let mut shards: [Store; 4] = Default::default();
//! let mut results = Vec::new();
//! for (shard, part) in plan.parts() {
//!     let mut result = Vec::new();
//!     shards[usize::from(*shard)].execute(Timestamp::from_ns(1), part, &mut result);
//!     results.push((*shard, result));
//! }
//! let results: Vec<(u16, &[u8])> = results.iter().map(|(s, r)| (*s, r.as_slice())).collect();
//! assert_eq!(plan.replies(&results)?, [Value::Ok, Value::Integer(3)]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Invariants
//! - The state after a part is a function of the state before it, the part and its timestamp. There
//!   is no clock: a key expires by the timestamps of transactions.
//! - The operations of a transaction are independent: none has the result of another as its input.
//!   A command that would need the value of one shard on another is refused with an error.
//! - An operation that fails has an error as its result and changes nothing. The other operations
//!   of the transaction still happen, as in Redis.
//! - No bytes of a part, a result or a saved state cause a panic.
//!
//! # Differences from Redis
//! - `RENAME`, `RENAMENX`, `COPY`, `MSETNX`, `SMOVE`, `LMOVE`, `RPOPLPUSH` and the commands that
//!   store a combination of sets need all their keys on one shard.
//! - Fields of hashes and members of sets are returned in order. There are no commands that choose
//!   at random, none that block, and no ranges by name (`BYLEX`).
//! - A wrong argument is an error whatever the key holds, also where Redis looks at the key first.
//! - `INCRBYFLOAT` adds decimal numbers exactly. Scores are written as in Redis 7.2, and −0 is 0.
//!   Hexadecimal numbers (`0x10`) are refused.
//! - Expiries are exact to the nanosecond. A relative one is at most 292 years, and an absolute one
//!   lies at most in the year 2262.
//! - A call of `SCAN` reads one shard.

#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

mod codec;
mod command;
mod decimal;
mod glob;
mod integer;
mod key;
mod operation;
mod plan;
mod score;
mod slot;
mod store;
mod value;

pub use command::{Access, Command, CommandError, KeyPositions, Spec};
pub use plan::{Plan, ReplyError};
pub use score::Score;
pub use slot::{SLOTS, shard_of, slot_of};
pub use store::Store;
pub use value::Value;
