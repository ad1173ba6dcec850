//! A hash table in the registered memory of pipes.
//!
//! A process of a shard calls [`serve`], and nothing else: the thread that drives its pipe executes
//! what clients do. A client has a [`Table`].
//!
//! ```
//! use onepipe::{Pipe, ProcessId};
//! use onepipe_table_server::{Layout, Table, serve};
//!
//! let fabric = format!("doc-table-{}", std::process::id());
//! let join = |process| Pipe::builder().fabric(&fabric).process(process).join();
//! let layout = Layout { shards: 1, buckets: 1_024, nodes: 2_048, value_len: 5 };
//! // Two replicas of the only shard.
//! let (mut one, mut other) = (join(0)?, join(1)?);
//! serve(&mut one, layout, 0)?;
//! serve(&mut other, layout, 0)?;
//!
//! let replicas = vec![vec![ProcessId(0), ProcessId(1)]];
//! let mut table = Table::new(join(2)?, layout, replicas);
//! assert!(table.insert(7, b"seven")?);
//! assert!(!table.insert(7, b"again")?, "the key is in the table");
//! assert_eq!(table.look_up(7)?, Some(b"seven".to_vec()));
//! assert!(table.remove(7)?);
//! assert_eq!(table.look_up(7)?, None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod requests;
mod table;

pub use onepipe_table::{Finished, Layout, OperationId, Outcome, TableError, TableStats};
pub use requests::PipeRequests;
pub use table::{DEFAULT_LIMIT, Table, serve};
