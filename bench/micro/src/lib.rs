//! Benchmarks of the parts, each against a yardstick measured in the same run.
//!
//! An absolute number says little on a shared machine. So every case runs the part and a well-known
//! implementation of the same work alternately, at least three times each, and reports medians and
//! their ratio: above 1 is always better than the yardstick.
//!
//! ```
//! use onepipe_bench_micro::{Better, Harness};
//!
//! let mut harness = Harness::new("sum", "adding 1 to 9; yardstick: the same, backwards");
//! harness.measure("n=9", "ns", Better::Lower, || Ok(40.0), || Ok(50.0))?;
//! let report = harness.finish();
//! assert_eq!(report.results[0].ratio, 1.25);
//! println!("{report}");
//! # Ok::<(), anyhow::Error>(())
//! ```
//!
//! # Invariants
//! - Both sides of a case get the same input, and a side with a wrong result is an error.
//! - A report names its hardware and the spread of its runs.

#![forbid(unsafe_code)]

mod amcast;
mod arbiter;
mod block;
mod bulk;
mod child;
mod children;
mod cleanup;
mod endpoint;
mod hardware;
mod harness;
mod hosts;
mod kv;
mod light;
mod machine_cpu;
mod memory;
mod order;
mod pair;
mod peers;
mod processes;
mod recovery_sim;
mod reorder;
mod report;
mod rival_process;
mod sim;
mod stopwatch;
mod switch;
mod switch_process;
mod table;

pub use amcast::{AmcastOptions, amcast};
pub use arbiter::{
    ArbiterOptions, CommOptions, Incast, IncastOutcome, IncastPhase, IncastSnapshot,
    IncastTimeslots, RealtimeOptions, arbiter_alloc, arbiter_comm, arbiter_path, arbiter_realtime,
};
pub use block::{
    BlockOptions, BlockRecovery, BlockRecoveryOptions, BlockRecoveryReport, block, block_peers,
    block_peers_obstacle, block_recovery,
};
pub use bulk::{BulkMemory, BulkOptions, bulk};
pub use child::worker;
pub use children::WORKER;
pub use endpoint::{EndpointOptions, endpoint, message_ns};
pub use hardware::Hardware;
pub use harness::{Better, Harness, Progress, RUNS_MIN};
pub use kv::{KvCase, KvLoad, KvOptions, KvReport, KvSide, kv};
pub use light::{LightOptions, idle, light};
pub use memory::{MemoryOptions, memory};
pub use order::{OrderOptions, order};
pub use pair::{PairOptions, pair_reliable, pair_shm, pair_udp};
pub use peers::{PeersOptions, peers};
pub use processes::RivalMethod;
pub use recovery_sim::{RecoverySimOptions, recovery_sim};
pub use reorder::{ReorderOptions, Reordered, reorder, reordered};
pub use report::{Case, Detail, Digest, Report};
pub use sim::{SimOptions, sim};
pub use switch::{SwitchOptions, beacon_cores, switch};
pub use table::{TableOptions, table};

/// Ends the processes that benchmarks have started and removes their files; for a process that is
/// about to exit, as no process can be started afterwards.
pub fn cleanup() {
    children::cleanup_children();
    cleanup::cleanup_resources();
    peers::cleanup_peers();
    kv::cleanup_kv();
}
