//! What the graph means, and what is written down of it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use onepipe_base::{Address, Life, Mono, Now};
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
        for process in deaf.iter().filter_map(|life| process_of(*life)) {
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
            self.freeze.retain(|life| self.suspects.contains(*life));
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
        for life in findings.joined {
            self.unrecorded.insert(life);
            if let (true, Address::Process(process)) = (has_news, life.address) {
                self.broadcast.late.insert(process);
            }
            self.notify(Event::Joined(life));
        }
        findings.failed.retain(|(failed, _)| !self.deciding.contains_key(&failed.life));
        if !findings.failed.is_empty() {
            for (failed, since) in &findings.failed {
                self.deciding.insert(failed.life, (*since, now.mono));
            }
            let lives = findings.failed.into_iter().map(|(failed, _)| failed).collect();
            self.journal.push(Record::Failed(lives));
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
    fn deaf(&self, now: Mono) -> BTreeSet<Life> {
        if self.config.links == Links::Uplink {
            return BTreeSet::new();
        }
        let mut doubted: BTreeMap<Life, Mono> = BTreeMap::new();
        for (_, node) in self.graph.owners() {
            for entry in node.frozen.iter().filter(|entry| !entry.is_resolved) {
                if let Some(life) = entry.life {
                    let at = doubted.entry(life).or_insert(entry.seen_at);
                    *at = entry.seen_at.max(*at);
                }
            }
        }
        let is_deaf = |life: &Life| {
            let heard = self.graph.get(*life).and_then(|node| node.heard);
            // What was under way when others lost it shows nothing.
            let settled = |at: &Mono| at.after_ns(self.config.settle_ns);
            heard.is_none_or(|heard| {
                now.since_ns(heard.max(self.attached.listening)) > self.config.link_timeout_ns
                    || doubted.get(life).is_some_and(|at| heard < settled(at))
            })
        };
        self.graph.attachments().filter(is_deaf).collect()
    }

    /// Whether `life` was connected at the last look.
    pub(super) fn is_correct(&self, life: Life) -> bool {
        self.graph.is_correct(life)
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
        let mut settled: Vec<(Life, u32)> = Vec::new();
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
    fn is_free(&self, owner: Life, node: &Node, entry: &FrozenEdge) -> Option<Life> {
        let Some(peer) = entry.life else { return Some(owner) };
        if self.ledger.is_resolved(peer) || self.graph.get(peer).is_none() {
            return Some(owner);
        }
        if !self.is_correct(peer) {
            return None;
        }
        // The other end must be known to live on: it is heard again, or has said that it lost the
        // link, too. Else it may have died, and its other neighbours have not said so yet.
        let is_back = node.edges.iter().any(|edge| edge.life == peer && edge.is_up);
        let other = self.graph.get(peer)?;
        let has_lost = other.generation.is_some()
            && !other.edges.iter().any(|edge| edge.life == owner && edge.is_up);
        (is_back || has_lost).then_some(peer)
    }

    pub(super) fn mark_resolved(&mut self, owner: Life, number: u32) {
        let stats = &mut self.stats;
        self.graph.each_frozen(owner, |entry| {
            if entry.number == number {
                stats.anonymous += u64::from(entry.life.is_none() && !entry.is_resolved);
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
                    self.recording.remove(&member.life);
                }
                for member in members {
                    if let Address::Process(process) = member.life.address {
                        self.ledger.forget_recalls(process, member.life.incarnation);
                        self.welcome(member.life, process);
                    }
                }
            }
            Record::Failed(lives) => {
                for failed in lives {
                    self.graph.on_decision(failed.life.address);
                    let times = self.deciding.remove(&failed.life);
                    let (suspected, decided) = times.unwrap_or((now.mono, now.mono));
                    self.open_since.get_or_insert(decided);
                    self.stats.failures += 1;
                    self.stats.inexact += u64::from(!failed.is_exact);
                    self.suspects.forget(failed.life);
                    if let Address::Process(process) = failed.life.address
                        && !self.graph.has_later(failed.life)
                    {
                        self.pings.settle(process);
                        self.broadcast.on_failed(process);
                    }
                    self.notify(Event::Failed { failed: *failed, suspected, decided });
                }
                self.suspects.on_decided(lives.iter().map(|failed| failed.life));
                self.is_noticed = false;
                self.broadcast.abandon();
                self.want_look(now.mono);
            }
            Record::Resumed { links, .. } => {
                for life in resolved {
                    self.on_resolved(now, life);
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
                    self.post(Opcode::Recorded, process, psn, Vec::new());
                }
            }
        }
    }

    /// Everybody has completed the failure of `life`: no link to it holds anything, but those that
    /// were announced since the news began.
    fn on_resolved(&mut self, now: Now, life: Life) {
        let has_news = self.ledger.has_news(now.mono, self.config.memory_ns);
        let covered = self.covered;
        self.graph.on_decision(life.address);
        let holds = |(owner, node): (Life, &Node)| {
            let mut lives = node.frozen.iter().map(|entry| entry.life);
            lives.any(|held| held == Some(life)).then_some(owner)
        };
        let owners: Vec<Life> = self.graph.owners().filter_map(holds).collect();
        for owner in owners {
            self.graph.each_frozen(owner, |entry| {
                if entry.life == Some(life) {
                    entry.is_resolved |= entry.seen <= covered || !has_news;
                }
            });
        }
        // A switch may have come back meanwhile; a process never does.
        if matches!(life.address, Address::Process(_)) || !self.is_correct(life) {
            self.graph.remove(life);
            self.suspects.forget(life);
            self.unrecorded.remove(&life);
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
        let ends: BTreeSet<(Life, Life)> =
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
            && let Some(life) = self.unrecorded.pop_first()
        {
            if self.graph.get(life).is_none_or(|node| node.is_recorded) {
                continue;
            }
            members.extend(self.graph.member(life));
            if let Some(node) = self.graph.get_mut(life) {
                node.is_recorded = true;
            }
            self.recording.insert(life);
        }
        if !members.is_empty() {
            self.journal.push(Record::Members(members));
        }
    }
}
