//! The handshake of a socket with the switch above it.

use std::net::SocketAddr;
use std::time::Duration;

use onepipe_base::{Machine, Now, Port};
use onepipe_join::{Event, Joiner, JoinerConfig, Mismatch, TermsChange};
use onepipe_wire::{RefuseReason, Terms, Versions};

use crate::BatchSocket;

/// Why a node could not join a fabric.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinFailure {
    /// Nothing answers at the address.
    #[error(
        "no {above} answers at {address} (waited {} s): start one there with \"onepipe {above} \
         --listen {address}\", or wait longer with --wait",
        waited.as_secs_f64()
    )]
    NoAnswer {
        /// The command that would answer there: `switch` or `aggregator`.
        above: &'static str,
        /// The address.
        address: SocketAddr,
        /// How long the node has waited.
        waited: Duration,
    },
    /// A setting differs from that of the fabric.
    #[error(
        "{setting} is {ours} here and {theirs} in {fabric}: leave the setting out, or give all \
         nodes the same"
    )]
    Mismatch {
        /// The address of the switch, or the name of the shared memory.
        fabric: String,
        /// Name of the setting.
        setting: &'static str,
        /// Its value here.
        ours: String,
        /// Its value in the fabric.
        theirs: String,
    },
    /// The switch has restarted with other terms than those under which this node has joined.
    #[error(
        "{address} was restarted with {setting} {theirs}, and this node has joined with {ours}: \
         restart the switch with the same settings, or this node, too"
    )]
    Changed {
        /// The address of the switch.
        address: SocketAddr,
        /// Name of the setting.
        setting: &'static str,
        /// Its value when this node joined.
        ours: String,
        /// Its value now.
        theirs: String,
    },
    /// The switch does not admit this node.
    #[error("{address} does not admit this node: {}", explain(*reason, terms))]
    Refused {
        /// The address of the switch.
        address: SocketAddr,
        /// Reason of the refusal.
        reason: RefuseReason,
        /// What holds in the fabric.
        terms: Terms,
    },
}

impl JoinFailure {
    /// Returns the failure for a setting that differs from the terms of `fabric`.
    pub fn mismatch(fabric: impl ToString, mismatch: Mismatch) -> Self {
        let Mismatch { setting, ours, theirs } = mismatch;
        Self::Mismatch { fabric: fabric.to_string(), setting, ours, theirs }
    }
}

/// Why a switch does not admit a node at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The switch gives this reason.
    Reason(RefuseReason, Terms),
    /// The switch has restarted with other terms than those under which the node has joined.
    Changed(TermsChange),
}

impl Refusal {
    /// Returns whether only an operator can change it.
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::Reason(RefuseReason::Full, _))
    }

    /// Returns the refusal by the switch at `address` as an error.
    pub fn at(self, address: SocketAddr) -> JoinFailure {
        match self {
            Self::Reason(reason, terms) => JoinFailure::Refused { address, reason, terms },
            Self::Changed(change) => {
                let Mismatch { setting, ours, theirs } = change.mismatch();
                JoinFailure::Changed { address, setting, ours, theirs }
            }
        }
    }
}

/// Says why a node is refused, and what to do.
pub fn explain(reason: RefuseReason, terms: &Terms) -> String {
    let controllers = || match terms.controllers {
        None => "none".to_owned(),
        Some(ids) => format!("{} to {}", ids.first.0, ids.first.0 + ids.count.max(1) - 1),
    };
    match reason {
        RefuseReason::Version => format!(
            "the fabric sends version {:#04x} of the wire format, and this node knows {}: install \
             the same release everywhere",
            terms.version,
            Versions::OWN
        ),
        RefuseReason::OutOfRange => format!(
            "process ids lie below {}: choose a lower id, or start the switch with more --processes",
            terms.processes_max
        ),
        RefuseReason::Taken => {
            "a live controller has this id, there or at another switch of the fabric: stop it \
             first, or choose another id"
                .to_owned()
        }
        RefuseReason::Full => {
            "all its ports are in use: start it with more --ports, or stop a neighbour".to_owned()
        }
        RefuseReason::IsController => {
            format!("the id is reserved for a controller (controllers {})", controllers())
        }
        RefuseReason::NotController => format!(
            "the id is not that of a controller (controllers {}): give the switch the same \
             --controllers",
            controllers()
        ),
        RefuseReason::Incarnation => {
            "the clock here is more than a minute ahead of the switch's: set it".to_owned()
        }
    }
}

/// The part of a link that joins: asks the switch above for admission, and answers its challenges
/// as long as the link lasts.
#[derive(Debug)]
pub struct Handshake {
    joiner: Joiner,
    /// Whether it has asked since the link was opened.
    is_begun: bool,
    refusal: Option<Refusal>,
}

/// How long a joining link waits at most before it looks whether its request is to be repeated, ns.
const LOOK_INTERVAL_NS: u64 = 1_000_000;

impl Handshake {
    /// Returns the handshake of a link that has not asked yet.
    pub fn new(config: JoinerConfig) -> Self {
        Self { joiner: Joiner::new(config), is_begun: false, refusal: None }
    }

    /// Why the switch refuses this node at present.
    pub fn refusal(&self) -> Option<Refusal> {
        self.refusal
    }

    /// Returns how long the link may wait.
    pub fn limit_wait(&self, timeout_ns: u64) -> u64 {
        timeout_ns.min(if self.joiner.is_joining() { LOOK_INTERVAL_NS } else { u64::MAX })
    }

    /// Handles a frame from the switch for which [`Joiner::takes`] holds.
    #[cold]
    pub fn on_frame(&mut self, now: Now, frame: &mut [u8]) -> Option<Event> {
        self.joiner.handle_frame(now, Port(0), frame);
        let event = self.joiner.poll_event()?;
        self.refusal = match event {
            Event::Refused { reason, terms } => Some(Refusal::Reason(reason, terms)),
            Event::Changed(change) => Some(Refusal::Changed(change)),
            _ => None,
        };
        Some(event)
    }

    /// Sends the request if it is due.
    #[inline]
    pub fn send(&mut self, now: Now, socket: &mut BatchSocket, destination: usize) {
        if !self.is_begun {
            self.is_begun = true;
            self.joiner.start(now.mono);
        }
        if self.joiner.poll_timeout().is_some_and(|due| due <= now.mono)
            && let Some(slot) = socket.slot()
            && let Some(transmit) = self.joiner.poll_transmit(now, socket.frame(slot))
        {
            let frame = socket.keep(slot, transmit.bytes);
            socket.send(destination, frame);
            socket.flush();
        }
    }

    /// Asks the switch at `address` for its terms, for at most `wait`. Frames that arrive
    /// meanwhile are lost. When this returns the terms, the request that proves this address has
    /// been sent, so that whatever is sent next counts.
    ///
    /// # Errors
    /// No answer, or a refusal.
    pub fn ask(
        &mut self,
        socket: &mut BatchSocket,
        destination: usize,
        (above, address): (&'static str, SocketAddr),
        wait: Duration,
        mut read: impl FnMut() -> Now,
    ) -> Result<Terms, JoinFailure> {
        let mut now = read();
        let wait_ns = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        let began = now.mono;
        self.is_begun = true;
        self.joiner.start(began);
        let mut failure = JoinFailure::NoAnswer { above, address, waited: wait };
        while now.mono.since_ns(began) < wait_ns {
            self.send(now, socket, destination);
            for batch in 0..socket.receive() {
                if socket.source(batch).is_some_and(|from| from != address) {
                    continue;
                }
                for range in socket.frames(batch) {
                    if !Joiner::takes(socket.frame(range)) {
                        continue;
                    }
                    match self.on_frame(now, socket.frame(range)) {
                        // Both follow an admission.
                        None | Some(Event::Forgotten | Event::Changed(_)) => {}
                        Some(Event::Invited(terms) | Event::Accepted(terms)) => {
                            self.send(now, socket, destination);
                            return Ok(terms);
                        }
                        Some(Event::OtherVersion(theirs)) => {
                            return Err(JoinFailure::Mismatch {
                                fabric: address.to_string(),
                                setting: "the version of the wire format",
                                ours: Versions::OWN.to_string(),
                                theirs: format!("{theirs:#04x}"),
                            });
                        }
                        Some(Event::Refused { reason, terms }) => {
                            failure = JoinFailure::Refused { address, reason, terms };
                            if !matches!(reason, RefuseReason::Taken | RefuseReason::Full) {
                                return Err(failure);
                            }
                        }
                    }
                }
            }
            let rest_ns = wait_ns.saturating_sub(now.mono.since_ns(began));
            let due_ns = self.joiner.poll_timeout().map_or(0, |due| due.since_ns(now.mono));
            socket.wait(due_ns.min(rest_ns));
            now = read();
        }
        Err(failure)
    }
}
