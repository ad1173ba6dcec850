//! The side of the joiner: asks until it is answered, and answers challenges.

use onepipe_base::{
    Address, Backoff, Incarnation, Instance, Machine, Mono, Now, Port, ProcessId, Transmit, Verdict,
};
use onepipe_wire::{
    Frame, HEADER_LEN, JoinAnswer, JoinRequest, JoinRole, Opcode, RefuseReason, Terms, Versions,
    opcode_unchecked, seal,
};

use crate::TermsChange;
use crate::admission::{FRAME_LEN, hop_header};

/// The configuration of a joiner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct JoinerConfig {
    /// Address and incarnation of the joiner.
    pub own: Instance,
    /// What the joiner is.
    pub role: JoinRole,
    /// Whether the joiner has a [`crate::Roster`]. Default false.
    pub wants_members: bool,
    /// Interval between the first two requests, in ns; doubled with each one. Default 1 ms.
    pub retry_ns: u64,
    /// Longest interval between requests, in ns. Default 50 ms: how much later than the switch its
    /// neighbours start.
    pub retry_max_ns: u64,
}

impl JoinerConfig {
    /// Returns the defaults for a process, an arbiter or an endpoint of scheduled transfer.
    pub fn process(process: ProcessId, incarnation: Incarnation) -> Self {
        Self::new(Instance { address: Address::Process(process), incarnation }, JoinRole::Process)
    }

    /// Returns the defaults for `own`.
    pub fn new(own: Instance, role: JoinRole) -> Self {
        Self { own, role, wants_members: false, retry_ns: 1_000_000, retry_max_ns: 50_000_000 }
    }
}

/// What the node above has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The switch does not know this node any more, because it has restarted. This node asks for
    /// admission again.
    Forgotten,
    /// The switch challenges this node, and states the terms. The request that proves the address
    /// is sent next; everything after that request counts.
    Invited(Terms),
    /// This node is admitted.
    Accepted(Terms),
    /// The switch refuses this node. The request is repeated, as the reason may pass.
    Refused {
        /// Reason of the refusal.
        reason: RefuseReason,
        /// What holds in that fabric.
        terms: Terms,
    },
    /// The switch has restarted with other terms. This node does not join it; the request is
    /// repeated, as the switch may be corrected.
    Changed(TermsChange),
    /// The fabric sends in this version of the wire format, which this node does not know. The
    /// request is repeated, as the switch may be replaced.
    OtherVersion(u8),
}

/// Asks for admission on port 0 until it is answered, and again whenever the node above does not
/// know this node any more, because it has restarted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Joiner {
    config: JoinerConfig,
    /// Cookie of the last challenge; 0: none.
    cookie: u64,
    /// When the request is due; never while this node is admitted.
    backoff: Backoff,
    is_joining: bool,
    /// The terms under which this node has joined.
    terms: Option<Terms>,
    /// The last answer that was not handed out.
    event: Option<Event>,
}

/// The only port.
const UP: Port = Port(0);

impl Joiner {
    /// Returns a joiner that asks for nothing before [`Joiner::start`], or before it is notified
    /// that it is not admitted.
    pub fn new(config: JoinerConfig) -> Self {
        let backoff = Backoff::new(config.retry_ns, config.retry_max_ns);
        Self { config, cookie: 0, backoff, is_joining: false, terms: None, event: None }
    }

    /// Asks for admission from now on.
    pub fn start(&mut self, now: Mono) {
        self.is_joining = true;
        self.cookie = 0;
        self.backoff.on_change(now);
    }

    //= spec/ordering.md#R63
    /// Asserts what holds between any two calls.
    ///
    /// # Panics
    /// When an invariant is broken, which is a bug.
    pub fn check_invariants(&self) {
        assert_eq!(self.is_joining, self.backoff.due().is_some(), "a joiner asks until it is in");
        assert!(self.cookie == 0 || self.terms.is_some(), "a challenge states the terms");
        match self.event {
            Some(Event::Accepted(terms)) => {
                assert!(!self.is_joining && self.terms == Some(terms), "the terms are adopted");
            }
            Some(Event::Invited(terms)) => assert_eq!(self.terms, Some(terms)),
            //= spec/ordering.md#R77
            Some(Event::Changed(change)) => assert_ne!(change.adopted, change.stated),
            _ => {}
        }
    }

    /// Returns whether this node waits to be admitted.
    pub fn is_joining(&self) -> bool {
        self.is_joining
    }

    /// Returns whether `frame` is for a joiner, and not for the machine behind it.
    #[inline]
    pub fn takes(frame: &[u8]) -> bool {
        opcode_unchecked(frame) == Some(Opcode::JoinAnswer)
    }

    fn on_answer(&mut self, now: Mono, answer: JoinAnswer) {
        match answer {
            JoinAnswer::NotAdmitted if !self.is_joining => {
                self.start(now);
                self.event = Some(Event::Forgotten);
            }
            JoinAnswer::NotAdmitted => {}
            // Answers to repeated requests come late.
            _ if !self.is_joining => {}
            //= spec/ordering.md#R90
            JoinAnswer::Challenge { terms, .. }
            | JoinAnswer::Accepted(terms)
            | JoinAnswer::Refused { terms, .. }
                if !Versions::OWN.contain(terms.version) =>
            {
                self.event = Some(Event::OtherVersion(terms.version));
            }
            //= spec/ordering.md#R77
            JoinAnswer::Challenge { terms: stated, .. } | JoinAnswer::Accepted(stated)
                if self.terms.is_some_and(|adopted| adopted != stated) =>
            {
                let adopted = self.terms.unwrap_or(stated);
                self.event = Some(Event::Changed(TermsChange { adopted, stated }));
            }
            JoinAnswer::Challenge { cookie, terms } => {
                // The same cookie again: it was not accepted, so the retries go on as they are.
                if cookie != self.cookie {
                    self.cookie = cookie;
                    self.backoff.on_change(now);
                }
                self.terms = Some(terms);
                self.event = Some(Event::Invited(terms));
            }
            JoinAnswer::Accepted(terms) => {
                self.is_joining = false;
                self.terms = Some(terms);
                self.backoff.reschedule(None);
                self.event = Some(Event::Accepted(terms));
            }
            JoinAnswer::Refused { reason, terms } => {
                self.event = Some(Event::Refused { reason, terms });
            }
        }
    }
}

impl Machine for Joiner {
    type Event = Event;

    fn handle_frame(&mut self, now: Now, _: Port, frame: &mut [u8]) -> Verdict {
        let answer = match Frame::parse_join(frame) {
            Ok(frame) if frame.opcode == Opcode::JoinAnswer => JoinAnswer::parse(frame.payload),
            _ => return Verdict::Dropped,
        };
        match answer {
            Ok(answer) => {
                self.on_answer(now.mono, answer);
                if cfg!(debug_assertions) {
                    self.check_invariants();
                }
                Verdict::Consumed
            }
            Err(_) => Verdict::Dropped,
        }
    }

    fn handle_timeout(&mut self, _: Now) {}

    //= spec/ordering.md#R63
    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        if slot.len() < FRAME_LEN || !self.backoff.take(now.mono) {
            return None;
        }
        let JoinerConfig { role, wants_members, .. } = self.config;
        let (cookie, versions) = (self.cookie, Versions::OWN);
        let request = JoinRequest { role, cookie, wants_members, versions };
        let len = request.write(&mut slot[HEADER_LEN..])?;
        let header = hop_header(Opcode::Join, self.config.own, None, now.sync);
        Some(Transmit { port: UP, bytes: seal(slot, header, len) })
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.event.take()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        self.backoff.due()
    }
}
