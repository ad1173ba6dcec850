//! Compact logs of what real processes deliver, and their comparison while they run.
//!
//! Every process of a run sends every scattering to all processes, itself included, and has a
//! [`Log`] of each service. One [`Checker`] takes the [`LogPart`]s of all and finds contradictions
//! between them, at millions of messages per second: a window of time takes as many bytes as there
//! are senders, however many messages it has. The checker also measures how long deliveries paused
//! around a kill. `onepipe demo` and `onepipe bench recovery` check their processes so.
//!
//! ```
//! use onepipe_verify_logs::{Checker, Entry, Log};
//!
//! const WINDOW_NS: u64 = 1_000_000;
//! let mut checker = Checker::new(false, WINDOW_NS, 2);
//! for process in [0, 1] {
//!     let mut log = Log::new(process, 2, WINDOW_NS, 0);
//!     let entry = Entry { timestamp_ns: 10, from: 0, index: 0, sequence: 0, seen_ns: 0 };
//!     log.on_delivered(20, entry);
//!     checker.add(process as usize, log.take(Some(WINDOW_NS)), 30);
//! }
//! let verdict = checker.finish();
//! assert_eq!((verdict.violations, verdict.messages, verdict.windows_full), (0, 2, 1));
//! ```

#![forbid(unsafe_code)]

mod checker;
mod fault;
mod log;
mod pauses;
mod payload;

pub use checker::{Checker, LongestPauses, Verdict};
pub use fault::Fault;
pub use log::{Counts, Entry, Failed, Failure, Log, LogPart, SenderSum, StreamFaults, Window};
pub use pauses::Pause;
use pauses::Pauses;
pub use payload::Payload;
