//! What frames say on links: I9 and B.

use onepipe_base::Timestamp;
use onepipe_wire::{Header, Opcode};
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
    promise: Option<Timestamp>,
    is_strict: bool,
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
        self.links[link as usize].promise = None;
    }

    /// A frame enters `link`.
    #[inline]
    pub fn departed(&mut self, link: u32, frame: &[u8], at_ns: u64) {
        let Ok((header, _)) = Header::ref_from_prefix(frame) else { return };
        let state = &mut self.links[link as usize];
        let near = state.promise.unwrap_or(self.origin);
        let now = header.promises(near).barrier;
        if let Some(before) = state.promise {
            if now < before && before.since_ns(now) < NO_PROMISE_NS {
                self.violations.add(Rule::I9, at_ns, Seen::PromiseBack { link, before, now });
            }
            let has_messages = header.opcode().is_ok_and(Opcode::has_messages);
            if state.is_strict && has_messages {
                let (stamp, promise) = (header.message_ts(near), before);
                if stamp < promise {
                    self.violations.add(
                        Rule::B,
                        at_ns,
                        Seen::BelowPromise { link, stamp, promise },
                    );
                }
            }
            state.promise = Some(before.max(now));
        } else if near.since_ns(now) < NO_PROMISE_NS {
            state.promise = Some(now);
        }
    }

    /// The last promise on `link`.
    pub fn promise(&self, link: u32) -> Option<Timestamp> {
        self.links[link as usize].promise
    }

    /// What was wrong.
    pub fn violations(&self) -> &Violations {
        &self.violations
    }
}
