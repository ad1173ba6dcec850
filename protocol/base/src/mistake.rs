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
            /// All mistakes: of scattering, agreed multicast, transactions, stores, logs, memory,
            /// and block devices.
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
        "Messages with a timestamp equal to the barrier are delivered, not only those below it.";
    NoTieBreak: "no-tie-break",
        "Messages with equal timestamps are delivered in any order, not by sender.";
    DeliverBeforeCommit: "deliver-before-commit",
        "Reliable messages wait for the best-effort barrier, not for the commit barrier.";
    RecallForgotten: "recall-forgotten",
        "A receiver acknowledges recalls and still delivers the messages.";
    DiscardOffByOne: "discard-off-by-one",
        "A failed sender's messages at exactly its failure timestamp are delivered, too.";
    DiscardForgotten: "discard-forgotten",
        "All received messages of a failed sender are delivered.";
    CommitWhileOpen: "commit-while-open",
        "A process promises commits beyond scatterings that are not acknowledged.";
    OwnCommitIgnored: "own-commit-ignored",
        "A message to the sender itself does not wait for the rest of its scattering.";
    NoClockClamp: "no-clock-clamp",
        "Timestamps follow the local clock only, not the timestamps already delivered.";
    DuplicateAccepted: "duplicate-accepted",
        "A duplicate packet is accepted.";
    LateAccepted: "late-accepted",
        "A message that arrives below the barrier is accepted.";
    AckBeforeBuffering: "ack-before-buffering",
        "A reliable packet is sometimes acknowledged and then dropped.";
    SiblingNotRecalled: "sibling-not-recalled",
        "A recall is sent to the unreachable receivers only.";
    DeadLinkRetained: "dead-link-retained",
        "A switch never removes dead links from its barrier.";
    LiveLinkDropped: "live-link-dropped",
        "A switch leaves its first lower port out of the barrier that it sends to its upper ports.";
    DeadCommitDropped: "dead-commit-dropped",
        "A dead link does not hold back commits.";
    RestartIgnored: "restart-ignored",
        "A restarted neighbour is taken for its previous incarnation.";
    BarrierBack: "barrier-back",
        "A switch sends the current minimum as its barrier, below one that it has sent before.";
    SolicitOnce: "solicit-once",
        "A solicit is not repeated when nothing answers.";
    AnswerEarly: "answer-early",
        "A solicited promise counts as sent although it is below the timestamp waited for.";
    RestWhileUndelivered: "rest-while-undelivered",
        "A process waits for the next heartbeats although it holds undelivered messages.";
    JoinerNotSolicited: "joiner-not-solicited",
        "A switch never solicits a link that has not caught up since it came up.";
    PromiseBeforeCopies: "promise-before-copies",
        "A switch counts the promise of a frame with several receivers before its last copy.";
    BundledAcksMixed: "bundled-acks-mixed",
        "All acknowledgements of a bundle are given to the process of the first one.";
    TwoActive: "two-active",
        "The store gives the next active controller the epoch of the previous one.";
    RefusalIgnored: "refusal-ignored",
        "A controller replica ignores the refusal that its epoch is over.";
    OldStoreAccepted: "old-store-accepted",
        "A controller decides from a store that went back in time.";
    ResumeEarly: "resume-early",
        "Failures are resolved before the correct processes have completed their recovery.";
    FailureTooLate: "failure-too-late",
        "Failure timestamps are 1 us too late.";
    FailureTooEarly: "failure-too-early",
        "Failure timestamps are 1 us too early.";
    UnknownEarly: "unknown-early",
        "The outcome of a message is unknown as soon as its probes were not answered.";
    RejoinNotAwaited: "rejoin-not-awaited",
        "A reliable scattering to a failed process does not wait for its next incarnation.";
    LeaveCauseLost: "leave-cause-lost",
        "A switch reports the link of a process that has left as timed out.";
    QuorumForgotten: "quorum-forgotten",
        "Agreed multicast delivers up to its leader's clock, whatever the clocks of a majority are.";
    GapsIgnored: "gaps-ignored",
        "Agreed multicast delivers up to its leader's clock, though proposals below it are missing.";
    PendingForgotten: "pending-forgotten",
        "Agreed multicast delivers beyond messages whose final timestamp is not known yet.";
    NewTimestamp: "new-timestamp",
        "A new leader of agreed multicast gives new timestamps to messages accepted before.";
    StaleEpoch: "stale-epoch",
        "A member of agreed multicast continues to follow the leader of an earlier epoch.";
    AckTwice: "ack-twice",
        "A duplicate acknowledgement of agreed multicast counts twice.";
    ProposedTwice: "proposed-twice",
        "A message that a client retransmits gets another timestamp.";
    VotesWithoutMemory: "votes-without-memory",
        "A member of agreed multicast that has restarted with an empty memory takes part again.";
    ReadAtDelivery: "read-at-delivery",
        "A replica answers a strict read when it is delivered, before the commit barrier has passed it.";
    SnapshotForStrict: "snapshot-for-strict",
        "A client sends strict reads as snapshot reads.";
    ExactnessIgnored: "exactness-ignored",
        "A client accepts a snapshot whose parts are not exact at one timestamp.";
    ExecutedTwice: "executed-twice",
        "A replica executes a write again that its client has repeated.";
    ShardMissed: "shard-missed",
        "A client leaves out the last shard when it repeats a write.";
    ReplyBeforeStore: "reply-before-store",
        "A replica replies before what it has executed is stored.";
    OneReplyOfAll: "one-reply-of-all",
        "A client reports a write as complete at the first shard's reply.";
    OwnWriteMissed: "own-write-missed",
        "A client's snapshot reads do not wait for its own writes.";
    ServedBeforeCaughtUp: "served-before-caught-up",
        "A replica serves before it has executed what its peer executed before its admission.";
    ImageWithoutLast: "image-without-last",
        "A replica that catches up lacks the write after the state that it was sent.";
    OldViewAccepted: "old-view-accepted",
        "A replica executes a write that was not sent to a replica that was admitted before.";
    StoredWhenExecuted: "stored-when-executed",
        "A replica reports what it has executed as stored, so that others drop what it may miss.";
    AbsentTooLate: "absent-too-late",
        "A replica that catches up is absent as of a request that may come after its admission.";
    MembersNotRecorded: "members-not-recorded",
        "The log of a replica does not say which others had ended before a write.";
    VoidAccepted: "void-accepted",
        "What a replica has executed after it was declared failed is valid when all start again.";
    BehindCompleted: "behind-completed",
        "A log is completed from others although they have dropped what follows it.";
    ExpiryByLocalClock: "expiry-by-local-clock",
        "A key is expired by when its replica looks, and the reply is taken for exact.";
    GapAccepted: "gap-accepted",
        "A replica of a log accepts an entry although it lacks one of the same client before.";
    ChecksumWithoutClient: "checksum-without-client",
        "The checksum of a log covers timestamps and sequence numbers, not whose entries they are.";
    AppendedTwice: "appended-twice",
        "A client of a log sends entries again that are in flight, and replicas append them again.";
    AnsweredBeforeStore: "answered-before-store",
        "A replica of a log replies before the entry is stored.";
    SuffixRemoved: "suffix-removed",
        "A new view of a log begins without the entries that are not known to be committed.";
    StaleViewAccepted: "stale-view-accepted",
        "A replica of a log accepts entries that were sent in a previous view.";
    StatedBeforeFrozen: "stated-before-frozen",
        "A replica of a log accepts entries after it has stated what its log has.";
    OneChecksumOfAll: "one-checksum-of-all",
        "A client of a log reports an entry as committed at the first reply.";
    CutNotStored: "cut-not-stored",
        "A replica of a log does not store a new view and the cut that begins it.";
    TrimmedBeforeApplied: "trimmed-before-applied",
        "A replica of a log trims entries that are committed, whether or not states have them.";
    AppliedBeforeStore: "applied-before-store",
        "A replica of a log reports entries as durably applied that a loss of power undoes.";
    InstalledBeforeStore: "installed-before-store",
        "A state of another replica counts before the log that continues it is stored.";
    LeaverAwaited: "leaver-awaited",
        "A replica of a log goes on waiting for one that has said that it ends.";
    LeaveUnknownToJoiner: "leave-unknown-to-joiner",
        "A replica that joins a log does not learn that a member has left, and awaits its statement.";
    LostLogStated: "lost-log-stated",
        "A replica of a log whose disk was lost takes part in a founding as if that had been empty.";
    MemoryReadAtDelivery: "memory-read-at-delivery",
        "An owner of memory reads when a batch is delivered, before its commit barrier has passed it.";
    BatchExecutedTwice: "batch-executed-twice",
        "An owner of memory executes a batch again that its client has repeated.";
    BoundOfFirstByte: "bound-of-first-byte",
        "An owner of memory checks that an operation begins in its region, not that it ends there.";
    FailedCompareIgnored: "failed-compare-ignored",
        "An owner of memory executes what follows a compare-and-swap that has failed.";
    RefusedInPart: "refused-in-part",
        "An owner of memory executes the operations of a batch before one that it refuses.";
    OneOwnerOfAll: "one-owner-of-all",
        "A client of memory reports a request as completed at the first owner's reply.";
    PointerBeforeNode: "pointer-before-node",
        "A client of a table links a node by one request, and writes it by another one.";
    VersionIgnored: "version-ignored",
        "A look-up in a table does not verify that its bucket has not changed meanwhile.";
    ReusedBeforeRemoved: "reused-before-removed",
        "A client of a table reuses a node as soon as it has submitted the request that unlinks it.";
    MissAtFirstNode: "miss-at-first-node",
        "A look-up in a table ends at the first node of a bucket, whatever its key is.";
    LookUpInOwnerOrder: "look-up-in-owner-order",
        "A look-up in a table of several replicas reads in the order of the replica alone.";
    ChecksumIgnored: "checksum-ignored",
        "A replica of a block device returns blocks that do not fit their checksums.";
    TrimWithoutMark: "trim-without-mark",
        "A replica of a block device does not change the checksums of blocks that it makes zero.";
    AppliedBeforeSync: "applied-before-sync",
        "A replica of a block device stores what it has applied before the blocks are durable.";
    LastChangeMissed: "last-change-missed",
        "A copy for a replica that was away lacks the blocks of the first change that it missed.";
    DamageSkipped: "damage-skipped",
        "A copy for a replica that was away leaves damaged blocks out, as if they had not changed.";
    OlderInstalled: "older-installed",
        "A replica of a block device replaces blocks by copies that are older.";
    LaggingRead: "lagging-read",
        "A read is answered by a replica that lacks an acknowledged write.";
    LostWriteAccepted: "lost-write-accepted",
        "A scrub takes an intact block that lacks a change for right.";
    BehindCopied: "behind-copied",
        "A damaged block is read from a replica that lacks an acknowledged write.";
    BehindSummarized: "behind-summarized",
        "A scrub compares a replica that has not applied what was acknowledged before the scrub.";
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
        &Self::ALL[Self::SCATTERING..Self::ReadAtDelivery as usize]
    }

    /// Returns the mistakes of transactions.
    pub fn of_transactions() -> &'static [Self] {
        &Self::ALL[Self::ReadAtDelivery as usize..Self::ExpiryByLocalClock as usize]
    }

    /// Returns the mistakes of the key-value store.
    pub fn of_stores() -> &'static [Self] {
        &Self::ALL[Self::ExpiryByLocalClock as usize..Self::GapAccepted as usize]
    }

    /// Returns the mistakes of the replicated log.
    pub fn of_logs() -> &'static [Self] {
        &Self::ALL[Self::GapAccepted as usize..Self::MemoryReadAtDelivery as usize]
    }

    /// Returns the mistakes of registered memory and of tables in it.
    pub fn of_memory() -> &'static [Self] {
        &Self::ALL[Self::MemoryReadAtDelivery as usize..Self::ChecksumIgnored as usize]
    }

    /// Returns the mistakes of the replicated block device.
    pub fn of_blocks() -> &'static [Self] {
        &Self::ALL[Self::ChecksumIgnored as usize..]
    }
}

/// Whether this build can select a mistake. Released programs refuse to build if so.
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
