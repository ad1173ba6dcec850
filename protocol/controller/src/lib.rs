//! The controller of a fabric: detects failures, assigns failure timestamps and coordinates
//! recovery.
//!
//! The controller is not on the data path: scattering → send → switch → receive → reorder → deliver
//! continues while every controller is down. Only recovery from failures waits.
//!
//! A [`Controller`] is one replica. Nodes *announce* their links to it, and it keeps the graph of
//! instances that these links form (`graph`). When instances lose their path to it, it determines
//! their failure timestamps on the cut between them and the correct part of the graph
//! (`evaluation`, `failure_detection`, `region`), has them recorded (`recorder`, `decisions`,
//! [`Store`]), notifies all processes and collects their completions (`notification_plan`,
//! `broadcast`), and has the frozen links resolved (`releasable`). It also relays frames (`ping`,
//! `send_queue`), serves excluded processes that recover (`recovery`), and refuses a log that lacks
//! decisions (`term`). The argument for correctness is in `docs/design/failure.md`.
//!
//! Each of these stages owns its state; the machine in `controller` passes results from one to the
//! next.
//!
//! The caller campaigns in a [`Store`] and reports the outcome to the machine:
//!
//! ```
//! use onepipe_base::{Controllers, Mono, Now, ProcessId, Timestamp};
//! use onepipe_controller::{Config, Controller, MemoryStore, Store};
//!
//! let now = Now { mono: Mono::from_ns(0), sync: Timestamp::from_ns(1 << 50) };
//! let controllers = Controllers { first: ProcessId(90), count: 3 };
//! let config = Config::new(ProcessId(90), controllers);
//! let mut controller = Controller::new(config).expect("the defaults are valid");
//! let mut store = MemoryStore::new();
//! let epoch = store.campaign(ProcessId(90)).expect("available").expect("not yet active");
//! let records = store.load().expect("available");
//! controller.activate(now, epoch, &records);
//! // After every `handle_*`, next to `poll_transmit` and `poll_event`:
//! while let Some((id, record)) = controller.poll_persist() {
//!     let written = store.append(epoch, &record).map_err(onepipe_controller::PersistError::from);
//!     controller.handle_persisted(now, id, written);
//! }
//! assert!(controller.is_active());
//! ```
//!
//! # Invariants
//! - No frame depends on a decision that the [`Store`] does not hold yet.
//! - An instance of a process has exactly one failure timestamp F, whichever replica reports it.
//! - F is at or above everything that any correct receiver has delivered, and at or below the
//!   process's last promise, unless the failure was counted as inexact.
//! - No frozen link is resolved before every process behind it knows of all failures and has
//!   completed them.
//! - Suspicion follows from reports, never from a clock alone. Clocks only limit how long the
//!   controller waits for reports; a failure decided after such a limit is counted.

#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

mod broadcast;
mod config;
mod controller;
mod decisions;
mod evaluation;
mod event;
mod evidence;
mod failure_detection;
mod graph;
mod notification_plan;
mod own_links;
mod persist_queue;
mod ping;
mod record;
mod recorder;
mod recovery;
mod region;
mod releasable;
mod send_queue;
mod stats;
mod status;
mod store;
mod term;

pub use config::{Config, ConfigError, Links, Recovery};
pub use controller::Controller;
pub use event::Event;
pub use persist_queue::{PersistError, RecordId};
pub use record::{
    Epoch, FailedInstance, Leadership, Member, MemberLink, Record, RecordError, Severed,
};
pub use stats::Stats;
pub use status::{FrozenStatus, MemberState, MemberStatus, Status};
pub use store::{MemoryStore, Store, StoreError, Unavailable};
