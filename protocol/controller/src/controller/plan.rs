//! The order in which notifications are sent.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{Instance, Now, Port, ProcessId};
use onepipe_wire::{FloodKind, Resolved};

use super::Controller;
use crate::broadcast::{Notification, Recipients, Round};
use crate::graph::process_of;
use crate::notification_plan::Step;
use crate::{Event, Links, Recovery};

impl Controller {
    //= spec/failure.md#R61
    /// Advances the round in progress and, when it is complete, starts the next one; none before
    /// the log was compared with what processes know of it.
    pub(super) fn advance_rounds(&mut self, now: Now) {
        if self.term.is_comparing() {
            return;
        }
        if makes(Mistake::ResumeEarly) {
            self.plan.resume_early(self.graph.announcements());
        }
        loop {
            if let Some(round) = self.broadcast.advance(now.mono) {
                self.on_round_complete(now, round);
                continue;
            }
            if self.broadcast.round().is_some() {
                return;
            }
            let notice = self.plan.notice(self.broadcast.has_joiners());
            let failures = match notice.is_some() || self.decisions.open().len() > 0 {
                true => self.decisions.recent_failures(now.mono, self.config.notice_retention_ns),
                false => Vec::new(),
            };
            if failures.is_empty() {
                self.broadcast.take_joiners();
                self.plan.on_nothing_to_notice(self.graph.announcements());
            }
            let notice = notice.filter(|_| !failures.is_empty());
            let resolved = self.resolved_links();
            // Otherwise a process has yet to complete an open failure.
            if notice.is_none() {
                self.record_completion();
            }
            match self.plan.next(!resolved.is_empty(), notice) {
                None => return,
                Some(Step::Resume) => self.notify_all(now, Notification::Resume(resolved)),
                Some(Step::NoticeAll) => self.notify_all(now, Notification::Notice(failures)),
                Some(Step::NoticeJoiners) => {
                    let processes = self.broadcast.take_joiners();
                    let recipients = Recipients { links: BTreeSet::new(), processes };
                    self.start_round(now, Notification::Notice(failures), recipients, false);
                }
                Some(Step::Freeze) => {
                    let instances = self.plan.take_freeze();
                    self.notify_all(now, Notification::Freeze(instances));
                }
            }
        }
    }

    //= spec/failure.md#R25
    /// Starts a round with all processes as recipients.
    fn notify_all(&mut self, now: Now, notification: Notification) {
        // A process that failed earlier may sit behind a link that has come back, and must receive
        // the notice before that link is resolved. Unicast would only reach members.
        let by_flood = notification.kind() != FloodKind::Notice
            || self.config.recovery == Recovery::Tree
            || self.plan.needs_renotify()
            || self.decisions.has_resolved();
        let mut recipients = Recipients::default();
        match self.config.links {
            Links::Uplink if by_flood => {
                recipients.links.insert(Port(0));
            }
            Links::Mesh(count) if by_flood => {
                let ports = self.processes().filter_map(|process| u16::try_from(process.0).ok());
                recipients.links = ports.filter(|port| *port < count).map(Port).collect();
            }
            _ => recipients.processes = self.processes().collect(),
        }
        self.start_round(now, notification, recipients, true);
    }

    fn start_round(
        &mut self,
        now: Now,
        notification: Notification,
        recipients: Recipients,
        is_full: bool,
    ) {
        assert!(self.broadcast.round().is_none(), "one round at a time");
        self.stats.floods += 1;
        let announcements = self.graph.announcements();
        self.broadcast.start(now.mono, notification, recipients, is_full, announcements);
    }

    /// Returns all processes that are members, connected or not.
    fn processes(&self) -> impl Iterator<Item = ProcessId> {
        let joined = self.graph.iter().filter(|(instance, node)| {
            node.has_joined
                && !self.decisions.has_failed(*instance)
                && !self.graph.is_superseded(*instance)
        });
        joined.filter_map(|(instance, _)| process_of(instance))
    }

    /// Returns the resolved links of correct nodes whose owners have not been notified.
    fn resolved_links(&self) -> Vec<Resolved> {
        let ready = self.graph.resumable();
        ready.map(|(owner, entry)| Resolved { owner, number: entry.number }).collect()
    }

    /// Handles a round that all recipients have acknowledged.
    fn on_round_complete(&mut self, now: Now, round: Round) {
        match round.notification {
            Notification::Notice(_) if round.is_full => {
                if self.plan.on_noticed(round.announcements) {
                    self.schedule_evaluation(now.mono);
                }
                if let Some(decided) = self.plan.complete_open() {
                    let (instances, started_at) = (self.decisions.open().len(), round.started_at);
                    self.notify(Event::Noticed {
                        instances,
                        decided,
                        started_at,
                        completed: now.mono,
                    });
                }
            }
            Notification::Notice(_) => {}
            Notification::Resume(resolved) => {
                for link in &resolved {
                    self.graph.update_frozen(link.owner, |entry| {
                        entry.is_notified |= entry.number == link.number;
                    });
                }
                let (links, started_at) = (resolved.len(), round.started_at);
                self.notify(Event::Resumed { links, started_at, completed: now.mono });
            }
            Notification::Freeze(_) => self.schedule_evaluation(now.mono),
        }
    }

    //= spec/failure.md#R28
    /// Records the completion: open failures are resolved, and links that died alone are severed.
    fn record_completion(&mut self) {
        if self.recorder.is_changing_failures()
            || self.suspects.is_unknown()
            || self.plan.is_unnoticed()
        {
            return;
        }
        let open = self.decisions.open().map(|failed| failed.instance);
        let instances: Vec<Instance> =
            open.filter(|instance| !self.suspects.is_depended_on(*instance)).collect();
        // While an instance is suspected, links that seem usable may turn out not to be.
        let links = match self.suspects.is_empty() {
            true => self.evaluation.take_severable(),
            false => Vec::new(),
        };
        self.recorder.complete(instances, links);
    }
}
