//! One life of a process, and what it was told of others.

use std::collections::BTreeMap;

use onepipe_base::Timestamp;
use onepipe_wire::Service;

use crate::judge::Fortune;
use crate::receiver::Receiver;
use crate::sender::Sender;
use crate::stamps::Stamps;

/// One life of a process.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    /// Best effort, reliable.
    pub senders: [Sender; 2],
    pub stamps: Stamps,
    pub receiver: Receiver,
    /// When it began, in ns of the run.
    pub started_ns: u64,
    /// How it ended, if it did.
    pub end: Option<End>,
    /// When it failed, by what anybody was told.
    pub failed: Option<Failure>,
    /// A controller could not know for sure when it failed.
    pub is_inexact: bool,
    /// The lives that it was told had failed, and when it was told, in ns of the run.
    pub told: BTreeMap<(u32, u32), u64>,
    /// The later lives of others that it has heard from, and since when, in ns of the run.
    pub met: BTreeMap<(u32, u32), u64>,
}

/// What processes are told of a life that has failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure {
    pub at: Timestamp,
    /// When anybody was told last, in ns of the run.
    pub last_told_ns: u64,
}

/// How a life ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It crashed.
    Crash,
    /// It was told that it had failed.
    Exclusion,
    /// It took its leave.
    Leave,
}

impl Life {
    pub fn new(started_ns: u64, is_merged: bool) -> Self {
        Self {
            senders: [Sender::new(Service::BestEffort), Sender::new(Service::Reliable)],
            stamps: Stamps::default(),
            receiver: Receiver::new(is_merged),
            started_ns,
            end: None,
            failed: None,
            is_inexact: false,
            told: BTreeMap::new(),
            met: BTreeMap::new(),
        }
    }

    /// Whether it runs, and nobody thinks otherwise.
    pub fn is_correct(&self) -> bool {
        self.end.is_none() && self.failed.is_none()
    }

    /// What became of it as a sender.
    pub fn fortune(&self) -> Fortune {
        match (self.failed, self.end) {
            (Some(Failure { at, .. }), _) => Fortune::Failed { at, is_exact: !self.is_inexact },
            (None, None | Some(End::Leave)) => Fortune::Correct,
            (None, Some(End::Crash | End::Exclusion)) => Fortune::Gone,
        }
    }
}
