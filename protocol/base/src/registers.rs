//! Barrier registers: the promises of each input link, and their minimum.

use alloc::vec::Vec;

use crate::{Mono, Port, Promises, Timestamp};

//= spec/failure.md#R3
//= spec/ordering.md#R7
/// The promises of a node's input links, and their minimum over the live links (1Pipe section 4).
///
/// A link is live from its first promise until [`Registers::expire`] or [`Registers::remove`] takes
/// it out. An *unfed* link ([`Registers::update_unfed`]) is live, but its other end has no live
/// input and so promises nothing: the link takes no part in the minimum. Its beacons carry a *mark*
/// instead, a timestamp above every promise sent before; the link counts again from the first
/// barrier at or above the mark. The owner keeps its output as `out = max(out, minimum)`: the
/// output stands still while a joining link catches up, and never moves back (I9).
///
/// The two lowest promises are cached, so that the minimum *without one link*
/// ([`Registers::minimum_except`]) needs no pass over the links: the promise of a switch to a
/// process does not wait for that process's own promise.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Registers {
    last_seen: Vec<Mono>,
    barrier: Column,
    commit: Column,
    live: u32,
    /// Per link, the commits held by dead instances at its other end. Empty until the first freeze.
    holds: Vec<Hold>,
    /// Per live unfed link, the highest mark received; [`NONE`] if the link is fed or dead. Empty
    /// while no link is unfed.
    marks: Vec<u64>,
    /// Whether an unfed link holds commits.
    has_unfed_commit: bool,
}

/// What holds the commit register of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Hold {
    /// The lowest last commit of the dead instances; [`NONE`] if nothing is held.
    held: u64,
    /// The commit promised by the instance that came after them; counted once the hold ends.
    deferred: u64,
}

const NO_HOLD: Hold = Hold { held: NONE, deferred: NONE };

impl Registers {
    /// Returns registers for links `0..count`, none of them live.
    pub fn new(count: u16) -> Self {
        let count = usize::from(count);
        Self {
            last_seen: alloc::vec![Mono::from_ns(0); count],
            barrier: Column::new(count),
            commit: Column::new(count),
            live: 0,
            holds: Vec::new(),
            marks: Vec::new(),
            has_unfed_commit: false,
        }
    }

    //= spec/ordering.md#R13
    /// Records promises received on `port`. A promise never decreases: the stronger of the old and
    /// the new one counts. Ignores unknown ports. Returns whether the link was not live before.
    ///
    /// Ignores a barrier below the mark of an unfed link, because it was sent before the mark.
    #[inline]
    pub fn update(&mut self, now: Mono, port: Port, promises: Promises) -> bool {
        let index = port.index();
        let Some(last_seen) = self.last_seen.get_mut(index) else { return false };
        *last_seen = now;
        let mut is_new = self.barrier.values[index] == NONE;
        if is_new && self.mark(index) != NONE {
            if promises.barrier.as_ns() < self.mark(index) {
                return false;
            }
            self.set_mark(index, NONE);
            is_new = false;
        }
        self.live += u32::from(is_new);
        self.barrier.raise(index, promises.barrier.as_ns());
        if self.holds.is_empty() {
            self.commit.raise(index, promises.commit.as_ns());
        } else {
            self.raise_commit(index, promises.commit.as_ns());
        }
        is_new
    }

    //= spec/failure.md#R15
    /// Records that `port` is up but unfed: the link is live, and takes no part in the barrier
    /// until a barrier of at least `mark` arrives. `held` is the commit that dead instances behind
    /// the link hold. Returns whether the link was not live before.
    ///
    /// A lower mark than one received before is stale: it only proves that the link is live.
    pub fn update_unfed(
        &mut self,
        now: Mono,
        port: Port,
        mark: Timestamp,
        held: Option<Timestamp>,
    ) -> bool {
        let index = port.index();
        let Some(last_seen) = self.last_seen.get_mut(index) else { return false };
        *last_seen = now;
        let mark = mark.as_ns().min(NONE - 1);
        let (promised, known) = (self.barrier.values[index], self.mark(index));
        let is_new = (promised, known) == (NONE, NONE);
        let is_stale = match known {
            NONE => promised != NONE && mark <= promised,
            known => mark < known,
        };
        if is_stale {
            return false;
        }
        self.live += u32::from(is_new);
        self.barrier.set(index, NONE);
        match held {
            Some(held) => self.raise_commit(index, held.as_ns()),
            None => self.forget_commit(index),
        }
        self.set_mark(index, mark);
        is_new
    }

    fn mark(&self, index: usize) -> u64 {
        self.marks.get(index).copied().unwrap_or(NONE)
    }

    fn set_mark(&mut self, index: usize, mark: u64) {
        if self.marks.is_empty() {
            self.marks = alloc::vec![NONE; self.last_seen.len()];
        }
        self.marks[index] = mark;
        let commits = self.marks.iter().zip(&self.commit.values);
        self.has_unfed_commit =
            commits.into_iter().any(|(mark, commit)| *mark != NONE && *commit != NONE);
        if self.marks.iter().all(|mark| *mark == NONE) {
            self.marks.clear();
        }
    }

    /// Drops the commit of link `index`, except for what dead instances hold.
    fn forget_commit(&mut self, index: usize) {
        let held = self.holds.get_mut(index).map_or(NONE, |hold| {
            hold.deferred = NONE;
            hold.held
        });
        self.commit.set(index, held);
    }

    /// As [`Column::raise`] on the commits, but respects the hold of the link, if it has one.
    #[cold]
    fn raise_commit(&mut self, index: usize, commit: u64) {
        let Some(hold) = self.holds.get_mut(index).filter(|hold| hold.held != NONE) else {
            return self.commit.raise(index, commit);
        };
        let commit = commit.min(NONE - 1);
        hold.deferred = if hold.deferred == NONE { commit } else { hold.deferred.max(commit) };
        let value = hold.held.min(hold.deferred);
        self.commit.set(index, value);
    }

    /// Raises the commit of the live link `port` to one that its other end is known to have
    /// reached.
    pub fn assume_commit(&mut self, port: Port, commit: Timestamp) {
        if self.is_live(port) {
            self.raise_commit(port.index(), commit.as_ns());
        }
    }

    //= spec/failure.md#R13
    /// Takes a live link out of the barrier, but holds its commit until [`Registers::hold`] changes
    /// the hold (docs/design/failure.md, "What happens on a dead link?"). Returns the last commit
    /// promised on the link; `None` when the link was not live, or holds no commit and should be
    /// removed instead.
    pub fn freeze(&mut self, port: Port) -> Option<Timestamp> {
        let index = port.index();
        if !self.is_live(port) || self.promises_no_commit(port) {
            return None;
        }
        if self.holds.is_empty() {
            self.holds = alloc::vec![NO_HOLD; self.last_seen.len()];
        }
        let hold = &mut self.holds[index];
        let last = if hold.held == NONE { self.commit.values[index] } else { hold.deferred };
        *hold = Hold { held: hold.held.min(last), deferred: NONE };
        let held = hold.held;
        self.live -= 1;
        self.barrier.set(index, NONE);
        self.commit.set(index, held);
        self.unmark(index);
        Some(Timestamp::from_ns(last))
    }

    //= spec/failure.md#R13
    /// Changes the commit at which `port` is held to `held`. `None` ends the hold: then the
    /// promises received since the freeze count again, if there were any.
    pub fn hold(&mut self, port: Port, held: Option<Timestamp>) {
        let Some(hold) = self.holds.get_mut(port.index()) else { return };
        if hold.held == NONE {
            return;
        }
        hold.held = held.map_or(NONE, Timestamp::as_ns);
        let value = hold.held.min(hold.deferred);
        self.commit.set(port.index(), value);
        if self.holds.iter().all(|hold| hold.held == NONE) {
            self.holds.clear();
        }
    }

    /// Returns the minimum over all live links; `None` while there is none.
    #[inline]
    pub fn minimum(&self) -> Option<Promises> {
        promises(self.barrier.lowest.0, self.commit.lowest.0)
    }

    /// Returns the minimum over all live links except `port`; `None` while there is no other.
    #[inline]
    pub fn minimum_except(&self, port: Port) -> Option<Promises> {
        let index = port.index();
        promises(self.barrier.except(index), self.commit.except(index))
    }

    /// Returns the lowest commit over all live or held links; unlike [`Registers::minimum`] also
    /// while no link is live.
    pub fn commit_floor(&self) -> Option<Timestamp> {
        commit(self.commit.lowest.0)
    }

    /// Returns the lowest commit over all live or held links except `port`.
    pub fn commit_floor_except(&self, port: Port) -> Option<Timestamp> {
        commit(self.commit.except(port.index()))
    }

    /// Returns whether any commit is held by a link that takes no part in the barrier: for dead
    /// instances at its other end, or, on an unfed link, for dead instances farther away.
    #[inline]
    pub fn has_holds(&self) -> bool {
        !self.holds.is_empty() || self.has_unfed_commit
    }

    /// Returns whether `port` is live and the live instance at its other end promises no commit.
    pub fn promises_no_commit(&self, port: Port) -> bool {
        let index = port.index();
        let commit = match self.holds.get(index).filter(|hold| hold.held != NONE) {
            Some(hold) => hold.deferred,
            None => self.commit.values.get(index).copied().unwrap_or(NONE),
        };
        self.is_live(port) && commit == NONE
    }

    /// Returns whether dead instances hold the commit of `port`.
    pub fn is_held(&self, port: Port) -> bool {
        self.holds.get(port.index()).is_some_and(|hold| hold.held != NONE)
    }

    /// Returns the promises of `port`, if it is live and fed.
    #[inline]
    pub fn get(&self, port: Port) -> Option<Promises> {
        let index = port.index();
        promises(*self.barrier.values.get(index)?, self.commit.values[index])
    }

    /// Returns when a live link was last updated.
    #[inline]
    pub fn last_seen(&self, port: Port) -> Option<Mono> {
        self.is_live(port).then(|| self.last_seen[port.index()])
    }

    /// Returns whether `port` is live, fed or not.
    #[inline]
    pub fn is_live(&self, port: Port) -> bool {
        self.get(port).is_some() || self.mark(port.index()) != NONE
    }

    /// Returns the number of live links.
    pub fn live_count(&self) -> u32 {
        self.live
    }

    //= spec/ordering.md#R15
    /// Removes every live link last updated before `deadline`, and calls `lost` for each.
    pub fn expire(&mut self, deadline: Mono, mut lost: impl FnMut(Port)) {
        for index in 0..self.last_seen.len() {
            if self.last_seen[index] < deadline && self.remove(Port(index as u16)) {
                lost(Port(index as u16));
            }
        }
    }

    /// Removes `port` at once, as on a graceful leave. Returns whether it was live. Commits held by
    /// dead instances stay held.
    pub fn remove(&mut self, port: Port) -> bool {
        let was_live = self.is_live(port);
        if was_live {
            self.live -= 1;
            self.barrier.set(port.index(), NONE);
            self.forget_commit(port.index());
            self.unmark(port.index());
        }
        was_live
    }

    fn unmark(&mut self, index: usize) {
        if !self.marks.is_empty() {
            self.set_mark(index, NONE);
        }
    }

    /// Returns a live link without an update since `deadline`, if there is one.
    pub fn idle_since(&self, deadline: Mono) -> Option<Port> {
        let is_idle =
            |index: &usize| self.is_live(Port(*index as u16)) && self.last_seen[*index] < deadline;
        (0..self.last_seen.len()).find(is_idle).map(|index| Port(index as u16))
    }

    /// Returns the time of the least recent update of any live link.
    pub fn oldest_update(&self) -> Option<Mono> {
        let live = |index: &usize| self.is_live(Port(*index as u16));
        (0..self.last_seen.len()).filter(live).map(|index| self.last_seen[index]).min()
    }
}

//= spec/ordering.md#R14
/// Stands for "no promise": above every timestamp, and so never the minimum. A promise of the end
/// of time (584 years) is stored as one nanosecond less.
const NONE: u64 = u64::MAX;

#[inline]
fn promises(barrier: u64, commit: u64) -> Option<Promises> {
    (barrier != NONE).then(|| Promises {
        barrier: Timestamp::from_ns(barrier),
        commit: Timestamp::from_ns(commit),
    })
}

fn commit(ns: u64) -> Option<Timestamp> {
    (ns != NONE).then(|| Timestamp::from_ns(ns))
}

/// One value per link, with the two lowest cached.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Column {
    values: Vec<u64>,
    /// `(value, index)` of the lowest value, and of the lowest among the others.
    lowest: (u64, usize),
    second: (u64, usize),
}

impl Column {
    fn new(count: usize) -> Self {
        let none = (NONE, usize::MAX);
        Self { values: alloc::vec![NONE; count], lowest: none, second: none }
    }

    #[inline]
    fn raise(&mut self, index: usize, value: u64) {
        let (old, value) = (self.values[index], value.min(NONE - 1));
        if old == NONE || value > old {
            self.set(index, value);
        }
    }

    /// Sets a value. Searches only if one of the two lowest values rises past the second-lowest.
    #[inline]
    fn set(&mut self, index: usize, value: u64) {
        self.values[index] = value;
        if index == self.lowest.1 {
            if value < self.second.0 {
                self.lowest.0 = value;
            } else {
                self.lowest = self.second;
                self.seek_second();
            }
        } else if value < self.lowest.0 {
            (self.lowest, self.second) = ((value, index), self.lowest);
        } else if value < self.second.0 {
            self.second = (value, index);
        } else if index == self.second.1 {
            self.seek_second();
        }
    }

    /// Searches the second-lowest value, starting after `lowest` and wrapping around. In a round of
    /// beacons the links rise one after the other, and the next one is usually as low as the
    /// lowest: the search ends there.
    #[inline(never)]
    fn seek_second(&mut self) {
        let (lowest, lowest_at) = self.lowest;
        self.second = (NONE, usize::MAX);
        if lowest_at == usize::MAX {
            return;
        }
        for index in (lowest_at + 1..self.values.len()).chain(0..lowest_at) {
            let value = self.values[index];
            if value < self.second.0 {
                self.second = (value, index);
                if value == lowest {
                    return;
                }
            }
        }
    }

    #[inline]
    fn except(&self, index: usize) -> u64 {
        if index == self.lowest.1 { self.second.0 } else { self.lowest.0 }
    }
}

#[cfg(test)]
mod tests;
