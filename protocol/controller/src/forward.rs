//! Frames that are handed on, and the question whether their receiver lives
//! (design: failure.md, "What if a receiver cannot be reached, and has not failed?").

use alloc::collections::{BTreeMap, BTreeSet};

use onepipe_base::{Mono, ProcessId};

/// Processes that were asked for a sign of life.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Pings {
    asked: BTreeMap<ProcessId, Asked>,
    /// The same by when something is due: there may be as many as there are processes.
    agenda: BTreeSet<(Mono, ProcessId)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Asked {
    next: Mono,
    give_up: Mono,
    /// Whether silence means that it has failed.
    is_fatal: bool,
}

impl Asked {
    fn due(&self) -> Mono {
        self.next.min(self.give_up)
    }
}

/// What is to be done about a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// It is to be asked again.
    Ask(ProcessId),
    /// It has not answered in time, and that means that it has failed.
    Silent(ProcessId),
}

impl Pings {
    /// Asks `process`, unless that is under way.
    pub(crate) fn ask(&mut self, now: Mono, process: ProcessId, timeout_ns: u64, is_fatal: bool) {
        if self.asked.get(&process).is_some_and(|asked| asked.is_fatal || !is_fatal) {
            return;
        }
        self.settle(process);
        let asked = Asked { next: now, give_up: now.after_ns(timeout_ns), is_fatal };
        self.agenda.insert((asked.due(), process));
        self.asked.insert(process, asked);
    }

    /// `process` has given a sign of life, or is known to have failed.
    pub(crate) fn settle(&mut self, process: ProcessId) {
        if let Some(asked) = self.asked.remove(&process) {
            self.agenda.remove(&(asked.due(), process));
        }
    }

    /// Until now nobody could have been heard: whoever was asked has `timeout_ns` from here.
    pub(crate) fn excuse(&mut self, now: Mono, timeout_ns: u64) {
        self.agenda.clear();
        for (process, asked) in &mut self.asked {
            asked.next = now;
            asked.give_up = now.after_ns(timeout_ns);
            self.agenda.insert((asked.due(), *process));
        }
    }

    pub(crate) fn clear(&mut self) {
        self.asked.clear();
        self.agenda.clear();
    }

    pub(crate) fn due(&self) -> Option<Mono> {
        self.agenda.first().map(|(due, _)| *due)
    }

    /// The next thing to do; call until there is none. A question is repeated after `repeat_ns`.
    pub(crate) fn pop(&mut self, now: Mono, repeat_ns: u64) -> Option<Due> {
        while let Some((due, process)) = self.agenda.first().copied().filter(|(due, _)| *due <= now)
        {
            self.agenda.remove(&(due, process));
            let Some(asked) = self.asked.get_mut(&process) else { continue };
            if now < asked.give_up {
                asked.next = now.after_ns(repeat_ns);
                self.agenda.insert((asked.due(), process));
                return Some(Due::Ask(process));
            }
            let is_fatal = asked.is_fatal;
            self.asked.remove(&process);
            if is_fatal {
                return Some(Due::Silent(process));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_fatal_only_to_whom_somebody_wants_to_reach() {
        let (one, two, three) = (ProcessId(1), ProcessId(2), ProcessId(3));
        let mut pings = Pings::default();
        let at = Mono::from_ns;
        pings.ask(at(0), one, 100, true);
        pings.ask(at(0), two, 100, false);
        pings.ask(at(0), three, 100, true);
        let mut asked = alloc::vec::Vec::new();
        for ns in 0..=100 {
            if ns == 60 {
                pings.settle(three);
            }
            while let Some(due) = pings.pop(at(ns), 40) {
                asked.push((ns, due));
            }
        }
        let ask = |ns, process| (ns, Due::Ask(process));
        let rounds = [0, 40, 80].map(|ns| [ask(ns, one), ask(ns, two), ask(ns, three)]);
        let mut expected: alloc::vec::Vec<_> = rounds.into_iter().flatten().collect();
        expected.pop();
        expected.push((100, Due::Silent(one)));
        assert_eq!(asked, expected);
        assert_eq!(pings.due(), None);
    }
}
