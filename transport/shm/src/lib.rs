//! Shared memory as a fabric: many processes of one machine, without a daemon or root privileges.
//!
//! scattering → send → `[shm]` → receive → reorder → deliver
//!
//! A *segment* is a file in `/dev/shm`. Each process has a part of it: a promise word, an arena of
//! frame slots, and a ring of slot numbers to every other process. A machine writes its frame into
//! private memory, from where it is copied into a slot as a whole; the receiver's machine reads it
//! there. (Written in place, each of the machine's small stores would wait for a line that is in
//! the cache of the slot's last reader.) A short frame is copied into an *inline cell* beside the
//! ring instead, at an address known to the receiver, which prefetches it together with the entry.
//! [`Shm`] is a process's attachment, a [`onepipe_transport_driver::Transport`].
//!
//! # Coherent memory replaces the switch
//! What a switch computes from beacons, a receiver reads from the promise word of each process
//! (docs/design/ordering.md, "Why are there no beacons on shared memory?"). The word says either
//! *idle*, or *active(f)*: everything being sent is at or above the floor *f*.
//!
//! A sender with something to send (1) stores *active(its promise)*, (2) executes a full fence, (3)
//! reads the clock, (4) stamps frames, writes them and publishes their entries, (5) stores *idle*.
//! A receiver (1) reads the clock: *t*, (2) reads the promise words, (3) drains the rings, (4)
//! concludes from each word: *idle* → everything that follows is at or above *t*; *active(f)* → at
//! or above *f*.
//!
//! *Correctness.* Let the receiver have read *idle*. Whatever was published before that *idle* was
//! stored is visible, and is taken out of the ring in step 3, before the promise is used. Whatever
//! the sender stamps later, it first stored *active* after the *idle* that was read; so the read
//! precedes that store in the modification order of the word, and (fences on both sides) *t* was
//! read before the sender read its clock. All processes of a segment compute time from one
//! invariant counter that all cores share, by one [`onepipe_transport_clock::Calibration`] stored
//! in the segment; so the sender's clock shows *t* or later, and the sender stamps with its clock
//! or above. (A machine stamps with [`onepipe_base::Slew`], which returns `now.sync` exactly while
//! `sync − mono` is constant, as it is for this clock: use [`Shm::clock`], and do not step it or
//! make it follow another.) Let the receiver have read *active(f)*: everything stamped in this
//! burst is at or above the machine's own promise *f*, and what was published before is likewise
//! taken out in step 3. `tests/loom.rs` runs promise word and ring through every interleaving, with
//! the clock as a counter that orders nothing else.
//!
//! A receiver that waits for no promise reads the words rarely, because each read costs the sender
//! exclusive ownership of the cache line.
//!
//! So an idle, blocked or computing process adds no latency, and no beacons are needed. A process
//! that dies while active changes its word no more: a receiver that waits for it queries the kernel
//! within a millisecond or so, and takes the link down.
//!
//! # Liveness
//! The kernel knows which processes are alive: a process id is held by a file lock that is released
//! when the process dies. Promises of a dead process are ignored; slots in flight to it are
//! reclaimed. Frames it has published are still delivered. A restarted process skips everything
//! sent to its previous incarnation, and does not reuse slots that others still read. A receiver
//! that has stopped, alive or not, holds no more than its share of a sender's slots; frames beyond
//! that are dropped and counted. Senders wait for a merely slow receiver, for a bounded time and if
//! need be within a burst. A process that is stopped (`SIGSTOP`) while active is alive all the
//! same: receivers that wait for its promise go on without it after the endpoint's link timeout.
//!
//! # Memory
//! Nothing is touched before its memory is reserved, so a full memory file system is an error or
//! backpressure and never a signal (docs/design/ordering.md, "How much memory does a fabric of
//! shared memory take?").
//!
//! # Trust
//! All processes of a segment run as one user (only that user can open the file). Numbers read from
//! the segment are checked, and frames are checked by their machines: a faulty process costs
//! frames, never a panic or an access out of bounds.
//!
//! A process that shortens the file ends the others by an error, not by a signal
//! (docs/spec/ordering.md, R84). At the first mapping, a handler of SIGBUS is installed in the
//! process. When a page is missing, the handler maps zeros over the whole segment and marks it as
//! lost. Everything in it then looks as in a segment without processes; promises are ignored,
//! because a promise word of 0 says *idle*. [`Shm::loss`] returns the error once the next turn has
//! compared the membership epoch, as each turn does; waits end in bounded time, since callers wake
//! up for their own deadlines. A page of a pool reads as zeros from then on ([`Page::is_lost`]),
//! and the pool gives out no more pages. The handler passes every other SIGBUS on to the one that
//! was installed before. A process has at most 4,096 mappings; beyond that, attaching and
//! allocating fail, so that every mapping is protected.

mod arena;
mod config;
mod error;
mod futex;
mod inbound;
mod lock;
mod mapping;
mod mapping_table;
mod memory;
mod outbound;
mod page_pool;
mod promise;
mod ring;
mod segment;
mod shm;
mod sigbus;
mod sleep;
mod stale;
mod stats;
mod sync;

pub use config::Config;
pub use error::{AttachError, SegmentLost};
pub use page_pool::{PAGE_LOCATION_LEN, Page, PageLocation, PageMut, PagePool, PageReader};
pub use shm::Shm;
pub use stale::{remove_stale_segments, stale_segments};
pub use stats::Stats;

#[cfg(test)]
mod tests;
