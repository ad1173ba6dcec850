//! The replica of a node before it has its state.

use std::mem::take;

use onepipe::{ProcessId, Timestamp};
use onepipe_transaction::{
    CatchUpOptions, Decision, Placement, Replica, ReplicaOptions, Start, State,
};

use crate::options::NodeOptions;
use crate::storage::LogWriter;

/// How often a node says that it starts, in ns.
const START_INTERVAL_NS: u64 = 50_000_000;

/// What a node holds when it has joined the fabric.
pub(crate) enum Held<S> {
    /// No replica.
    Nothing,
    /// A replica, and its log if it has one.
    Replica(Replica<S>, Option<Box<LogWriter>>),
    /// A replica that gets its state with the others, or from another one.
    Starting(Starting<S>),
}

/// A replica that does not exist yet.
pub(crate) struct Starting<S> {
    pub start: Start,
    /// Which processes have ended since the node has joined, and when.
    pub ended: Vec<(ProcessId, Timestamp)>,
    of: (ProcessId, u16),
    session: u64,
    placement: Placement,
    timeout_ns: u64,
    initial: Option<S>,
}

impl<S: State> Starting<S> {
    pub fn new(of: (ProcessId, u16), session: u64, options: &NodeOptions, initial: S) -> Self {
        let placement = options.placement.clone();
        let start = Start::new(of.0, session, &placement, START_INTERVAL_NS);
        let (ended, timeout_ns) = (Vec::new(), options.client.timeout_ns);
        Self { start, ended, of, session, placement, timeout_ns, initial: Some(initial) }
    }

    /// Returns the replica, once it is decided how it gets its state.
    pub fn begin(&mut self) -> Option<Replica<S>> {
        let decision = self.start.decision()?.clone();
        let (initial, options) = (self.initial.take()?, ReplicaOptions::default());
        let (mut replica, founders) = match decision {
            Decision::Begin(founders) => {
                tracing::info!("the store starts");
                let replica = Replica::new(self.of.1, initial, options);
                (replica.with_placement(self.of.0, self.placement.clone()), founders)
            }
            Decision::CatchUp(founders) => {
                tracing::info!("the store goes on already: catching up");
                let catch_up = CatchUpOptions::new(self.session, self.timeout_ns);
                let placement = self.placement.clone();
                (Replica::returning(self.of, placement, initial, options, catch_up), founders)
            }
        };
        replica.set_founders(self.session, founders);
        for (process, at) in take(&mut self.ended) {
            replica.on_process_ended(process, at);
        }
        Some(replica)
    }
}
