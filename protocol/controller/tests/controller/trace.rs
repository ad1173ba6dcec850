//! Readable stories: `testdata/*.txt`.
//!
//! A line that starts with `@` is an input at that many nanoseconds; the indented lines below it
//! are everything that the controller does because of it: events, records for the store, frames.
//! `#` starts a comment. `p3.1` is incarnation 1 of process 3, `s0.1` one of switch 0, `c` the
//! controller itself; `p3.1#2@500` is the link to `p3.1`, frozen at commit 500 as death number 2.

use crate::harness;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use harness::{CONTROLLER, announce_part, at, config, frame, instance, link, process, switch};
use onepipe_base::{Address, Cause, Instance, Machine, Port, Timestamp};
use onepipe_controller::{Config, Controller, Epoch, Event, FailedInstance, PersistError, Record};
use onepipe_verify_testing::check_stories;
use onepipe_wire::{
    Announce, DecisionTip, FloodAck, FloodId, FloodKind, FloodView, Frame, Link, LinkState, Opcode,
    Side, Undeliverable,
};

/// A controller, what it is attached to, and its store.
struct Story {
    controller: Controller,
    generations: BTreeMap<Instance, u32>,
    log: Vec<Record>,
    is_store_down: bool,
    /// The last notification, to be acknowledged.
    flood: Option<FloodAck>,
}

fn number(text: &str) -> u64 {
    text.replace('_', "").parse().unwrap_or_else(|_| panic!("{text:?} is no number"))
}

/// Parses `p3.1`, `s0.1` or `c`.
fn node(text: &str) -> Instance {
    if text == "c" {
        return instance(process(CONTROLLER.0), 1);
    }
    let (kind, rest) = text.split_at(1);
    let (id, incarnation) = rest.split_once('.').expect("an incarnation");
    let id = number(id) as u32;
    let address = if kind == "p" { process(id) } else { switch(id) };
    instance(address, number(incarnation) as u32)
}

fn name(of: Instance) -> String {
    match of.address {
        Address::Process(process) => format!("p{}.{}", process.0, of.incarnation.0),
        Address::Switch(switch) => format!("s{}.{}", switch.0, of.incarnation.0),
    }
}

fn ts(ns: u64) -> Timestamp {
    at(ns).sync
}

/// Formats a timestamp; one that nothing was ever promised above is `none`.
fn time(of: Timestamp) -> String {
    of.as_ns().checked_sub(ts(0).as_ns()).map_or("none".into(), |ns| ns.to_string())
}

/// Parses the words of an announcement into links.
fn links(words: &str) -> Vec<Link> {
    let mut links = Vec::new();
    for word in words.split_whitespace() {
        let Some((state, peers)) = word.split_once('=') else { continue };
        let (side, cause) = match state {
            "lower" => (Side::Lower, None),
            "upper" => (Side::Upper, None),
            "lower-left" => (Side::Lower, Some(Cause::Left)),
            "lower-lost" => (Side::Lower, Some(Cause::TimedOut)),
            "lower-fenced" => (Side::Lower, Some(Cause::Fenced)),
            "upper-lost" => (Side::Upper, Some(Cause::TimedOut)),
            _ => continue,
        };
        for peer in peers.split(',') {
            let port = links.len() as u16;
            links.push(match (cause, peer.split_once('#')) {
                (Some(cause), Some((peer, death))) => {
                    let (death, commit) = death.split_once('@').expect("a commit");
                    let (number, commit) = (number(death) as u32, ts(number(commit)));
                    let state = LinkState::Frozen { number, commit, cause };
                    Link { state, ..link(port, side, node(peer)) }
                }
                _ => link(port, side, node(peer)),
            });
        }
    }
    links
}

fn value<'a>(words: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = words.split_whitespace().filter_map(|word| word.split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

fn must<'a>(words: &'a str, name: &str) -> &'a str {
    value(words, name).unwrap_or_else(|| panic!("{name}= is missing in {words:?}"))
}

impl Story {
    /// Sets up the controller that the first line describes.
    fn new(line: &str) -> Self {
        assert!(line.starts_with("controller"), "the first line sets the controller up: {line:?}");
        let config = Config { silent_after_ns: 0, ..config() };
        let controller = Controller::new(config).expect("a valid configuration");
        let (generations, log) = (BTreeMap::new(), Vec::new());
        Self { controller, generations, log, is_store_down: false, flood: None }
    }

    /// Runs one input line. Returns what the controller does.
    fn run(&mut self, line: &str) -> String {
        let mut words = line[1..].splitn(3, ' ');
        let ns = number(words.next().expect("a time behind the @"));
        let (what, rest) = (words.next().expect("an input"), words.next().unwrap_or(""));
        let (now, from) = (at(ns), || node(rest.split(' ').next().expect("a node")));
        let bytes = match what {
            "announce" => Some(self.announce(from(), rest)),
            "recall" => {
                let to = node(must(rest, "to"));
                let Address::Process(process) = to.address else { panic!("{to:?}") };
                let timestamp = ts(number(must(rest, "ts")));
                let recall = Undeliverable { to: process, incarnation: to.incarnation, timestamp };
                Some(harness::undeliverable(from(), number(must(rest, "psn")) as u32, recall))
            }
            "recover" => Some(frame(Opcode::Recover, from(), 0, |_| 0)),
            "pong" => Some(frame(Opcode::Pong, from(), 0, |_| 0)),
            "relay" => Some(harness::relay_0_to_1()),
            "ack" => Some(self.ack()),
            _ => None,
        };
        match (what, bytes) {
            (_, Some(mut bytes)) => {
                self.controller.handle_frame(now, Port(0), &mut bytes);
            }
            ("campaign", _) => {
                let epoch = Epoch(number(must(rest, "epoch")) as u32);
                let log = match value(rest, "records") {
                    Some(count) => self.log[..number(count) as usize].to_vec(),
                    None => self.log.clone(),
                };
                self.controller.activate(now, epoch, &log);
            }
            ("depose", _) => self.controller.depose(now),
            ("store", _) => self.is_store_down = rest == "down",
            ("timeout", _) => {}
            _ => panic!("no input is called {what:?}"),
        }
        // The driver's timer has run as well.
        self.controller.handle_timeout(now);
        self.controller.check_invariants();
        self.output(ns)
    }

    fn announce(&mut self, from: Instance, words: &str) -> Vec<u8> {
        let generation = self.generations.entry(from).or_insert(0);
        *generation += 1;
        let links = links(words);
        let tip = value(words, "tip").map(|tip| {
            let (epoch, decided) = tip.split_once('/').expect("an epoch and a number of decisions");
            DecisionTip {
                epoch: number(epoch) as u32,
                decided: number(decided) as u32,
                digest: 7,
                replica: onepipe_base::ProcessId(CONTROLLER.0 + 1),
                incarnation: onepipe_base::Incarnation(1),
            }
        });
        let total = links.len() as u16;
        let announce = Announce { generation: *generation, first: 0, total, tip };
        // Up to where a process knows reliable messages to be decided.
        let decided = value(words, "decided").map_or(0, number);
        announce_part(announce, from, &links, ts(decided))
    }

    /// Returns the acknowledgement of the last flood by the switch at the uplink.
    fn ack(&mut self) -> Vec<u8> {
        let ack = self.flood.expect("a flood to acknowledge");
        let mut slot = vec![0; 200];
        let own = node("s0.1");
        let header = onepipe_wire::Header::hop_only(
            Opcode::FloodAck,
            own,
            Some(node("c")),
            onepipe_base::Promises::both(ts(0)),
        );
        let bytes = ack.write(&mut slot[onepipe_wire::HEADER_LEN..]).expect("fits");
        let length = onepipe_wire::seal(&mut slot, header, bytes);
        slot.truncate(length);
        slot
    }

    fn output(&mut self, ns: u64) -> String {
        let (now, mut text) = (at(ns), String::new());
        let mut line = |words: String| writeln!(text, "    {words}").expect("to a string");
        loop {
            while let Some(event) = self.controller.poll_event() {
                line(event_text(&event));
            }
            if let Some((id, record)) = self.controller.poll_persist() {
                let outcome = if self.is_store_down { Err(PersistError::Failed) } else { Ok(()) };
                match outcome {
                    Ok(()) => line(format!("store {}", record_text(&record))),
                    Err(_) => line(format!("store fails: {}", record_text(&record))),
                }
                if outcome.is_ok() {
                    self.log.push(record);
                }
                self.controller.handle_persisted(now, id, outcome);
                continue;
            }
            let mut slot = [0; 1_500];
            let Some(transmit) = self.controller.poll_transmit(now, &mut slot) else { break };
            let frame = Frame::parse(&slot[..transmit.bytes]).expect("sealed");
            match frame.opcode {
                Opcode::Hello => {}
                Opcode::Flood => {
                    let view = FloodView::parse(frame.payload).expect("a flood");
                    self.flood = Some(FloodAck { id: view.id, kind: view.kind });
                    line(format!("flood {}", flood_text(&view)));
                }
                opcode => line(format!("send {opcode:?} to p{}", frame.header.dst().0)),
            }
        }
        text
    }
}

fn flood_text(view: &FloodView<'_>) -> String {
    let FloodId { epoch, sequence } = view.id;
    let entries: Vec<String> = match view.kind {
        FloodKind::Notice => view
            .failures(ts(0))
            .map(|failure| {
                let last = failure.first.0 + failure.count - 1;
                let range = match failure.count {
                    1 => format!("p{last}"),
                    _ => format!("p{}-p{last}", failure.first.0),
                };
                format!("{range}.{} at {}", failure.incarnation.0, time(failure.at))
            })
            .collect(),
        FloodKind::Resume => {
            view.resolved().map(|link| format!("{}#{}", name(link.owner), link.number)).collect()
        }
        FloodKind::Freeze => view.dead().map(name).collect(),
    };
    format!("{epoch}/{sequence} {:?}: {}", view.kind, entries.join(", "))
}

fn failed_text(failed: &FailedInstance) -> String {
    let FailedInstance { instance, at, is_exact, cause } = failed;
    let inexact = if *is_exact { "" } else { ", inexact" };
    format!("{} at {} ({cause:?}{inexact})", name(*instance), time(*at))
}

fn record_text(record: &Record) -> String {
    let names = |instances: &mut dyn Iterator<Item = Instance>| {
        instances.map(name).collect::<Vec<_>>().join(", ")
    };
    match record {
        Record::Epoch { epoch, .. } => format!("epoch {}", epoch.0),
        Record::Members(members) => {
            format!("members {}", names(&mut members.iter().map(|member| member.instance)))
        }
        Record::Failed(failed) => {
            format!("failed {}", failed.iter().map(failed_text).collect::<Vec<_>>().join(", "))
        }
        Record::Resumed { instances, links } => {
            let links: Vec<String> = links
                .iter()
                .map(|link| format!("{}#{} to {}", name(link.owner), link.number, name(link.peer)))
                .collect();
            let links = if links.is_empty() { String::new() } else { links.join(", ") };
            format!("resumed [{}] severed [{links}]", names(&mut instances.iter().copied()))
        }
        Record::Undeliverable { sender, entries } => {
            let entry = |entry: &Undeliverable| {
                format!("p{}.{} ts={}", entry.to.0, entry.incarnation.0, time(entry.timestamp))
            };
            let entries: Vec<String> = entries.iter().map(entry).collect();
            format!("recall of p{} at {}", sender.0, entries.join(", "))
        }
        Record::Dropped { recalls, .. } => format!("dropped {recalls}"),
        Record::Leads(leads) => format!("leads {leads:?}"),
    }
}

fn event_text(event: &Event) -> String {
    match event {
        Event::Active(epoch) => format!("active in epoch {}", epoch.0),
        Event::Deposed(epoch) => format!("deposed in epoch {}", epoch.0),
        Event::Joined(instance) => format!("joined {}", name(*instance)),
        Event::Failed { failed, suspected, decided, reporter } => {
            let reporter = reporter.map_or("nothing".into(), name);
            let ns = decided.since_ns(*suspected);
            format!("failed {}, {ns} ns after the first sign, by {reporter}", failed_text(failed))
        }
        Event::Noticed { instances, .. } => format!("all have completed {instances}"),
        Event::Resumed { links, .. } => format!("released {links} links"),
        Event::PingTimedOut(instance) => format!("no pong of {}", name(*instance)),
        Event::Isolated => "isolated".into(),
        Event::StoreFailed => "the store has failed".into(),
        Event::StoreOutdated { epoch, known } => {
            format!("the log of epoch {} lacks decision {}", epoch.0, known.decided)
        }
        other => panic!("{other:?} has no words yet"),
    }
}

//= spec/failure.md#R21
#[test]
fn every_story_replays_exactly() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    check_stories(&folder, 12, Story::new, Story::run);
}
