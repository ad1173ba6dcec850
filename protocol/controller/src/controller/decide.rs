//! Evaluation of the graph, and the effects of records that the store has written.

use alloc::vec::Vec;

use onepipe_base::{Address, Cause, Instance, Mono, Now};
use onepipe_wire::{Opcode, Resolved};

use super::Controller;
use crate::failure_detection::Observed;
use crate::graph::{Node, process_of};
use crate::recorder::{Deciding, RecallBatch};
use crate::releasable::{Releasable, partitions};
use crate::{Event, Links, Record, RecordId};

impl Controller {
    /// Evaluates the graph: which instances are connected, which have failed, which links may be
    /// resumed.
    pub(super) fn evaluate(&mut self, now: Now) {
        let changed_at = self.evaluation.start(now.mono);
        let idle = self.own_links.idle_neighbours(now.mono, &self.config, &self.graph);
        for process in idle.iter().filter_map(|instance| process_of(*instance)) {
            self.pings.start(now.mono, process, self.ping_timeout_ns(now.mono), false);
        }
        let observed = Observed { idle, reception: self.own_links.reception(now.mono) };
        let (graph, config) = (&mut self.graph, &self.config);
        let mut findings =
            self.suspects.evaluate(now, changed_at, config, graph, &self.decisions, observed);
        self.stats.evaluations += 1;
        self.stats.visits = self.graph.adjacency().visits();
        // No report says that a process of a mesh is idle: only an evaluation finds it.
        if matches!(self.config.links, Links::Mesh(_)) {
            let soon = now.mono.after_ns(self.config.link_timeout_ns);
            findings.reevaluate_at = Mono::earlier(findings.reevaluate_at, Some(soon));
        }
        let soonest = now.mono.after_ns(1);
        self.evaluation.schedule(findings.reevaluate_at.map(|again| again.max(soonest)));
        self.stats.duplicate_registrations += self.evaluation.on_duplicates(findings.duplicates);
        // A node that lists failed instances as up was itself unreachable when their failure was
        // decided; the registers that it holds would never be resolved.
        let stale_peers = self.suspects.stale_peers(&self.graph);
        #[cfg(test)]
        assert_eq!(stale_peers, crate::graph::reference::stale_peers(&self.graph, &self.decisions));
        self.plan.update_freeze(&mut findings, &self.suspects, stale_peers);
        if !self.term.is_active() {
            return;
        }
        if self.evaluation.take_cut_off(&findings) {
            self.notify(Event::Isolated);
        }
        for process in findings.ping {
            self.pings.start(now.mono, process, self.ping_timeout_ns(now.mono), false);
        }
        // A joiner must learn of all failures that are open, recent or about to be recorded.
        let has_notice = !findings.joined.is_empty()
            && (self.recorder.is_deciding()
                || self.decisions.has_notice(now.mono, self.config.notice_retention_ns));
        for instance in findings.joined {
            self.recorder.add_member(instance);
            if let (true, Address::Process(process)) = (has_notice, instance.address) {
                self.broadcast.add_joiner(process);
            }
            self.notify(Event::Joined(instance));
        }
        let Self { config, graph, decisions, .. } = self;
        let compares_until = self.term.compare(now.mono, config, graph, decisions);
        if compares_until.is_some() {
            findings.failed.clear();
            self.evaluation.schedule(compares_until);
        }
        self.recorder.decide(now.mono, findings.failed);
        self.release(now);
        debug_assert!(self.evaluation.due().is_none_or(|at| at > now.mono), "due again at once");
    }

    /// Resolves frozen links that no failure concerns, and notes which ones may be severed.
    fn release(&mut self, now: Now) {
        let Self { config, graph, decisions, .. } = self;
        let found =
            Releasable::find(now, config, graph, decisions, self.plan.covered_announcements());
        self.plan.set_needs_renotify(found.needs_renotify);
        self.evaluation.schedule(found.reevaluate_at);
        self.evaluation.set_severable(found.severable);
        for Resolved { owner, number } in found.resolvable {
            self.mark_resolved(owner, number);
        }
    }

    pub(super) fn mark_resolved(&mut self, owner: Instance, number: u32) {
        let stats = &mut self.stats;
        self.graph.update_frozen(owner, |entry| {
            if entry.number == number {
                stats.unknown_peers += u64::from(entry.instance.is_none() && !entry.is_resolved);
                entry.is_resolved = true;
            }
        });
    }

    //= spec/failure.md#R23
    /// Applies a record that the store has written.
    pub(super) fn on_written(&mut self, now: Now, id: RecordId, record: &Record) {
        let resolved = self.decisions.apply(now.mono, record).to_vec();
        match record {
            Record::Epoch { .. } | Record::Leads(_) | Record::Dropped { .. } => {}
            Record::Members(members) => {
                self.recorder.on_members_written(members);
                for member in members {
                    if let Address::Process(process) = member.instance.address {
                        self.ack_announce(member.instance, process);
                    }
                }
            }
            Record::Failed(instances) => {
                for failed in instances {
                    self.graph.invalidate_links(failed.instance.address);
                    let Deciding { since: suspected, at: decided, evidence } =
                        self.recorder.take_decided(now.mono, failed);
                    self.plan.add_open(decided);
                    let counter = match (failed.cause, failed.instance.address) {
                        (Cause::Left, _) => &mut self.stats.leaves,
                        (_, Address::Process(_)) => &mut self.stats.failures,
                        (_, Address::Switch(_)) => &mut self.stats.switch_failures,
                    };
                    *counter += 1;
                    self.stats.inexact += u64::from(!failed.is_exact);
                    self.suspects.forget(failed.instance);
                    if let Address::Process(process) = failed.instance.address
                        && !self.graph.has_successor(failed.instance)
                    {
                        self.pings.cancel(process);
                        self.broadcast.on_failed(process);
                    }
                    let reporter = evidence.reporter;
                    self.notify(Event::Failed { failed: *failed, suspected, decided, reporter });
                }
                self.suspects.on_decided(instances.iter().map(|failed| failed.instance));
                self.broadcast.abandon();
                self.schedule_evaluation(now.mono);
            }
            Record::Resumed { links, .. } => {
                for instance in resolved {
                    self.on_resolved(now, instance);
                }
                self.stats.partitions += partitions(&mut self.graph, links);
                for link in links {
                    self.mark_resolved(link.owner, link.number);
                }
                if self.decisions.open().len() == 0 {
                    self.plan.resolve_all();
                }
                self.schedule_evaluation(now.mono);
            }
            Record::Undeliverable { entries, .. } => {
                self.stats.undeliverables += entries.len() as u64;
                if let Some(RecallBatch { sender, psn }) = self.recorder.take_recalled(id) {
                    self.enqueue_frame(Opcode::UndeliverableAck, sender, psn, self.tip_payload());
                }
            }
        }
    }

    //= spec/failure.md#R28
    /// Handles the resolution of `instance`: its links are released, except those announced after
    /// the last complete round of notices started.
    fn on_resolved(&mut self, now: Now, instance: Instance) {
        let has_notice = self.decisions.has_notice(now.mono, self.config.notice_retention_ns);
        let covered_announcements = self.plan.covered_announcements();
        self.graph.invalidate_links(instance.address);
        let holds = |(owner, node): (Instance, &Node)| {
            let mut instances = node.frozen.iter().map(|entry| entry.instance);
            instances.any(|held| held == Some(instance)).then_some(owner)
        };
        let owners: Vec<Instance> = self.graph.owners().filter_map(holds).collect();
        for owner in owners {
            self.graph.update_frozen(owner, |entry| {
                if entry.instance == Some(instance) {
                    entry.is_resolved |= entry.missed_until <= covered_announcements || !has_notice;
                }
            });
        }
        // A switch may have come back meanwhile; a process returns under a new incarnation only.
        if matches!(instance.address, Address::Process(_)) || !self.graph.is_correct(instance) {
            self.graph.remove(instance);
            self.suspects.forget(instance);
            self.recorder.remove_member(instance);
        }
    }
}
