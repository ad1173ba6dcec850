//! What holds between any two calls of a [`Controller`].

use alloc::collections::BTreeSet;

use onepipe_base::Instance;

use super::decide::MEMBERS_PER_RECORD;
use super::{Change, Controller};
use crate::Record;
use crate::open_failures::OpenFailures;

impl Controller {
    /// Asserts what holds between any two calls, whatever the replica has received and the store
    /// has returned. Builds with debug assertions call this after each input; tests and fuzzers may
    /// call it at any time. Takes time in proportion to the fabric.
    ///
    /// # Panics
    /// When an invariant is broken, which is a bug.
    pub fn check_invariants(&self) {
        self.graph.check_invariants();
        self.check_stages();
    }

    /// As [`Controller::check_invariants`] without the graph, whose size is that of the fabric.
    pub(super) fn check_stages(&self) {
        self.decisions.check_invariants();
        self.suspects.check_invariants(&self.decisions);
        self.persist_queue.check_invariants();
        self.broadcast.check_invariants();
        self.pings.check_invariants();
        self.recovery_replies.check_invariants(self.config.queue_max);
        self.send_queue.check_invariants(self.config.queue_max, self.config.payload_len_max());
        self.own_links.check_invariants(self.config.links);
        self.events.check_invariants();
        let is_in_order = |change: Change| change.first_at <= change.quiet_at;
        assert!(self.change.is_none_or(is_in_order), "evaluated before it was known");
        match self.active {
            Some(_) => self.check_active(),
            None => self.check_standby(),
        }
        self.check_queued();
    }

    //= spec/failure.md#R61
    /// Asserts what holds of an active replica.
    fn check_active(&self) {
        let is_any_open = self.decisions.open().len() > 0;
        assert_eq!(is_any_open, self.open_failures != OpenFailures::None, "what is open is known");
        assert!(self.covered_announcements <= self.graph.announcements(), "notices of the future");
        assert!(self.recording.len() <= MEMBERS_PER_RECORD, "members beyond the limit");
        assert!(self.recalls.len() <= self.config.queue_max, "recalls beyond the limit");
        assert_eq!(self.active, Some(self.broadcast.epoch()), "floods of another epoch");
        if let (Some(epoch), Some(known)) = (self.active, self.known_tip) {
            assert!(known.epoch <= epoch.0, "a later epoch is known");
            let is_contained = self.decisions.contains(known.decided, known.digest);
            assert!(is_contained, "the log lacks decisions that this replica knows of");
        }
    }

    //= spec/failure.md#R24
    /// Asserts that a replica without an epoch decides and sends nothing.
    fn check_standby(&self) {
        assert!(self.compares_until.is_none() && self.broadcast.round().is_none());
        assert_eq!(self.persist_queue.len(), 0, "a record without an epoch");
        assert!(self.send_queue.is_empty(), "a frame without an epoch");
        assert!(self.deciding.is_empty() && self.recording.is_empty(), "decided in no epoch");
        assert!(self.recalls.is_empty(), "a recall is acknowledged in no epoch");
        assert!(self.unrecorded.is_empty() && self.severable.is_empty());
    }

    //= spec/failure.md#R23
    /// Asserts that what is on its way into the store is what the records there say.
    fn check_queued(&self) {
        let (mut deciding, mut recording, mut recalls) = (0, 0, 0);
        for (id, record) in self.persist_queue.iter() {
            match record {
                Record::Failed(failed) => {
                    deciding += failed.len();
                    let instances: BTreeSet<Instance> =
                        failed.iter().map(|failed| failed.instance).collect();
                    assert_eq!(instances.len(), failed.len(), "a failure twice in a record");
                    for instance in instances {
                        assert!(self.deciding.contains_key(&instance), "{instance:?}");
                        assert!(self.decisions.decision(instance).is_none(), "{instance:?}");
                    }
                }
                Record::Members(members) => {
                    recording += members.len();
                    let mut members = members.iter();
                    assert!(members.all(|member| self.recording.contains(&member.instance)));
                }
                Record::Undeliverable { sender, .. } => {
                    recalls += 1;
                    let known = self.recalls.get(id).map(|(sender, _)| sender);
                    assert_eq!(known, Some(sender), "the recall is acknowledged when written");
                }
                Record::Resumed { instances, .. } => {
                    let mut open = instances.iter();
                    assert!(open.all(|instance| self.decisions.is_open(*instance)));
                }
                Record::Epoch { .. } | Record::Dropped { .. } | Record::Leads(_) => {}
            }
        }
        assert_eq!(deciding, self.deciding.len(), "each failure is in one record");
        assert_eq!(recording, self.recording.len(), "each member is in one record");
        assert_eq!(recalls, self.recalls.len(), "each batch of recalls is in one record");
    }
}
