//! What frames say on links: I9 and B.

use onepipe_base::Timestamp;
use onepipe_wire::{Header, Opcode, Service};
use zerocopy::FromBytes;

use crate::violation::{Rule, Seen, Violations};

/// A promise so far below the last one is none: a switch that has just started forwards frames
/// before it can promise anything, and says so by a promise hours ago (2^44 ns = 4.9 h).
const NO_PROMISE_NS: u64 = 1 << 44;

/// Watches the frames that enter links.
#[derive(Debug)]
pub struct Links {
    links: Vec<Link>,
    origin: Timestamp,
    violations: Violations,
}

#[derive(Clone, Debug, Default)]
struct Link {
    /// The highest promise for best effort, and for commits.
    promise: Option<Timestamp>,
    commit: Option<Timestamp>,
    /// What feeds it knows less from some frame on.
    may_go_back: bool,
    is_strict: bool,
}

/// Why a promise breaks one before.
enum Broken {
    /// It is lower than that one.
    Back(Timestamp),
    /// A message of this timestamp lies below it.
    Below(Timestamp),
}

/// Takes in what a frame promises after `held`, and the timestamp of its message if that counts.
#[inline]
fn on_promise(
    held: &mut Option<Timestamp>,
    near: Timestamp,
    now: Timestamp,
    stamp: Option<Timestamp>,
) -> Option<(Timestamp, Broken)> {
    let Some(before) = *held else {
        if near.since_ns(now) < NO_PROMISE_NS {
            *held = Some(now);
        }
        return None;
    };
    *held = Some(before.max(now));
    if now < before && before.since_ns(now) < NO_PROMISE_NS {
        return Some((before, Broken::Back(now)));
    }
    let stamp = stamp.filter(|stamp| *stamp < before)?;
    Some((before, Broken::Below(stamp)))
}

impl Links {
    /// A checker of `links` links; all clocks are within hours of `origin` when the run starts.
    pub fn new(links: usize, origin: Timestamp) -> Self {
        let links = vec![Link::default(); links];
        Self { links, origin, violations: Violations::default() }
    }

    /// From now on no message on any link may lie below an earlier promise on it. Holds once
    /// everybody has joined, as long as all links are FIFO and lose nothing, and nothing restarts.
    pub fn be_strict(&mut self, is_strict: bool) {
        self.links.iter_mut().for_each(|link| link.is_strict = is_strict);
    }

    /// What feeds this link has started anew: it may know less than before.
    pub fn restarted(&mut self, link: u32) {
        let link = &mut self.links[link as usize];
        (link.promise, link.commit) = (None, None);
    }

    /// What feeds this link has started anew, and what it had to send before is still on its way
    /// out: from some frame on it knows less.
    pub fn reborn(&mut self, link: u32) {
        self.links[link as usize].may_go_back = true;
    }

    /// A frame enters `link`.
    #[inline]
    pub fn departed(&mut self, link: u32, frame: &[u8], at_ns: u64) {
        let Ok((header, _)) = Header::ref_from_prefix(frame) else { return };
        let opcode = header.opcode().ok();
        // What speaks of links promises nothing.
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
        let is_back = |(_, broken): &(Timestamp, Broken)| matches!(broken, Broken::Back(_));
        if broken.iter().flatten().any(is_back) && std::mem::take(&mut state.may_go_back) {
            return self.restarted(link);
        }
        for (promise, broken) in broken.into_iter().flatten() {
            self.add(link, promise, broken, at_ns);
        }
    }

    #[cold]
    fn add(&mut self, link: u32, promise: Timestamp, broken: Broken, at_ns: u64) {
        let (rule, seen) = match broken {
            Broken::Back(now) => (Rule::I9, Seen::PromiseBack { link, before: promise, now }),
            Broken::Below(stamp) => (Rule::B, Seen::BelowPromise { link, stamp, promise }),
        };
        self.violations.add(rule, at_ns, seen);
    }

    /// The last promise for best effort on `link`.
    pub fn promise(&self, link: u32) -> Option<Timestamp> {
        self.links[link as usize].promise
    }

    /// What was wrong.
    pub fn violations(&self) -> &Violations {
        &self.violations
    }
}
