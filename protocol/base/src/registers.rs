//! Barrier registers: one pair per input link, and their minimum.

use alloc::vec::Vec;

use crate::{Mono, Port, Promises, Timestamp};

/// The promises of a node's input links and what they promise together: the minimum over the live
/// ones (design: ordering.md section 3).
///
/// A link is live from the first promise heard on it until [`Registers::expire`] or
/// [`Registers::remove`] takes it out. The owner keeps its output as `out = max(out, minimum)`:
/// that holds the output still while a newcomer catches up, and never moves it back (I9).
///
/// The lowest and the second-lowest promise are kept, so that the minimum *without one link*
/// ([`Registers::except`]) costs no pass over the links either: what a switch tells a process need
/// not wait for that process's own promise.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Registers {
    heard: Vec<Mono>,
    barrier: Column,
    commit: Column,
    live: u32,
    /// Per link, what dead lives of its other end hold commits at. Empty until the first freeze.
    holds: Vec<Hold>,
}

/// What holds the commit register of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Hold {
    /// The last commit of the dead life, the lowest of several; [`SILENT`]: none.
    held: u64,
    /// What the life that came after it has promised, set aside.
    aside: u64,
}

const NO_HOLD: Hold = Hold { held: SILENT, aside: SILENT };

impl Registers {
    /// Registers for links `0..count`, none of them live.
    pub fn new(count: u16) -> Self {
        let count = usize::from(count);
        Self {
            heard: alloc::vec![Mono::from_ns(0); count],
            barrier: Column::new(count),
            commit: Column::new(count),
            live: 0,
            holds: Vec::new(),
        }
    }

    /// Notes that `port` promised this. A promise never weakens: the stronger of old and new holds.
    /// Unknown ports are ignored. Answers whether the link was not live before.
    #[inline]
    pub fn hear(&mut self, now: Mono, port: Port, promises: Promises) -> bool {
        let index = port.index();
        let Some(heard) = self.heard.get_mut(index) else { return false };
        *heard = now;
        let is_new = self.barrier.values[index] == SILENT;
        self.live += u32::from(is_new);
        self.barrier.raise(index, promises.barrier.as_ns());
        if self.holds.is_empty() {
            self.commit.raise(index, promises.commit.as_ns());
        } else {
            self.raise_commit(index, promises.commit.as_ns());
        }
        is_new
    }

    /// As [`Column::raise`] while some link is held.
    #[cold]
    fn raise_commit(&mut self, index: usize, commit: u64) {
        let hold = &mut self.holds[index];
        if hold.held == SILENT {
            return self.commit.raise(index, commit);
        }
        let commit = commit.min(SILENT - 1);
        hold.aside = if hold.aside == SILENT { commit } else { hold.aside.max(commit) };
        let value = hold.held.min(hold.aside);
        self.commit.set(index, value);
    }

    /// Takes a live link out of the barrier, but holds its commit where it is until
    /// [`Registers::hold`] says otherwise (design: failure.md, "What happens on a dead link?").
    /// Answers the last commit that was promised on it, or `None` when it was not live.
    pub fn freeze(&mut self, port: Port) -> Option<Timestamp> {
        let index = port.index();
        if !self.is_live(port) {
            return None;
        }
        if self.holds.is_empty() {
            self.holds = alloc::vec![NO_HOLD; self.heard.len()];
        }
        let hold = &mut self.holds[index];
        let last = if hold.held == SILENT { self.commit.values[index] } else { hold.aside };
        *hold = Hold { held: hold.held.min(last), aside: SILENT };
        let held = hold.held;
        self.live -= 1;
        self.barrier.set(index, SILENT);
        self.commit.set(index, held);
        Some(Timestamp::from_ns(last))
    }

    /// Holds the commit of `port` at `held` from now on, or nowhere: then what was promised since
    /// the freeze counts, or nothing if nothing was.
    pub fn hold(&mut self, port: Port, held: Option<Timestamp>) {
        let Some(hold) = self.holds.get_mut(port.index()) else { return };
        if hold.held == SILENT {
            return;
        }
        hold.held = held.map_or(SILENT, Timestamp::as_ns);
        let value = hold.held.min(hold.aside);
        self.commit.set(port.index(), value);
        if self.holds.iter().all(|hold| hold.held == SILENT) {
            self.holds.clear();
        }
    }

    /// The minimum over all live links; `None` while there is none.
    #[inline]
    pub fn all(&self) -> Option<Promises> {
        promises(self.barrier.lowest.0, self.commit.lowest.0)
    }

    /// The minimum over all live links but `port`; `None` while there is no other.
    #[inline]
    pub fn except(&self, port: Port) -> Option<Promises> {
        let index = port.index();
        promises(self.barrier.except(index), self.commit.except(index))
    }

    /// The lowest commit over all links that are live or held; unlike [`Registers::all`] also while
    /// no link is live.
    pub fn commit_floor(&self) -> Option<Timestamp> {
        commit(self.commit.lowest.0)
    }

    /// The lowest commit over all links but `port` that are live or held.
    pub fn commit_floor_except(&self, port: Port) -> Option<Timestamp> {
        commit(self.commit.except(port.index()))
    }

    /// Whether dead lives hold the commit of any link.
    #[inline]
    pub fn has_holds(&self) -> bool {
        !self.holds.is_empty()
    }

    /// Whether dead lives hold the commit of `port`.
    pub fn is_held(&self, port: Port) -> bool {
        self.holds.get(port.index()).is_some_and(|hold| hold.held != SILENT)
    }

    /// What `port` has promised, if it is live.
    pub fn get(&self, port: Port) -> Option<Promises> {
        let index = port.index();
        promises(*self.barrier.values.get(index)?, self.commit.values[index])
    }

    /// Whether `port` takes part in the minimum.
    pub fn is_live(&self, port: Port) -> bool {
        self.get(port).is_some()
    }

    /// How many links take part.
    pub fn live(&self) -> u32 {
        self.live
    }

    /// Takes every live link last heard before `deadline` out, and calls `lost` with it.
    pub fn expire(&mut self, deadline: Mono, mut lost: impl FnMut(Port)) {
        for index in 0..self.heard.len() {
            if self.heard[index] < deadline && self.remove(Port(index as u16)) {
                lost(Port(index as u16));
            }
        }
    }

    /// Takes `port` out at once, as on a graceful leave. Answers whether it was live. What a dead
    /// life holds stays held.
    pub fn remove(&mut self, port: Port) -> bool {
        let was_live = self.is_live(port);
        if was_live {
            self.live -= 1;
            self.barrier.set(port.index(), SILENT);
            let held = self.holds.get_mut(port.index()).map_or(SILENT, |hold| {
                hold.aside = SILENT;
                hold.held
            });
            self.commit.set(port.index(), held);
        }
        was_live
    }

    /// The live link that has been silent since before `deadline`, if there is one.
    pub fn silent_since(&self, deadline: Mono) -> Option<Port> {
        let is_silent =
            |index: &usize| self.barrier.values[*index] != SILENT && self.heard[*index] < deadline;
        (0..self.heard.len()).find(is_silent).map(|index| Port(index as u16))
    }

    /// When the live link that has been silent longest was last heard.
    pub fn oldest_heard(&self) -> Option<Mono> {
        let live = |index: &usize| self.barrier.values[*index] != SILENT;
        (0..self.heard.len()).filter(live).map(|index| self.heard[index]).min()
    }
}

/// Marks a link that has promised nothing: above every timestamp, so that it never is the minimum.
/// A promise of the end of time itself (584 years) is held as the nanosecond before.
const SILENT: u64 = u64::MAX;

#[inline]
fn promises(barrier: u64, commit: u64) -> Option<Promises> {
    (barrier != SILENT).then(|| Promises {
        barrier: Timestamp::from_ns(barrier),
        commit: Timestamp::from_ns(commit),
    })
}

fn commit(ns: u64) -> Option<Timestamp> {
    (ns != SILENT).then(|| Timestamp::from_ns(ns))
}

/// One value a link, with the two lowest at hand.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Column {
    values: Vec<u64>,
    /// `(value, index)` of the lowest and of the lowest among the others.
    lowest: (u64, usize),
    second: (u64, usize),
}

impl Column {
    fn new(count: usize) -> Self {
        let none = (SILENT, usize::MAX);
        Self { values: alloc::vec![SILENT; count], lowest: none, second: none }
    }

    #[inline]
    fn raise(&mut self, index: usize, value: u64) {
        let (held, value) = (self.values[index], value.min(SILENT - 1));
        if held == SILENT || value > held {
            self.set(index, value);
        }
    }

    /// A pass over the links is needed only when one of the two lowest changes, or undercuts them.
    #[inline]
    fn set(&mut self, index: usize, value: u64) {
        self.values[index] = value;
        if index == self.lowest.1 || index == self.second.1 || value < self.second.0 {
            self.rescan();
        }
    }

    fn rescan(&mut self) {
        self.lowest = (SILENT, usize::MAX);
        self.second = self.lowest;
        for (index, &value) in self.values.iter().enumerate() {
            if value < self.lowest.0 {
                self.second = self.lowest;
                self.lowest = (value, index);
            } else if value < self.second.0 {
                self.second = (value, index);
            }
        }
    }

    #[inline]
    fn except(&self, index: usize) -> u64 {
        if index == self.lowest.1 { self.second.0 } else { self.lowest.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn promise(ns: u64) -> Promises {
        Promises { barrier: Timestamp::from_ns(ns), commit: Timestamp::from_ns(ns / 2) }
    }

    #[test]
    fn silent_links_do_not_count_and_dead_ones_are_taken_out() {
        let mut registers = Registers::new(3);
        assert_eq!(registers.all(), None);
        assert!(registers.hear(Mono::from_ns(5), Port(0), promise(100)));
        assert!(registers.hear(Mono::from_ns(9), Port(2), promise(60)));
        assert_eq!(registers.all(), Some(promise(60)));
        assert_eq!(registers.except(Port(2)), Some(promise(100)));
        assert_eq!(registers.oldest_heard(), Some(Mono::from_ns(5)));

        let mut lost = Vec::new();
        registers.expire(Mono::from_ns(9), |port| lost.push(port));
        assert_eq!(lost, [Port(0)]);
        assert_eq!((registers.live(), registers.except(Port(2))), (1, None));
    }

    #[test]
    fn an_unknown_port_changes_nothing() {
        let mut registers = Registers::new(2);
        assert!(!registers.hear(Mono::from_ns(0), Port(7), promise(1)));
        assert_eq!((registers.all(), registers.remove(Port(7))), (None, false));
    }

    #[test]
    fn a_frozen_link_holds_commits_and_no_barrier_until_it_is_resolved() {
        let mut registers = Registers::new(2);
        registers.hear(Mono::from_ns(0), Port(0), promise(100));
        registers.hear(Mono::from_ns(0), Port(1), promise(40));
        let commit = |registers: &Registers| registers.all().map(|all| all.commit.as_ns());
        assert_eq!(registers.freeze(Port(1)), Some(Timestamp::from_ns(20)));
        assert_eq!(registers.freeze(Port(1)), None);
        registers.hear(Mono::from_ns(1), Port(0), promise(200));
        let all = registers.all().expect("one is live");
        assert_eq!((all.barrier.as_ns(), all.commit.as_ns(), registers.live()), (200, 20, 1));
        let floor = |ns| Some(Timestamp::from_ns(ns));
        assert_eq!(registers.except(Port(0)), None, "only a dead link is left");
        assert_eq!(registers.commit_floor_except(Port(0)), floor(20));
        assert_eq!((registers.commit_floor(), registers.is_held(Port(1))), (floor(20), true));
        // A new life speaks: its barrier counts, its commits are set aside.
        registers.hear(Mono::from_ns(2), Port(1), promise(300));
        assert_eq!(registers.all().map(|all| all.barrier.as_ns()), Some(200));
        assert_eq!(commit(&registers), Some(20));
        // It dies, too, and the first is resolved: the second holds.
        assert_eq!(registers.freeze(Port(1)), Some(Timestamp::from_ns(150)));
        assert_eq!(commit(&registers), Some(20));
        registers.hold(Port(1), Some(Timestamp::from_ns(150)));
        registers.hear(Mono::from_ns(3), Port(0), promise(1_000));
        assert_eq!(commit(&registers), Some(150));
        registers.hold(Port(1), None);
        assert_eq!(commit(&registers), Some(500));
        registers.hold(Port(1), Some(Timestamp::from_ns(1)));
        assert_eq!(commit(&registers), Some(500), "nothing is held there any more");
    }

    #[test]
    fn what_was_set_aside_counts_once_the_hold_ends() {
        let mut registers = Registers::new(2);
        registers.hear(Mono::from_ns(0), Port(0), promise(900));
        registers.hear(Mono::from_ns(0), Port(1), promise(40));
        registers.freeze(Port(1));
        registers.hear(Mono::from_ns(2), Port(1), promise(10));
        registers.hear(Mono::from_ns(2), Port(1), promise(8));
        assert_eq!(registers.all().map(|all| all.commit.as_ns()), Some(5));
        registers.hold(Port(1), None);
        assert_eq!(registers.all().map(|all| all.commit.as_ns()), Some(5));
        registers.hear(Mono::from_ns(3), Port(1), promise(60));
        assert_eq!(registers.all().map(|all| all.commit.as_ns()), Some(30));
    }

    #[test]
    fn the_end_of_time_is_no_silence() {
        let mut registers = Registers::new(2);
        let end = Promises::both(Timestamp::from_ns(u64::MAX));
        assert!(registers.hear(Mono::from_ns(0), Port(0), end));
        assert!(!registers.hear(Mono::from_ns(0), Port(0), end));
        assert_eq!((registers.live(), registers.is_live(Port(0))), (1, true));
    }

    #[test]
    fn a_link_heard_at_the_deadline_lives() {
        let mut registers = Registers::new(1);
        registers.hear(Mono::from_ns(7), Port(0), promise(9));
        registers.expire(Mono::from_ns(7), |_| unreachable!("it was heard just then"));
        assert_eq!(registers.live(), 1);
    }

    const LINKS: u16 = 6;

    #[derive(Clone, Debug)]
    enum Step {
        Hear { port: u16, barrier: u64, commit: u64 },
        Remove { port: u16 },
        Expire { silent_ns: u64 },
    }

    fn any_step() -> impl Strategy<Value = Step> {
        let port = 0..LINKS + 1;
        // Few values, so that links are often equal.
        let hear = (port.clone(), 1u64..40, 1u64..40)
            .prop_map(|(port, barrier, commit)| Step::Hear { port, barrier, commit });
        prop_oneof![
            16 => hear,
            1 => port.prop_map(|port| Step::Remove { port }),
            1 => (0u64..20).prop_map(|silent_ns| Step::Expire { silent_ns }),
        ]
    }

    proptest! {
        /// Against a model that keeps nothing and looks at all links each time.
        #[test]
        fn the_kept_minima_are_the_real_ones(steps in prop::collection::vec(any_step(), 1..300)) {
            let mut registers = Registers::new(LINKS);
            let mut model = [None::<(Mono, Promises)>; LINKS as usize];
            for (clock, step) in steps.into_iter().enumerate() {
                let now = Mono::from_ns(clock as u64);
                match step {
                    Step::Hear { port, barrier, commit } => {
                        let barrier = Timestamp::from_ns(barrier);
                        let said = Promises { barrier, commit: Timestamp::from_ns(commit) };
                        let is_new = registers.hear(now, Port(port), said);
                        let Some(slot) = model.get_mut(usize::from(port)) else {
                            prop_assert!(!is_new);
                            continue;
                        };
                        prop_assert_eq!(is_new, slot.is_none());
                        *slot = Some((now, slot.map_or(said, |(_, held)| held.max(said))));
                    }
                    Step::Remove { port } => {
                        let slot = model.get_mut(usize::from(port)).and_then(Option::take);
                        prop_assert_eq!(registers.remove(Port(port)), slot.is_some());
                    }
                    Step::Expire { silent_ns } => {
                        let deadline = Mono::from_ns(now.as_ns().saturating_sub(silent_ns));
                        let mut lost = Vec::new();
                        registers.expire(deadline, |port| lost.push(port.index()));
                        let mut late = Vec::new();
                        for (at, slot) in model.iter_mut().enumerate() {
                            if slot.take_if(|(heard, _)| *heard < deadline).is_some() {
                                late.push(at);
                            }
                        }
                        prop_assert_eq!(lost, late);
                    }
                }
                let live = || model.iter().flatten();
                let low = |skip: usize| {
                    let others = model.iter().enumerate().filter(|(at, _)| *at != skip);
                    others.filter_map(|(_, slot)| Some(slot.as_ref()?.1)).reduce(Promises::min)
                };
                prop_assert_eq!(registers.all(), low(usize::MAX));
                prop_assert_eq!(registers.live() as usize, live().count());
                prop_assert_eq!(registers.oldest_heard(), live().map(|(heard, _)| *heard).min());
                for (at, slot) in model.iter().enumerate() {
                    let port = Port(at as u16);
                    prop_assert_eq!(registers.except(port), low(at));
                    prop_assert_eq!(registers.get(port), slot.map(|(_, held)| held));
                }
            }
        }
    }
}
