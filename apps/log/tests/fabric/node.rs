//! A replica in a test: from its start to its end.

use std::collections::VecDeque;

use onepipe_base::{Mono, ProcessId, Timestamp};
use onepipe_log::{Executor, LogReplica, LogStart, OwnLog, Scattering, ScatteringKind, StartPhase};

use super::Message;
use super::state::TestState;

/// What one replica is and has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node<S> {
    pub replica: Option<LogReplica>,
    /// The start of the replica, until the log is open, if replicas meet by themselves.
    pub start: Option<LogStart>,
    /// The state, if replicas have one.
    pub executor: Option<Executor<TestState>>,
    pub queue: VecDeque<Message>,
    /// What the replica answers to others that start.
    pub answers: Vec<Scattering>,
    /// Ends before its start of which the replica is notified later.
    pub late_ends: Vec<(ProcessId, Timestamp)>,
    /// Number of ordered events that were delivered.
    pub cursor: usize,
    /// The fabric has declared the process failed, which goes on until it notices.
    pub is_excluded: bool,
    /// The disk was lost, and the operator has said so.
    pub is_replaced: bool,
    pub store: S,
    /// What a loss of power has left of the state.
    pub state_disk: TestState,
}

impl<S> Node<S> {
    pub fn on_message(&mut self, is_reliable: bool, message: &Message, now: Mono) {
        let Some(replica) = &mut self.replica else { return };
        let Message { at, from, payload } = message;
        let Some(start) = &mut self.start else {
            match LogStart::answer(payload) {
                Some(payload) if replica.is_whole() && !self.is_excluded => {
                    let (kind, receivers) = (ScatteringKind::BestEffort, vec![*from]);
                    self.answers.push(Scattering { kind, receivers, payload });
                }
                _ => replica.on_message(is_reliable, *at, *from, payload),
            }
            return;
        };
        start.on_message(is_reliable, *at, *from, payload);
        match start.phase() {
            StartPhase::Pending => return,
            StartPhase::Failed(error) => panic!("a log was lost: {error}"),
            StartPhase::Joins => replica.rejoin(now),
            StartPhase::Founded(at, founding) => {
                if !replica.found(*at, founding) {
                    replica.rejoin(now);
                }
            }
        }
        let ends: Vec<_> = start.ends().collect();
        self.start = None;
        ends.into_iter().for_each(|(process, at)| replica.on_ended(process, at));
    }

    pub fn on_ended(&mut self, process: ProcessId, at: Timestamp) {
        match (&mut self.start, &mut self.replica) {
            (Some(start), _) => start.on_ended(process, at),
            (None, Some(replica)) => replica.on_ended(process, at),
            (None, None) => {}
        }
    }

    /// Returns what a restored replica has of the log.
    pub fn own_log(&self, replica: &LogReplica) -> OwnLog {
        match replica.own_log() {
            OwnLog::Empty if self.is_replaced => OwnLog::Replaced,
            own => own,
        }
    }

    /// Whether the state has applied the whole log, if there is a state.
    pub fn is_current(&self) -> bool {
        let (Some(replica), Some(executor)) = (&self.replica, &self.executor) else { return true };
        executor.is_current(replica) && executor.applied() == replica.len()
    }

    /// Returns what is wrong with the state, if anything.
    pub fn check_state(&self) -> Result<(), String> {
        match (&self.replica, &self.executor) {
            (Some(replica), Some(executor)) if executor.is_current(replica) => {
                executor.state().check()
            }
            _ => Ok(()),
        }
    }
}
