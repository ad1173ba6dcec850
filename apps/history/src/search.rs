//! The search for a linearization: the algorithm of Wing and Gong, with Lowe's memoization.
//!
//! Steps are applied one after another, each only while every step that ended before it began has
//! been applied. The search remembers each pair of a set of applied steps and a state, and visits
//! none twice. A set of steps is represented by the 128-bit XOR of random words, one for each step:
//! the probability that two sets of one search have the same XOR is negligible.

use std::collections::HashSet;

/// A change or an observation of the state of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Appends an element.
    Append(i64),
    /// Changes the state to this one.
    Write(u32),
    /// Requires this state.
    Read(u32),
    /// Requires any state but the initial one.
    Exists,
}

/// The operations of one transaction on one key.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// What happens at once.
    pub(crate) actions: Vec<Action>,
    /// Position of the invocation.
    pub(crate) begins: usize,
    /// Position of the completion; `usize::MAX` if the outcome is unknown.
    pub(crate) ends: usize,
}

/// Why no linearization was found.
#[derive(Debug)]
pub(crate) enum Stuck {
    /// There is none.
    At {
        /// The state after the longest order.
        state: u32,
        /// The step that no order could apply in time.
        blocked: usize,
        /// The longest order.
        applied: Vec<usize>,
    },
    /// The limit of the number of steps was reached.
    Limit,
}

/// An element of the list of the begins and ends of steps that are not applied.
#[derive(Clone, Copy, Debug)]
struct Entry {
    step: usize,
    is_end: bool,
    previous: usize,
    next: usize,
}

pub(crate) struct Search<'s> {
    steps: &'s [Step],
    steps_max: u64,
    /// A doubly linked list; the first entry is its head and the last its tail.
    entries: Vec<Entry>,
    /// For each step: the entries of its begin and, if the outcome is known, of its end.
    of_step: Vec<(usize, Option<usize>)>,
}

impl<'s> Search<'s> {
    pub(crate) fn new(steps: &'s [Step], steps_max: u64) -> Self {
        let mut order: Vec<(usize, usize, bool)> = Vec::new();
        for (index, step) in steps.iter().enumerate() {
            order.push((step.begins, index, false));
            if step.ends != usize::MAX {
                order.push((step.ends, index, true));
            }
        }
        order.sort_unstable();
        let mut entries = vec![Entry { step: usize::MAX, is_end: false, previous: 0, next: 1 }];
        let mut of_step = vec![(0, None); steps.len()];
        for (_, step, is_end) in order {
            let at = entries.len();
            if is_end {
                of_step[step].1 = Some(at);
            } else {
                of_step[step].0 = at;
            }
            entries.push(Entry { step, is_end, previous: at - 1, next: at + 1 });
        }
        let tail = entries.len();
        entries.push(Entry { step: usize::MAX, is_end: false, previous: tail - 1, next: tail });
        Self { steps, steps_max, entries, of_step }
    }

    /// Searches for an order in which every step of known outcome can be applied.
    pub(crate) fn run(
        mut self,
        apply: &mut impl FnMut(u32, &Action) -> Option<u32>,
    ) -> Result<(), Stuck> {
        let tail = self.entries.len() - 1;
        let mut missing = self.steps.iter().filter(|step| step.ends != usize::MAX).count();
        let (mut state, mut set) = (0u32, 0u128);
        // The applied steps, each with the state before it.
        let mut stack: Vec<(usize, u32)> = Vec::new();
        let mut seen: HashSet<(u128, u32)> = HashSet::new();
        let mut longest: Option<(Vec<usize>, u32, usize)> = None;
        let mut at = self.entries[0].next;
        let mut taken = 0u64;
        while missing > 0 {
            taken += 1;
            if taken > self.steps_max {
                return Err(Stuck::Limit);
            }
            let entry = self.entries[at];
            if at != tail && !entry.is_end {
                let step = &self.steps[entry.step];
                let next = step.actions.iter().try_fold(state, &mut *apply);
                let next_set = set ^ word(entry.step);
                match next {
                    Some(next) if seen.insert((next_set, next)) => {
                        stack.push((entry.step, state));
                        (state, set) = (next, next_set);
                        missing -= usize::from(step.ends != usize::MAX);
                        self.remove(entry.step);
                        at = self.entries[0].next;
                    }
                    _ => at = entry.next,
                }
                continue;
            }
            // A step ended before it was applied, so the last step of this order is undone.
            if at != tail && longest.as_ref().is_none_or(|(order, ..)| order.len() < stack.len()) {
                let order = stack.iter().map(|(step, _)| *step).collect();
                longest = Some((order, state, entry.step));
            }
            let Some((step, before)) = stack.pop() else {
                let (applied, state, blocked) = longest.unwrap_or((Vec::new(), 0, 0));
                return Err(Stuck::At { state, blocked, applied });
            };
            state = before;
            set ^= word(step);
            missing += usize::from(self.steps[step].ends != usize::MAX);
            self.insert(step);
            at = self.entries[self.of_step[step].0].next;
        }
        Ok(())
    }

    fn remove(&mut self, step: usize) {
        let (begin, end) = self.of_step[step];
        for at in [Some(begin), end].into_iter().flatten() {
            let Entry { previous, next, .. } = self.entries[at];
            self.entries[previous].next = next;
            self.entries[next].previous = previous;
        }
    }

    /// Undoes the last [`Search::remove`] that has not been undone.
    fn insert(&mut self, step: usize) {
        let (begin, end) = self.of_step[step];
        for at in [end, Some(begin)].into_iter().flatten() {
            let Entry { previous, next, .. } = self.entries[at];
            self.entries[previous].next = at;
            self.entries[next].previous = at;
        }
    }
}

/// Returns the random word of a step.
fn word(step: usize) -> u128 {
    let half = |salt: u64| {
        // The finalizer of SplitMix64.
        let mut z = (step as u64).wrapping_mul(2).wrapping_add(salt).wrapping_add(1);
        z = z.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    u128::from(half(0)) << 64 | u128::from(half(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The state is that of a register.
    fn apply(state: u32, action: &Action) -> Option<u32> {
        match action {
            Action::Write(next) => Some(*next),
            Action::Read(expected) => (*expected == state).then_some(state),
            Action::Exists => (state != 0).then_some(state),
            Action::Append(_) => None,
        }
    }

    fn run(steps: &[(Action, usize, usize)]) -> Result<(), Stuck> {
        let step = |(action, begins, ends): &(Action, usize, usize)| Step {
            actions: vec![*action],
            begins: *begins,
            ends: *ends,
        };
        let steps: Vec<Step> = steps.iter().map(step).collect();
        Search::new(&steps, 1_000).run(&mut apply)
    }

    const UNKNOWN: usize = usize::MAX;

    #[test]
    fn a_write_of_unknown_outcome_takes_effect_late_or_never() {
        let write = (Action::Write(1), 0, UNKNOWN);
        run(&[write, (Action::Read(0), 1, 2), (Action::Read(1), 3, 4)]).expect("late");
        run(&[write, (Action::Read(0), 1, 2), (Action::Read(0), 3, 4)]).expect("never");
        let back = [write, (Action::Read(1), 1, 2), (Action::Read(0), 3, 4)];
        let stuck = run(&back).expect_err("a value that came does not go");
        assert!(matches!(stuck, Stuck::At { blocked: 2, state: 1, .. }), "{stuck:?}");
    }

    #[test]
    fn concurrent_steps_take_any_order_that_explains_the_reads() {
        let writes = [(Action::Write(1), 0, 10), (Action::Write(2), 1, 11)];
        for last in [1, 2] {
            run(&[writes[0], writes[1], (Action::Read(last), 12, 13)]).expect("either is last");
        }
        let both = [writes[0], writes[1], (Action::Read(2), 12, 13), (Action::Read(1), 14, 15)];
        run(&both).expect_err("only one is last");
        run(&[(Action::Read(3), 0, 1)]).expect_err("no step wrote 3");
    }

    #[test]
    fn gives_up_at_the_limit() {
        let steps: Vec<_> = (0..20).map(|n| (Action::Write(n), n as usize, 100)).collect();
        let mut steps = steps;
        steps.push((Action::Read(99), 101, 102));
        assert!(matches!(run(&steps), Err(Stuck::Limit)));
    }
}
