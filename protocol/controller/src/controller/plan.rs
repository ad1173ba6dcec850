//! What is told next.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{Instance, Now, Port, ProcessId};
use onepipe_wire::{FloodKind, Resolved};

use super::Controller;
use crate::broadcast::{Audience, News, Round};
use crate::graph::process_of;
use crate::{Event, Links, Record, Recovery};

impl Controller {
    /// Goes on with what is under way, and when it is done begins what comes next.
    pub(super) fn plan(&mut self, now: Now) {
        if makes(Mistake::ResumeEarly) {
            self.is_noticed = true;
            self.covered = self.graph.announcements();
        }
        loop {
            if let Some(round) = self.broadcast.advance(now.mono) {
                self.on_told(now, round);
                continue;
            }
            if self.broadcast.round().is_some() {
                return;
            }
            let has_open = self.ledger.open().len() > 0;
            let wants_all = (has_open && !self.is_noticed) || self.wants_refresh || self.owes_news;
            let is_told = !has_open && !wants_all && self.broadcast.late.is_empty();
            let news = match is_told {
                true => Vec::new(),
                false => self.ledger.news(now.mono, self.config.memory_ns),
            };
            if news.is_empty() {
                self.broadcast.late.clear();
                self.owes_news = false;
            }
            if has_open && !self.is_noticed && news.is_empty() {
                // Only switches: there is nothing that a process should do.
                self.is_noticed = true;
                self.covered = self.graph.announcements();
            }
            let resolved = self.resolved_links();
            // In the order of their urgency.
            let mut wishes: Vec<Wish> = Vec::new();
            if !resolved.is_empty() {
                wishes.push(Wish::Resume(resolved));
            }
            if wants_all && !news.is_empty() {
                wishes.push(Wish::NoticeAll);
            } else if !self.broadcast.late.is_empty() {
                wishes.push(Wish::NoticeLate);
            }
            if !self.freeze.is_empty() {
                wishes.push(Wish::Freeze);
            }
            if !wishes.iter().any(|wish| wish.kind() == FloodKind::Notice) {
                self.complete();
            }
            // What nobody answered the last time lets others go first.
            let stuck = self.stuck.take();
            let at = wishes.iter().position(|wish| Some(wish.kind()) != stuck).unwrap_or(0);
            if wishes.is_empty() {
                return;
            }
            match wishes.swap_remove(at) {
                Wish::Resume(resolved) => self.tell(now, News::Resume(resolved)),
                Wish::Freeze => {
                    let instances = core::mem::take(&mut self.freeze);
                    self.tell(now, News::Freeze(instances));
                }
                Wish::NoticeAll => self.tell(now, News::Notice(news)),
                Wish::NoticeLate => {
                    let processes = core::mem::take(&mut self.broadcast.late);
                    let audience = Audience { links: BTreeSet::new(), processes };
                    self.begin(now, News::Notice(news), audience, false);
                }
            }
        }
    }

    /// Tells everybody.
    fn tell(&mut self, now: Now, news: News) {
        // Who has failed earlier may live behind a link that has come back, and must know it before
        // that link is resolved. One by one only those are told who take part.
        let by_wave = news.kind() != FloodKind::Notice
            || self.config.recovery == Recovery::Tree
            || self.wants_refresh
            || self.ledger.has_resolved();
        let mut audience = Audience::default();
        match self.config.links {
            Links::Uplink if by_wave => {
                audience.links.insert(Port(0));
            }
            Links::Mesh(count) if by_wave => {
                let ports = self.processes().filter_map(|process| u16::try_from(process.0).ok());
                audience.links = ports.filter(|port| *port < count).map(Port).collect();
            }
            _ => audience.processes = self.processes().collect(),
        }
        self.begin(now, news, audience, true);
    }

    fn begin(&mut self, now: Now, news: News, audience: Audience, is_full: bool) {
        self.stats.waves += 1;
        let announcements = self.graph.announcements();
        self.broadcast.begin(now.mono, news, audience, is_full, announcements);
    }

    /// All processes that take part, as far as is known, whether they are connected or not.
    fn processes(&self) -> impl Iterator<Item = ProcessId> {
        let joined = self.graph.iter().filter(|(instance, node)| {
            node.has_joined
                && !self.ledger.has_failed(*instance)
                && !self.graph.is_superseded(*instance)
        });
        joined.filter_map(|(instance, _)| process_of(instance))
    }

    /// Frozen links of correct nodes whose owners have yet to be told that they are resolved.
    fn resolved_links(&self) -> Vec<Resolved> {
        let ready = self.graph.ready();
        ready.map(|(owner, entry)| Resolved { owner, number: entry.number }).collect()
    }

    /// All have answered.
    fn on_told(&mut self, now: Now, round: Round) {
        match round.news {
            News::Notice(_) if round.is_full => {
                self.covered = round.announcements;
                self.owes_news = false;
                if core::mem::take(&mut self.wants_refresh) {
                    self.want_look(now.mono);
                }
                if !core::mem::replace(&mut self.is_noticed, true)
                    && let Some(decided) = self.open_since
                {
                    let (instances, begun) = (self.ledger.open().len(), round.begun);
                    self.notify(Event::Noticed { instances, decided, begun, completed: now.mono });
                }
            }
            News::Notice(_) => {}
            News::Resume(resolved) => {
                for link in &resolved {
                    self.graph.each_frozen(link.owner, |entry| {
                        entry.is_told |= entry.number == link.number;
                    });
                }
                let (links, begun) = (resolved.len(), round.begun);
                self.notify(Event::Resumed { links, begun, completed: now.mono });
            }
            News::Freeze(_) => self.want_look(now.mono),
        }
    }

    /// Everybody knows everything: what is open is done, and links that died alone are given up.
    fn complete(&mut self) {
        let is_deciding = self
            .journal
            .iter()
            .any(|record| matches!(record, Record::Failed(_) | Record::Resumed { .. }));
        if is_deciding {
            return;
        }
        if self.suspects.is_blank() || (self.ledger.open().len() > 0 && !self.is_noticed) {
            return;
        }
        let open = self.ledger.open().map(|failed| failed.instance);
        let instances: Vec<Instance> =
            open.filter(|instance| !self.suspects.entangles(*instance)).collect();
        // If a look is due, what it finds may forbid it. While somebody is suspected, who seems to
        // be linked to others may yet turn out not to be.
        let links = if self.changed.is_none() && self.suspects.is_empty() {
            core::mem::take(&mut self.severable)
        } else {
            Vec::new()
        };
        if !(instances.is_empty() && links.is_empty()) {
            self.journal.push(Record::Resumed { instances, links });
        }
    }
}

enum Wish {
    Resume(Vec<Resolved>),
    NoticeAll,
    NoticeLate,
    Freeze,
}

impl Wish {
    fn kind(&self) -> FloodKind {
        match self {
            Self::Resume(_) => FloodKind::Resume,
            Self::NoticeAll | Self::NoticeLate => FloodKind::Notice,
            Self::Freeze => FloodKind::Freeze,
        }
    }
}
