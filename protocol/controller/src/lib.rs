//! Who has failed, when, and who has been told: the controller of a fabric.
//!
//! It stands beside the way of a message, not in it: scattering → send → switch → receive →
//! reorder → deliver goes on while every controller is down. Only recovery from failures waits.
//!
//! A [`Controller`] is one replica. Nodes *announce* their links to it, and it keeps the graph of
//! lives that they make (`graph`). When lives have no path to it any more, it finds their failure
//! timestamps on the cut between them and the rest (`suspects`), has them written down (`persist_queue`,
//! `decisions`, [`Store`]), tells everybody and waits until all have done what that asks for
//! (`broadcast`), and has the frozen links resolved (`controller/plan`). Beside that it hands
//! frames on (`ping`) and answers who has failed and comes back (`recovery`). Why all this is
//! right stands in `docs/design/failure.md`.
//!
//! Its world campaigns in a [`Store`] and tells it the outcome:
//!
//! ```
//! use onepipe_base::{Controllers, Mono, Now, ProcessId, Timestamp};
//! use onepipe_controller::{Config, Controller, MemoryStore, Store};
//!
//! let now = Now { mono: Mono::from_ns(0), sync: Timestamp::from_ns(1 << 50) };
//! let controllers = Controllers { first: ProcessId(90), count: 3 };
//! let config = Config::new(ProcessId(90), controllers);
//! let mut controller = Controller::new(config).expect("the defaults make sense");
//! let mut store = MemoryStore::new();
//! let epoch = store.campaign(ProcessId(90)).expect("it answers").expect("nobody else is active");
//! let records = store.load().expect("it answers");
//! controller.activate(now, epoch, &records);
//! // Then, behind every `handle_*`, beside `poll_transmit` and `poll_event`:
//! while let Some((id, record)) = controller.poll_persist() {
//!     let written = store.append(epoch, &record).map_err(onepipe_controller::Refused::from);
//!     controller.handle_persisted(now, id, written);
//! }
//! assert!(controller.is_active());
//! ```
//!
//! # Invariants
//! - No frame depends on a decision that the [`Store`] does not hold yet.
//! - A life of a process has one failure timestamp, for ever, whichever replica says it.
//! - F is at or above whatever any correct receiver has delivered, and at or below what the process
//!   has promised, unless it was counted as inexact.
//! - No frozen link is resolved before everybody behind it knows of all failures and has completed
//!   them.
//! - Who is suspected is decided by reports, never by a clock alone; clocks only say when to stop
//!   waiting for reports, and then that is counted.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod broadcast;
mod config;
mod controller;
mod decisions;
mod event;
mod graph;
mod persist_queue;
mod ping;
mod record;
mod recovery;
mod region;
mod send_queue;
mod stats;
mod status;
mod store;
mod suspects;

pub use config::{Config, ConfigError, Links, Recovery};
pub use controller::Controller;
pub use event::Event;
pub use persist_queue::{PersistError, RecordId};
pub use record::{FailedInstance, Leadership, Member, MemberLink, Record, RecordError, Severed};
pub use stats::Stats;
pub use status::{FrozenStatus, MemberState, MemberStatus, Status};
pub use store::{Epoch, MemoryStore, Store, StoreError, Unavailable};
