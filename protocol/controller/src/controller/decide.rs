//! What the graph means, and what is written down of it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use onepipe_base::{Address, Instance, Mono, Now};
use onepipe_wire::{Opcode, Side};

use super::Controller;
use crate::graph::{FrozenEdge, Node, process_of};
use crate::record::Member;
use crate::{Event, Links, Record, RecordId, Severed};

/// How many members one record holds at most, so that it stays far below the limits of stores.
pub(super) const MEMBERS_PER_RECORD: usize = 256;

impl Controller {
    /// Looks at the graph: who is connected, who has failed, what may be resumed.
    pub(super) fn look(&mut self, now: Now) {
        (self.look_at, self.settled_at) = (None, None);
        self.looked = Some(now.mono);
        let changed = self.changed.take().unwrap_or(now.mono);
        let deaf = self.deaf(now.mono);
        for process in deaf.iter().filter_map(|instance| process_of(*instance)) {
            self.pings.ask(now.mono, process, self.config.ping_timeout_ns, false);
        }
        let (graph, config) = (&mut self.graph, &self.config);
        let mut findings = self.suspects.look(now, changed, config, graph, &self.ledger, deaf);
        self.stats.looks += 1;
        self.stats.visits = self.graph.net().visits();
        if matches!(self.config.links, Links::Mesh(_)) {
            let soon = now.mono.after_ns(self.config.link_timeout_ns);
            findings.again_at = Mono::earlier(findings.again_at, Some(soon));
        }
        if let Some(again) = findings.again_at {
            self.look_at = Some(again.max(now.mono.after_ns(1)));
        }
        self.stats.registered_twice += findings.doubles.saturating_sub(self.doubles) as u64;
        self.doubles = findings.doubles;
        if findings.is_resting {
            self.freeze.retain(|instance| self.suspects.contains(*instance));
        } else {
            self.freeze = findings.freeze;
        }
        self.freeze_ghosts();
        if self.active.is_none() {
            return;
        }
        for process in findings.ask {
            self.pings.ask(now.mono, process, self.config.ping_timeout_ns, false);
        }
        if findings.is_outvoted && !core::mem::replace(&mut self.is_outvoted, true) {
            self.notify(Event::Isolated);
        }
        self.is_outvoted &= findings.is_outvoted || findings.is_resting;
        let has_news = !findings.joined.is_empty()
            && (!self.deciding.is_empty() || self.ledger.has_news(now.mono, self.config.memory_ns));
        for instance in findings.joined {
            self.unrecorded.insert(instance);
            if let (true, Address::Process(process)) = (has_news, instance.address) {
                self.broadcast.late.insert(process);
            }
            self.notify(Event::Joined(instance));
        }
        findings.failed.retain(|(failed, _)| !self.deciding.contains_key(&failed.instance));
        if !findings.failed.is_empty() {
            for (failed, since) in &findings.failed {
                self.deciding.insert(failed.instance, (*since, now.mono));
            }
            let instances = findings.failed.into_iter().map(|(failed, _)| failed).collect();
            self.journal.push(Record::Failed(instances));
        }
        self.find_severable(now);
    }

    /// Whoever has failed counts nowhere, though a correct node may hear it: one that was out of
    /// reach itself while it was declared dead. What it holds there nobody else would resolve.
    fn freeze_ghosts(&mut self) {
        let mut ghosts = self.suspects.ghosts(&self.graph);
        #[cfg(test)]
        assert_eq!(ghosts, crate::graph::whole::ghosts(&self.graph, &self.ledger));
        ghosts.retain(|ghost| !self.freeze.contains(ghost));
        self.freeze.extend(ghosts);
    }

    /// Neighbours in a mesh that list this controller, but that it does not hear any more, or not
    /// since others have lost them. What was not heard while nobody was does not count.
    fn deaf(&self, now: Mono) -> BTreeSet<Instance> {
        if self.config.links == Links::Uplink {
            return BTreeSet::new();
        }
        let mut doubted: BTreeMap<Instance, Mono> = BTreeMap::new();
        for (_, node) in self.graph.owners() {
            for entry in node.frozen.iter().filter(|entry| !entry.is_resolved) {
                if let Some(instance) = entry.instance {
                    let at = doubted.entry(instance).or_insert(entry.seen_at);
                    *at = entry.seen_at.max(*at);
                }
            }
        }
        let is_deaf = |instance: &Instance| {
            let heard = self.graph.get(*instance).and_then(|node| node.heard);
            // What was under way when others lost it shows nothing.
            let settled = |at: &Mono| at.after_ns(self.config.settle_ns);
            heard.is_none_or(|heard| {
                now.since_ns(heard.max(self.attached.listening)) > self.config.link_timeout_ns
                    || doubted.get(instance).is_some_and(|at| heard < settled(at))
            })
        };
        self.graph.attachments().filter(is_deaf).collect()
    }

    /// Whether `instance` was connected at the last look.
    pub(super) fn is_correct(&self, instance: Instance) -> bool {
        self.graph.is_correct(instance)
    }

    /// Which frozen links of correct nodes need not hold anything, though nobody behind them has
    /// failed, or what failed is long resolved.
    fn find_severable(&mut self, now: Now) {
        self.severable.clear();
        self.wants_refresh = false;
        if self.graph.owners().len() == 0 {
            return;
        }
        let has_news = self.ledger.has_news(now.mono, self.config.memory_ns);
        let mut settled: Vec<(Instance, u32)> = Vec::new();
        for (owner, node) in self.graph.correct_owners() {
            for entry in node.frozen.iter().filter(|entry| !entry.is_resolved) {
                let Some(peer) = self.is_free(owner, node, entry) else { continue };
                // Who is behind this link may have missed news while it was dead.
                if has_news && entry.seen > self.covered {
                    self.wants_refresh = true;
                } else if peer == owner {
                    settled.push((owner, entry.number));
                } else {
                    let number = entry.number;
                    self.severable.push(Severed { owner, number, peer });
                }
            }
        }
        for (owner, number) in settled {
            self.mark_resolved(owner, number);
        }
    }

    /// Whether a frozen link waits for no failure, and for whom else it does not wait any more: the
    /// owner itself stands for nobody.
    fn is_free(&self, owner: Instance, node: &Node, entry: &FrozenEdge) -> Option<Instance> {
        let Some(peer) = entry.instance else { return Some(owner) };
        if self.ledger.is_resolved(peer) || self.graph.get(peer).is_none() {
            return Some(owner);
        }
        if !self.is_correct(peer) {
            return None;
        }
        // The other end must be known to live on: it is heard again, or has said that it lost the
        // link, too. Else it may have died, and its other neighbours have not said so yet.
        let is_back = node.edges.iter().any(|edge| edge.instance == peer && edge.is_up);
        let other = self.graph.get(peer)?;
        let has_lost = other.generation.is_some()
            && !other.edges.iter().any(|edge| edge.instance == owner && edge.is_up);
        (is_back || has_lost).then_some(peer)
    }

    pub(super) fn mark_resolved(&mut self, owner: Instance, number: u32) {
        let stats = &mut self.stats;
        self.graph.each_frozen(owner, |entry| {
            if entry.number == number {
                stats.anonymous += u64::from(entry.instance.is_none() && !entry.is_resolved);
                entry.is_resolved = true;
            }
        });
    }

    /// The store has written `record`.
    pub(super) fn on_written(&mut self, now: Now, id: RecordId, record: &Record) {
        let resolved = self.ledger.take(now.mono, record).to_vec();
        match record {
            Record::Epoch { .. } | Record::Leads(_) => {}
            Record::Members(members) => {
                for member in members {
                    self.recording.remove(&member.instance);
                }
                for member in members {
                    if let Address::Process(process) = member.instance.address {
                        self.ledger.forget_recalls(process, member.instance.incarnation);
                        self.welcome(member.instance, process);
                    }
                }
            }
            Record::Failed(instances) => {
                for failed in instances {
                    self.graph.on_decision(failed.instance.address);
                    let times = self.deciding.remove(&failed.instance);
                    let (suspected, decided) = times.unwrap_or((now.mono, now.mono));
                    self.open_since.get_or_insert(decided);
                    self.stats.failures += 1;
                    self.stats.inexact += u64::from(!failed.is_exact);
                    self.suspects.forget(failed.instance);
                    if let Address::Process(process) = failed.instance.address
                        && !self.graph.has_later(failed.instance)
                    {
                        self.pings.settle(process);
                        self.broadcast.on_failed(process);
                    }
                    self.notify(Event::Failed { failed: *failed, suspected, decided });
                }
                self.suspects.on_decided(instances.iter().map(|failed| failed.instance));
                self.is_noticed = false;
                self.broadcast.abandon();
                self.want_look(now.mono);
            }
            Record::Resumed { links, .. } => {
                for instance in resolved {
                    self.on_resolved(now, instance);
                }
                self.count_partitions(links);
                for link in links {
                    self.mark_resolved(link.owner, link.number);
                }
                let is_open = self.ledger.open().len() > 0;
                self.open_since = self.open_since.filter(|_| is_open);
                self.want_look(now.mono);
            }
            Record::Undeliverable { entries, .. } => {
                self.stats.undeliverables += entries.len() as u64;
                if let Some((process, psn)) = self.recalls.remove(&id) {
                    self.post(Opcode::UndeliverableAck, process, psn, Vec::new());
                }
            }
        }
    }

    /// Everybody has completed the failure of `instance`: no link to it holds anything, but those that
    /// were announced since the news began.
    fn on_resolved(&mut self, now: Now, instance: Instance) {
        let has_news = self.ledger.has_news(now.mono, self.config.memory_ns);
        let covered = self.covered;
        self.graph.on_decision(instance.address);
        let holds = |(owner, node): (Instance, &Node)| {
            let mut instances = node.frozen.iter().map(|entry| entry.instance);
            instances.any(|held| held == Some(instance)).then_some(owner)
        };
        let owners: Vec<Instance> = self.graph.owners().filter_map(holds).collect();
        for owner in owners {
            self.graph.each_frozen(owner, |entry| {
                if entry.instance == Some(instance) {
                    entry.is_resolved |= entry.seen <= covered || !has_news;
                }
            });
        }
        // A switch may have come back meanwhile; a process never does.
        if matches!(instance.address, Address::Process(_)) || !self.is_correct(instance) {
            self.graph.remove(instance);
            self.suspects.forget(instance);
            self.unrecorded.remove(&instance);
        }
    }

    /// Counts lower ends of given-up links from which some correct process is not reached any more.
    fn count_partitions(&mut self, links: &[Severed]) {
        let is_lower = |link: &&Severed| {
            self.graph.get(link.owner).is_some_and(|node| {
                let mut frozen = node.frozen.iter();
                frozen.any(|entry| entry.number == link.number && entry.side != Side::Upper)
            })
        };
        let ends: BTreeSet<(Instance, Instance)> =
            links.iter().filter(is_lower).map(|link| (link.peer, link.owner)).collect();
        let mut counted = None;
        for (lower, upper) in ends {
            if counted != Some(lower) && self.graph.is_cut_off(upper, lower) {
                counted = Some(lower);
                self.stats.partitions += 1;
            }
        }
    }

    /// Has the store note who takes part.
    pub(super) fn record_members(&mut self) {
        // One record at a time: whoever comes meanwhile is in the next.
        if !self.recording.is_empty() {
            return;
        }
        let mut members: Vec<Member> = Vec::new();
        while members.len() < MEMBERS_PER_RECORD
            && let Some(instance) = self.unrecorded.pop_first()
        {
            if self.graph.get(instance).is_none_or(|node| node.is_recorded) {
                continue;
            }
            members.extend(self.graph.member(instance));
            if let Some(node) = self.graph.get_mut(instance) {
                node.is_recorded = true;
            }
            self.recording.insert(instance);
        }
        if !members.is_empty() {
            self.journal.push(Record::Members(members));
        }
    }
}
