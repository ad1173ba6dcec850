//! One incarnation of a process, and the failures that it was notified of.

use std::collections::BTreeMap;

use onepipe_base::Timestamp;
use onepipe_wire::Service;

use crate::receiver::Receiver;
use crate::sender::Sender;
use crate::stamps::Stamps;
use crate::verify::SenderStatus;

/// One incarnation of a process.
#[derive(Clone, Debug)]
pub(crate) struct IncarnationState {
    /// By service: best effort, reliable.
    pub senders: [Sender; 2],
    pub stamps: Stamps,
    pub receiver: Receiver,
    /// Start of the incarnation, in ns of the run.
    pub started_ns: u64,
    /// How the incarnation ended, if it did.
    pub end: Option<End>,
    /// The failure that processes were notified of, if any.
    pub failed: Option<Failure>,
    /// What a read waits for that has begun at this process since then.
    pub read_at: Option<Timestamp>,
    /// Whether the controller's failure timestamp is not exact.
    pub is_inexact: bool,
    /// Incarnations that it was notified of as failed, with the time of the notification in ns of
    /// the run.
    pub notified: BTreeMap<(u32, u32), u64>,
    /// Restarted incarnations of other processes from which it has received a reliable message,
    /// with the time of the first one in ns of the run.
    pub first_contact_ns: BTreeMap<(u32, u32), u64>,
}

/// A failure as processes were notified of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure {
    pub at: Timestamp,
    /// Time of the last notification, in ns of the run.
    pub last_notified_ns: u64,
}

/// How an incarnation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It crashed.
    Crash,
    /// It was notified that it was declared failed.
    Exclusion,
    /// It left gracefully.
    Leave,
}

impl IncarnationState {
    pub fn new(started_ns: u64, is_merged: bool) -> Self {
        Self {
            senders: [Sender::new(Service::BestEffort), Sender::new(Service::Reliable)],
            stamps: Stamps::default(),
            receiver: Receiver::new(is_merged),
            started_ns,
            end: None,
            failed: None,
            read_at: None,
            is_inexact: false,
            notified: BTreeMap::new(),
            first_contact_ns: BTreeMap::new(),
        }
    }

    /// Whether the incarnation runs and no process was notified of its failure.
    pub fn is_correct(&self) -> bool {
        self.end.is_none() && self.failed.is_none()
    }

    /// Returns the outcome of the incarnation as a sender.
    pub fn sender_status(&self) -> SenderStatus {
        match (self.failed, self.end) {
            (Some(Failure { at, .. }), _) => {
                SenderStatus::Failed { at, is_exact: !self.is_inexact }
            }
            (None, None | Some(End::Leave)) => SenderStatus::Correct,
            (None, Some(End::Crash | End::Exclusion)) => SenderStatus::Crashed,
        }
    }
}
