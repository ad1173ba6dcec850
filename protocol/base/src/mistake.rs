//! Seeded bugs: deliberately wrong variants of the machines, one of which a simulation selects at
//! run time. The checkers must catch each of them (`cargo xtask bugs`).
//!
//! One build contains all of them, so that a mutation run needs no rebuild. Without the feature
//! `mistakes` none can be selected, and the compiler removes the wrong code.

macro_rules! mistakes {
    ($($name:ident: $title:literal, $what:literal;)*) => {
        /// A seeded bug of a line or two.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Mistake {
            $(#[doc = $what] $name,)*
        }

        impl Mistake {
            /// All mistakes: first those of ordered scattering, then those of agreed multicast.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns the name on the command line.
            pub const fn title(self) -> &'static str {
                match self {
                    $(Self::$name => $title,)*
                }
            }

            /// Describes the mistake in one sentence.
            pub const fn what(self) -> &'static str {
                match self {
                    $(Self::$name => $what,)*
                }
            }
        }
    };
}

mistakes! {
    DeliverAtBarrier: "deliver-at-barrier",
        "What lies exactly at the barrier is delivered, not only what lies below it.";
    NoTieBreak: "no-tie-break",
        "Messages of one timestamp come in any order, not in that of their senders.";
    DeliverBeforeCommit: "deliver-before-commit",
        "Reliable messages wait for the barrier of best effort, not for the commit barrier.";
    RecallForgotten: "recall-forgotten",
        "A receiver acknowledges recalls and delivers the messages nevertheless.";
    DiscardOffByOne: "discard-off-by-one",
        "Of a failed sender what lies exactly at its failure timestamp is delivered, too.";
    DiscardForgotten: "discard-forgotten",
        "Of a failed sender everything that is here is delivered.";
    CommitWhileOpen: "commit-while-open",
        "A process promises commits past scatterings that are not acknowledged.";
    OwnCommitIgnored: "own-commit-ignored",
        "A message to oneself does not wait for its siblings.";
    NoClockClamp: "no-clock-clamp",
        "Timestamps follow the own clock alone, whatever was delivered before.";
    DuplicateAccepted: "duplicate-accepted",
        "A packet that comes twice is taken twice.";
    LateAccepted: "late-accepted",
        "A message below the barrier is taken as if it had come in time.";
    AckBeforeBuffering: "ack-before-buffering",
        "Now and then a reliable packet is acknowledged and then dropped.";
    SiblingNotRecalled: "sibling-not-recalled",
        "Only the receivers that are out of reach are told of a recall.";
    DeadLinkRetained: "dead-link-retained",
        "A switch waits for dead links for ever.";
    LiveLinkDropped: "live-link-dropped",
        "A switch leaves its first lower port out of what it tells its upper ones.";
    DeadCommitDropped: "dead-commit-dropped",
        "A dead link holds no commits.";
    RestartIgnored: "restart-ignored",
        "A neighbour that has restarted is taken for its former life.";
    BarrierBack: "barrier-back",
        "A switch tells the minimum of the moment, though it told more before.";
    TwoActive: "two-active",
        "The store gives whoever becomes active next the epoch of the one before.";
    RefusalIgnored: "refusal-ignored",
        "A replica that is told that its epoch is over goes on as if it were not.";
    ResumeEarly: "resume-early",
        "Failures are resolved before those who are left have completed them.";
    FailureTooLate: "failure-too-late",
        "Failure timestamps are 1 us too late.";
    FailureTooEarly: "failure-too-early",
        "Failure timestamps are 1 us too early.";
    QuorumForgotten: "quorum-forgotten",
        "Agreed multicast delivers up to its leader's clock, whatever those of a majority are.";
    GapsIgnored: "gaps-ignored",
        "Agreed multicast delivers up to its leader's clock, though proposals below it are missing.";
    PendingForgotten: "pending-forgotten",
        "Agreed multicast delivers past messages whose final timestamp is not known yet.";
    NewTimestamp: "new-timestamp",
        "A new leader of agreed multicast gives new timestamps to what was accepted before.";
    StaleEpoch: "stale-epoch",
        "A member of agreed multicast goes on with the leader of an earlier epoch.";
    AckTwice: "ack-twice",
        "An acknowledgement of agreed multicast that comes twice counts twice.";
    ProposedTwice: "proposed-twice",
        "A message that a client starts again is given another timestamp.";
}

impl Mistake {
    /// Number of mistakes in [`Mistake::ALL`] that concern ordered scattering.
    const SCATTERING: usize = Self::QuorumForgotten as usize;

    /// Returns the mistakes of ordered scattering.
    pub fn of_scattering() -> &'static [Self] {
        &Self::ALL[..Self::SCATTERING]
    }

    /// Returns the mistakes of agreed multicast.
    pub fn of_amcast() -> &'static [Self] {
        &Self::ALL[Self::SCATTERING..]
    }
}

/// Whether this build can make mistakes on purpose. Released programs refuse to build if so.
pub const ARE_POSSIBLE: bool = cfg!(feature = "mistakes");

#[cfg(feature = "mistakes")]
mod chosen {
    use core::sync::atomic::{AtomicU8, Ordering};

    use super::Mistake;

    const NONE: u8 = u8::MAX;
    static CHOSEN: AtomicU8 = AtomicU8::new(NONE);

    /// Selects the mistake that all machines make from now on, or none.
    pub fn choose(mistake: Option<Mistake>) {
        CHOSEN.store(mistake.map_or(NONE, |mistake| mistake as u8), Ordering::Relaxed);
    }

    /// Returns whether the machines make this mistake.
    #[inline]
    pub fn makes(mistake: Mistake) -> bool {
        CHOSEN.load(Ordering::Relaxed) == mistake as u8
    }
}

#[cfg(feature = "mistakes")]
pub use chosen::{choose, makes};

/// Returns false: the feature `mistakes` is off.
#[cfg(not(feature = "mistakes"))]
#[inline(always)]
pub const fn makes(_: Mistake) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_unique_and_no_mistake_is_selected() {
        for (at, mistake) in Mistake::ALL.iter().enumerate() {
            assert!(mistake.what().ends_with('.') && !makes(*mistake));
            let others = &Mistake::ALL[at + 1..];
            assert!(others.iter().all(|other| other.title() != mistake.title()));
        }
    }
}
