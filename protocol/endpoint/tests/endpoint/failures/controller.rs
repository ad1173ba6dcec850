//! A scripted controller: learns from announcements which links are frozen, determines failure
//! timestamps, and floods them (docs/design/failure.md).

use std::collections::{BTreeMap, BTreeSet};

use onepipe_base::{Address, Cause, Incarnation, Instance, ProcessId, Promises, Psn, Timestamp};
use onepipe_wire::{
    AnnounceView, Failure, Flood, FloodAck, FloodId, FloodKind, Frame, HEADER_LEN, Header,
    LinkState, Opcode, Recovery, Resolved, Undeliverable, seal, seal_with_hops,
};

/// Interval of flood retransmission, in ns.
const REPEAT_NS: u64 = 20_000;

#[derive(Debug)]
struct Death {
    process: usize,
    incarnation: u32,
    ns: u64,
    at: Option<Timestamp>,
    is_resolved: bool,
}

/// The dead peer of a link, the number of the frozen link, and the commit barrier that it holds.
type Frozen = (Instance, u32, Timestamp);

#[derive(Debug)]
struct Open {
    id: FloodId,
    kind: FloodKind,
    waiting: BTreeSet<usize>,
    /// Indices of the deaths that the flood reports.
    deaths: Vec<usize>,
    sent_ns: Option<u64>,
}

#[derive(Debug)]
pub struct ScriptedController {
    process: u32,
    pub epoch: u32,
    sequence: u32,
    deaths: Vec<Death>,
    /// By owner and its incarnation: the frozen links as last announced.
    frozen: BTreeMap<(usize, u32), Vec<Frozen>>,
    open: Option<Open>,
    /// Notices are sent to each process instead of being flooded.
    pub is_unicast_only: bool,
    /// Sends no floods.
    pub is_muted: bool,
    /// Registers no process.
    pub withholds_announce_acks: bool,
    pub undeliverable: Vec<(ProcessId, Timestamp)>,
    pub relayed: u32,
    /// Frames that respond to received ones.
    answers: Vec<(usize, Vec<u8>)>,
    recoveries: Vec<(usize, u16)>,
    /// Frames injected by a test.
    pub extra: Vec<(usize, Vec<u8>)>,
    /// All floods and notices sent.
    pub history: Vec<(usize, Vec<u8>)>,
}

impl ScriptedController {
    pub fn new(process: u32) -> Self {
        Self {
            process,
            epoch: 1,
            sequence: 0,
            deaths: Vec::new(),
            frozen: BTreeMap::new(),
            open: None,
            is_unicast_only: false,
            is_muted: false,
            withholds_announce_acks: false,
            undeliverable: Vec::new(),
            relayed: 0,
            answers: Vec::new(),
            recoveries: Vec::new(),
            extra: Vec::new(),
            history: Vec::new(),
        }
    }

    pub fn on_death(&mut self, process: usize, incarnation: u32, ns: u64) {
        self.deaths.push(Death { process, incarnation, ns, at: None, is_resolved: false });
    }

    pub fn failed_at(&self, process: usize, incarnation: u32) -> Option<Timestamp> {
        let death = self
            .deaths
            .iter()
            .find(|death| (death.process, death.incarnation) == (process, incarnation));
        death.and_then(|death| death.at)
    }

    pub fn is_idle(&self) -> bool {
        self.open.is_none() && self.deaths.iter().all(|death| death.is_resolved)
    }

    pub fn describe(&self) -> String {
        format!("{:?} {:?} {:?}", self.deaths, self.frozen, self.open)
    }

    /// Handles a frame for the controller.
    pub fn take(&mut self, from: usize, bytes: &[u8], near: Timestamp) {
        let frame = Frame::parse(bytes).expect("sealed");
        let owner = (from, frame.header.incarnation().0);
        match frame.opcode {
            Opcode::Announce => {
                let view = AnnounceView::parse(frame.payload).expect("well formed");
                let frozen = view.links(near).filter_map(|link| match link.state {
                    LinkState::Frozen { number, commit, .. } => {
                        Some((link.instance?, number, commit))
                    }
                    LinkState::Up => None,
                });
                self.frozen.insert(owner, frozen.collect());
                if !self.withholds_announce_acks {
                    let welcome = self.frame(Opcode::AnnounceAck, from, Psn(owner.1), &[]);
                    self.answers.push((from, welcome));
                }
            }
            Opcode::FloodAck | Opcode::Completed => {
                let ack = FloodAck::parse(frame.payload).expect("well formed");
                if let Some(open) = &mut self.open
                    && (open.id, open.kind) == (ack.id, ack.kind)
                {
                    open.waiting.remove(&from);
                }
            }
            Opcode::Relay => {
                self.relayed += 1;
                let inner = Frame::parse(frame.payload).expect("sealed");
                let to = inner.header.dst().0 as usize;
                let relayed = self.frame(Opcode::Relayed, to, Psn::FIRST, frame.payload);
                self.answers.push((to, relayed));
            }
            Opcode::Undeliverable => {
                let entries = Undeliverable::parse(frame.payload, near).expect("well formed");
                let source = ProcessId(from as u32);
                self.undeliverable.extend(entries.map(|entry| (source, entry.timestamp)));
                let recorded = self.frame(Opcode::UndeliverableAck, from, frame.header.psn(), &[]);
                self.answers.push((from, recorded));
            }
            Opcode::Recover => self.recoveries.push((from, frame.header.psn().0 as u16)),
            _ => {}
        }
    }

    /// Returns the frames to send now. `live` lists the members with their incarnation and start
    /// time; every scattering below `complete` is resolved.
    pub fn step(
        &mut self,
        ns: u64,
        live: &[(usize, u32, u64)],
        complete: Timestamp,
    ) -> Vec<(usize, Vec<u8>)> {
        self.decide(live);
        self.advance(live);
        let mut frames = std::mem::take(&mut self.answers);
        frames.append(&mut self.extra);
        if self.is_idle() {
            for (to, part) in std::mem::take(&mut self.recoveries) {
                frames.push((to, self.recovery(to, part, complete)));
            }
        }
        if let Some(mut open) = self.open.take() {
            if open.sent_ns.is_none_or(|sent| ns >= sent + REPEAT_NS) && !self.is_muted {
                open.sent_ns = Some(ns);
                let payload = self.flood(&open);
                for &to in &open.waiting {
                    let is_unicast = self.is_unicast_only && open.kind == FloodKind::Notice;
                    let opcode = if is_unicast { Opcode::Notice } else { Opcode::Flood };
                    frames.push((to, self.frame(opcode, to, Psn::FIRST, &payload)));
                }
                self.history.extend(frames.iter().cloned());
            }
            self.open = Some(open);
        }
        frames
    }

    /// Determines failures: a dead process whose link every earlier peer has frozen has failed at
    /// the highest of the frozen commit barriers.
    fn decide(&mut self, live: &[(usize, u32, u64)]) {
        let mut has_new_failure = false;
        for death in self.deaths.iter_mut().filter(|death| death.at.is_none()) {
            let known = live
                .iter()
                .filter(|(owner, _, started)| *started < death.ns && *owner != death.process);
            let at = known.map(|(owner, incarnation, _)| {
                let frozen = self.frozen.get(&(*owner, *incarnation))?;
                let is_it = |known: Instance| {
                    let address = Address::Process(ProcessId(death.process as u32));
                    known.address == address && known.incarnation.0 >= death.incarnation
                };
                frozen.iter().find(|(known, ..)| is_it(*known)).map(|(_, _, commit)| *commit)
            });
            let at: Option<Vec<_>> = at.collect();
            let Some(at) = at else { continue };
            death.at = Some(at.into_iter().max().unwrap_or(Timestamp::from_ns(0)));
            has_new_failure = true;
        }
        if has_new_failure {
            self.start_flood(FloodKind::Notice, live);
        } else if self.open.is_none() && self.holds(live) {
            self.start_flood(FloodKind::Resume, live);
        }
    }

    /// Returns whether a process holds a frozen link of a resolved failure: late frames have
    /// brought the link up, and it died again.
    fn holds(&self, live: &[(usize, u32, u64)]) -> bool {
        let announced =
            live.iter().filter_map(|(at, incarnation, _)| self.frozen.get(&(*at, *incarnation)));
        announced.flatten().any(|(known, ..)| self.is_decided(known))
    }

    fn is_decided(&self, known: &Instance) -> bool {
        self.deaths.iter().any(|death| {
            let address = Address::Process(ProcessId(death.process as u32));
            let is_it = known.address == address && known.incarnation.0 <= death.incarnation;
            is_it && death.at.is_some()
        })
    }

    /// Starts a new flood.
    fn start_flood(&mut self, kind: FloodKind, live: &[(usize, u32, u64)]) {
        let is_open = |at: &usize| self.deaths[*at].at.is_some() && !self.deaths[*at].is_resolved;
        let is_decided = |at: &usize| self.deaths[*at].at.is_some();
        let all = 0..self.deaths.len();
        let deaths = match kind {
            FloodKind::Notice => all.filter(is_open).collect(),
            _ => all.filter(is_decided).collect(),
        };
        self.sequence += 1;
        let id = FloodId { epoch: self.epoch, sequence: self.sequence };
        let waiting = live.iter().map(|(at, ..)| *at).collect();
        self.open = Some(Open { id, kind, waiting, deaths, sent_ns: None });
    }

    /// Declares a live incarnation dead: its neighbours freeze their links to it.
    pub fn freeze(&mut self, process: usize, incarnation: u32, ns: u64) {
        self.on_death(process, incarnation, ns);
        self.sequence += 1;
        let id = FloodId { epoch: self.epoch, sequence: self.sequence };
        let address = Address::Process(ProcessId(process as u32));
        let dead = Instance { address, incarnation: Incarnation(incarnation) };
        let mut buf = vec![0; 100];
        let written = Flood { id }.write_freeze(&mut buf, [dead].into_iter()).expect("fits");
        for to in (0..self.process as usize).filter(|to| *to != process) {
            let frame = self.frame(Opcode::Flood, to, Psn::FIRST, &buf[..written.1]);
            self.extra.push((to, frame));
        }
    }

    /// Floods the same failures with a new epoch, as another controller would.
    pub fn take_over(&mut self, live: &[(usize, u32, u64)]) {
        self.epoch += 1;
        self.sequence = 0;
        if self.deaths.iter().any(|death| death.at.is_some() && !death.is_resolved) {
            self.start_flood(FloodKind::Notice, live);
        }
    }

    fn advance(&mut self, live: &[(usize, u32, u64)]) {
        let Some(open) = &self.open else { return };
        let is_waiting = live.iter().any(|(at, ..)| open.waiting.contains(at));
        if is_waiting {
            return;
        }
        match open.kind {
            FloodKind::Notice => self.start_flood(FloodKind::Resume, live),
            _ => {
                let done = open.deaths.clone();
                done.into_iter().for_each(|at| self.deaths[at].is_resolved = true);
                self.open = None;
            }
        }
    }

    fn flood(&self, open: &Open) -> Vec<u8> {
        let mut buf = vec![0; 1_400];
        let flood = Flood { id: open.id };
        let deaths = || open.deaths.iter().map(|at| &self.deaths[*at]);
        let written = match open.kind {
            FloodKind::Notice => {
                let failures = deaths().filter_map(|death| {
                    let (first, incarnation) =
                        (ProcessId(death.process as u32), Incarnation(death.incarnation));
                    Some(Failure {
                        first,
                        count: 1,
                        incarnation,
                        at: death.at?,
                        cause: Cause::TimedOut,
                    })
                });
                flood.write_notice(&mut buf, failures)
            }
            _ => {
                let resolved = self.frozen.iter().flat_map(|((owner, incarnation), frozen)| {
                    let address = Address::Process(ProcessId(*owner as u32));
                    let owner = Instance { address, incarnation: Incarnation(*incarnation) };
                    let of_it = frozen.iter().filter(|(known, ..)| self.is_decided(known));
                    of_it.map(move |(_, number, _)| Resolved { owner, number: *number })
                });
                flood.write_resume(&mut buf, resolved)
            }
        };
        buf.truncate(written.expect("fits").1);
        buf
    }

    fn recovery(&self, to: usize, part: u16, complete: Timestamp) -> Vec<u8> {
        let failures = self.deaths.iter().filter_map(|death| {
            let (first, incarnation) =
                (ProcessId(death.process as u32), Incarnation(death.incarnation));
            Some(Failure { first, count: 1, incarnation, at: death.at?, cause: Cause::TimedOut })
        });
        let mut buf = vec![0; 1_400];
        let bytes = Recovery { complete, part, parts: 1 }
            .write(
                &mut buf,
                failures.collect::<Vec<_>>().into_iter(),
                self.undeliverable.iter().copied(),
            )
            .expect("fits");
        self.frame(Opcode::Recovery, to, Psn(part.into()), &buf[..bytes])
    }

    /// Returns a frame of the controller.
    pub fn frame(&self, opcode: Opcode, to: usize, psn: Psn, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_LEN + payload.len()];
        bytes[HEADER_LEN..].copy_from_slice(payload);
        let (process, promises) =
            (ProcessId(self.process), Promises::both(Timestamp::from_ns(1 << 50)));
        if opcode.is_hop_only() {
            let own = Instance { address: Address::Process(process), incarnation: Incarnation(1) };
            let header = Header::hop_only(opcode, own, None, promises);
            seal_with_hops(&mut bytes, header, payload.len(), 1);
        } else {
            let header = Header::new(opcode, process, ProcessId(to as u32), Incarnation(1));
            seal(&mut bytes, header.stamped(promises.barrier, promises, psn), payload.len());
        }
        bytes
    }
}
