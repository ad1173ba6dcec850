//! Promises in the frames on links: I9 and B.

use onepipe_base::Timestamp;
use onepipe_sim_engine::Section;
use onepipe_wire::{Opcode, Service, header_unchecked};

use crate::violation::{Rule, ViolationKind, Violations};

/// A promise this far below the previous one counts as none: a switch that has just started
/// forwards frames before it can promise anything, and marks them with a promise hours in the past
/// (2^44 ns = 4.9 h).
const NO_PROMISE_NS: u64 = 1 << 44;

/// Checks the frames that enter links.
#[derive(Debug)]
pub struct Links {
    links: Section<Link>,
    origin: Timestamp,
    violations: Violations,
}

#[derive(Clone, Debug, Default)]
struct Link {
    /// Highest best-effort promise, and highest commit promise.
    promise: Option<Timestamp>,
    commit: Option<Timestamp>,
    /// Whether the promises may regress once: the node at the head of the link has restarted.
    allows_regression: bool,
    is_strict: bool,
}

/// How a promise is violated.
enum PromiseViolation {
    /// By this lower promise.
    Back(Timestamp),
    /// By a message with this lower timestamp.
    Below(Timestamp),
}

//= spec/ordering.md#R6
/// Updates `held` with the promise `now` of a frame, and checks the timestamp of the frame's
/// message if one is given.
#[inline]
fn on_promise(
    held: &mut Option<Timestamp>,
    near: Timestamp,
    now: Timestamp,
    stamp: Option<Timestamp>,
) -> Option<(Timestamp, PromiseViolation)> {
    let Some(before) = *held else {
        if near.since_ns(now) < NO_PROMISE_NS {
            *held = Some(now);
        }
        return None;
    };
    *held = Some(before.max(now));
    if now < before && before.since_ns(now) < NO_PROMISE_NS {
        return Some((before, PromiseViolation::Back(now)));
    }
    let stamp = stamp.filter(|stamp| *stamp < before)?;
    Some((before, PromiseViolation::Below(stamp)))
}

impl Links {
    /// Creates a checker of `links` links. All clocks must be within hours of `origin` at the
    /// start.
    pub fn new(links: usize, origin: Timestamp) -> Self {
        let links = Section::from(vec![Link::default(); links]);
        Self { links, origin, violations: Violations::default() }
    }

    /// Moves the links into parts, as many links as given into each. Until [`Links::unite`] only
    /// the parts are called, each for its links.
    pub fn divide(&mut self, lens: impl IntoIterator<Item = usize>) -> Vec<Self> {
        let part = |links| Self { links, origin: self.origin, violations: Violations::default() };
        self.links.divide(lens).into_iter().map(part).collect()
    }

    /// Takes back a part, after the parts of all links with lower ids.
    pub fn unite(&mut self, part: Self) {
        self.links.append(part.links);
        self.violations.merge(&part.violations);
    }

    /// Sets whether messages below an earlier promise on their link are violations. The rule holds
    /// once all processes have joined, as long as all links are FIFO and lossless and no node
    /// restarts.
    pub fn set_strict(&mut self, is_strict: bool) {
        self.links.iter_mut().for_each(|link| link.is_strict = is_strict);
    }

    /// Resets a link whose sending node has restarted and may know less than before.
    pub fn restarted(&mut self, link: u32) {
        let link = &mut self.links[link as usize];
        (link.promise, link.commit) = (None, None);
    }

    /// Allows one regression on a link whose sending node has restarted in place: frames of the
    /// previous incarnation may still leave first.
    pub fn soft_restarted(&mut self, link: u32) {
        self.links[link as usize].allows_regression = true;
    }

    /// Handles a frame that enters `link`.
    #[inline]
    pub fn departed(&mut self, link: u32, frame: &[u8], at_ns: u64) {
        let Some(header) = header_unchecked(frame) else { return };
        let opcode = header.opcode().ok();
        // Hop-only control frames carry no promises.
        if opcode.is_some_and(Opcode::is_control) {
            return;
        }
        let state = &mut self.links[link as usize];
        let near = state.promise.unwrap_or(self.origin);
        let now = header.promises(near);
        let stamp_of = |service| {
            let counts = state.is_strict
                && opcode
                    .is_some_and(|code| code.has_messages() && code.service() == Some(service));
            counts.then(|| header.message_ts(near))
        };
        let stamps = (stamp_of(Service::BestEffort), stamp_of(Service::Reliable));
        let broken = [
            on_promise(&mut state.promise, near, now.barrier, stamps.0),
            on_promise(&mut state.commit, near, now.commit, stamps.1),
        ];
        let is_back = |(_, broken): &(Timestamp, PromiseViolation)| {
            matches!(broken, PromiseViolation::Back(_))
        };
        if broken.iter().flatten().any(is_back) && std::mem::take(&mut state.allows_regression) {
            return self.restarted(link);
        }
        for (promise, broken) in broken.into_iter().flatten() {
            self.add(link, promise, broken, at_ns);
        }
    }

    #[cold]
    fn add(&mut self, link: u32, promise: Timestamp, broken: PromiseViolation, at_ns: u64) {
        let (rule, kind) = match broken {
            PromiseViolation::Back(now) => {
                (Rule::I9, ViolationKind::PromiseBack { link, before: promise, now })
            }
            PromiseViolation::Below(stamp) => {
                (Rule::B, ViolationKind::BelowPromise { link, stamp, promise })
            }
        };
        self.violations.add(rule, at_ns, kind);
    }

    /// Returns the last best-effort promise on `link`.
    pub fn promise(&self, link: u32) -> Option<Timestamp> {
        self.links[link as usize].promise
    }

    /// Returns the violations.
    pub fn violations(&self) -> &Violations {
        &self.violations
    }
}
