//! Pings to processes, in particular to the receivers of relayed frames (`docs/design/failure.md`,
//! "What if a receiver cannot be reached, and has not failed?").

use alloc::collections::{BTreeMap, BTreeSet};

use onepipe_base::{Mono, ProcessId};

/// Processes with an unanswered ping.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Pings {
    pending: BTreeMap<ProcessId, Ping>,
    /// The same by deadline; there may be as many as there are processes.
    by_deadline: BTreeSet<(Mono, ProcessId)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Ping {
    ping_at: Mono,
    give_up_at: Mono,
    /// Whether a timeout means that the process has failed.
    is_fatal: bool,
}

impl Ping {
    fn due(&self) -> Mono {
        self.ping_at.min(self.give_up_at)
    }
}

/// A due action for a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// The ping is to be sent again.
    Ping(ProcessId),
    /// The process has not answered in time and counts as failed.
    TimedOut(ProcessId),
}

impl Pings {
    /// Asserts what holds between any two calls.
    pub(crate) fn check_invariants(&self) {
        assert_eq!(self.by_deadline.len(), self.pending.len(), "each ping has one deadline");
        for (process, pending) in &self.pending {
            assert!(self.by_deadline.contains(&(pending.due(), *process)), "{process:?}");
        }
    }

    /// Starts pinging `process`, unless a ping is pending already. A fatal ping replaces a pending
    /// one that is not fatal.
    pub(crate) fn start(&mut self, now: Mono, process: ProcessId, timeout_ns: u64, is_fatal: bool) {
        if self.pending.get(&process).is_some_and(|pending| pending.is_fatal || !is_fatal) {
            return;
        }
        self.cancel(process);
        let pending = Ping { ping_at: now, give_up_at: now.after_ns(timeout_ns), is_fatal };
        self.by_deadline.insert((pending.due(), process));
        self.pending.insert(process, pending);
    }

    /// Stops pinging `process`: it has answered, or is known to have failed.
    pub(crate) fn cancel(&mut self, process: ProcessId) {
        if let Some(pending) = self.pending.remove(&process) {
            self.by_deadline.remove(&(pending.due(), process));
        }
    }

    /// Restarts the timeout of all pings: until now no answer could have been received.
    pub(crate) fn extend_all(&mut self, now: Mono, timeout_ns: u64) {
        self.by_deadline.clear();
        for (process, pending) in &mut self.pending {
            pending.ping_at = now;
            pending.give_up_at = now.after_ns(timeout_ns);
            self.by_deadline.insert((pending.due(), *process));
        }
    }

    pub(crate) fn clear(&mut self) {
        self.pending.clear();
        self.by_deadline.clear();
    }

    pub(crate) fn due(&self) -> Option<Mono> {
        self.by_deadline.first().map(|(due, _)| *due)
    }

    /// Returns the next due action; to be called until there is none. A ping is repeated after
    /// `retransmit_ns`.
    pub(crate) fn pop(&mut self, now: Mono, retransmit_ns: u64) -> Option<Due> {
        while let Some((due, process)) =
            self.by_deadline.first().copied().filter(|(due, _)| *due <= now)
        {
            self.by_deadline.remove(&(due, process));
            let Some(pending) = self.pending.get_mut(&process) else { continue };
            assert!(pending.due() == due, "a deadline of an earlier ping");
            if now < pending.give_up_at {
                pending.ping_at = now.after_ns(retransmit_ns);
                self.by_deadline.insert((pending.due(), process));
                return Some(Due::Ping(process));
            }
            let is_fatal = pending.is_fatal;
            self.pending.remove(&process);
            if is_fatal {
                return Some(Due::TimedOut(process));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ping_timeout_is_fatal_only_for_relay_targets() {
        let (one, two, three) = (ProcessId(1), ProcessId(2), ProcessId(3));
        let mut pings = Pings::default();
        let at = Mono::from_ns;
        pings.start(at(0), one, 100, true);
        pings.start(at(0), two, 100, false);
        pings.start(at(0), three, 100, true);
        let mut popped = alloc::vec::Vec::new();
        for ns in 0..=100 {
            if ns == 60 {
                pings.cancel(three);
            }
            while let Some(due) = pings.pop(at(ns), 40) {
                popped.push((ns, due));
            }
        }
        let ping = |ns, process| (ns, Due::Ping(process));
        let rounds = [0, 40, 80].map(|ns| [ping(ns, one), ping(ns, two), ping(ns, three)]);
        let mut expected: alloc::vec::Vec<_> = rounds.into_iter().flatten().collect();
        expected.pop();
        expected.push((100, Due::TimedOut(one)));
        assert_eq!(popped, expected);
        assert_eq!(pings.due(), None);
    }

    #[test]
    fn cleared_pings_are_never_due() {
        let mut pings = Pings::default();
        pings.start(Mono::from_ns(0), ProcessId(1), 100, true);
        pings.clear();
        assert_eq!((pings.due(), pings.pop(Mono::from_ns(200), 40)), (None, None));
    }
}
