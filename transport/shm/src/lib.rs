//! Shared memory as a fabric: many processes of one machine, no daemon, no root.
//!
//! scattering → send → `[shm]` → receive → reorder → deliver
//!
//! A *segment* is a file in `/dev/shm`. Each process has a place in it: a promise line, an arena of
//! frame slots, and a ring of slot numbers to everybody else. A machine writes its frame straight
//! into a slot; the receiver's machine reads it there. A short frame is copied into a *nook* beside
//! the ring, where the receiver looks for it, so that it is there when its entry is. [`Shm`] is a
//! process's place, a [`onepipe_transport_driver::Transport`].
//!
//! # Coherent memory is the switch (ordering.md section 6)
//! What a switch computes from beacons, a receiver here reads from one line of each process. It
//! says either *idle*, or *active, all of it at or above this floor*.
//!
//! A sender with something to send (1) stores *active(its promise)*, (2) a full fence, (3) reads
//! the clock, (4) stamps frames, writes them and publishes their entries, (5) stores *idle*.
//! A receiver (1) reads the clock: *t*, (2) looks at the lines, (3) empties the rings, (4) hears
//! from each line: *idle* → everything that follows is at or above *t*; *active(f)* → at or above
//! *f*.
//!
//! *Why that is true.* Let the receiver have seen *idle*. Whatever was published before that *idle*
//! was stored is visible, and is taken out of the ring in step 3, before anything is heard.
//! Whatever the sender stamps later, it first stored *active* after the *idle* that was seen; so
//! the look came before that store in the order of the line, so (fences on both sides) *t* was read
//! before the sender read its clock. All processes of a segment compute time from one counter,
//! invariant and the same on all cores, by one [`onepipe_transport_clock::Calibration`], stored in
//! the segment: so the sender's clock shows *t* or later, and it stamps with its clock or above. (A
//! machine stamps with [`onepipe_base::Slew`], which answers `now.sync` exactly while `sync − mono`
//! is constant, as it is for this clock: use [`Shm::clock`], and do not make it step or follow
//! another.) Let the receiver have seen *active(f)*: everything that is stamped in this burst is at
//! or above the machine's own promise *f*, and what was published before it is taken out in step 3
//! likewise.
//! `tests/loom.rs` runs line and ring through every interleaving, with the clock as a counter that
//! orders nothing else.
//!
//! A receiver that waits for no promise seldom looks: looking would cost the sender the line.
//!
//! So an idle, blocked or busily computing process costs nobody any latency, and no beacons are
//! needed. A process that dies while active says nothing more: whoever waits for it asks the kernel
//! within a millisecond or so, and unlinks it.
//!
//! # Life and death
//! The kernel knows who is alive: a place is held by a lock that dies with the process. From a dead
//! process nothing is heard; slots in flight to it come back. What it has published is still
//! delivered. Its next life starts behind everything that was sent to the former one, and does not
//! touch slots that others still read. A receiver that has stopped, alive or not, takes no more
//! than its share of a sender's slots; frames beyond that are dropped and counted. Senders wait,
//! for a bounded time and if need be within a burst, for one that is merely slow. One that is
//! stopped (`SIGSTOP`) while active is alive all the same: whoever waits for its promise goes on
//! without it after the endpoint's link timeout.
//!
//! # Trust
//! All processes of a segment run as one user (the file is theirs alone). Numbers read from the
//! segment are checked, and frames are checked by their machines: a process that goes wrong costs
//! frames, never a panic or an access out of bounds.

mod arena;
mod config;
mod error;
mod futex;
mod inbound;
mod lock;
mod mapping;
mod outbound;
mod page_pool;
mod promise;
mod ring;
mod segment;
mod shm;
mod sleep;
mod stale;
mod stats;
mod sync;

pub use config::Config;
pub use error::AttachError;
pub use page_pool::{PAGE_LOCATION_LEN, Page, PageLocation, PageMut, PagePool, PageReader};
pub use shm::Shm;
pub use stale::remove_stale_segments;
pub use stats::Stats;

#[cfg(test)]
mod tests;
