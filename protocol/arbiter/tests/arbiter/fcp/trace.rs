//! Readable scenarios: `testdata/*.txt`.
//!
//! The first line sets up a network of endpoints (`E0`, `E1`, …) and arbiters (`A0`, …). A line
//! that starts with `@` is an event at that many nanoseconds. The indented lines below are all
//! frames sent since the last event, each with its time: those before the event, and those that it
//! causes at once. `+52` is a timeslot 52 after the present one. `#` starts a comment.

use std::cell::RefCell;
use std::fmt::Write;
use std::path::Path;
use std::rc::Rc;

use onepipe_base::ProcessId;
use onepipe_verify_testing::{check_stories, grouped};
use onepipe_wire::{Drops, Fcp, FcpPart, Frame, Opcode, Slot, Watchdog};

use super::net::{OFFSET_NS, SLOT_NS, TestNet, arbiter_config, client_config};

/// What the network does to frames, and what was seen of them.
#[derive(Default)]
struct Wire {
    endpoints: u32,
    /// The kinds of frames that the scenario shows, perhaps of one process (`A0.reset`); empty for
    /// all.
    shown: Vec<String>,
    /// Frames to lose: from, to, and how many more.
    losses: Vec<(String, String, u64)>,
    /// Processes that are cut off.
    cut: Vec<String>,
    /// A path on which slot frames are lost.
    dead_path: Option<u8>,
    log: String,
}

impl Wire {
    fn name(&self, process: ProcessId) -> String {
        match process.0.checked_sub(self.endpoints) {
            Some(nth) => format!("A{nth}"),
            None => format!("E{}", process.0),
        }
    }

    /// Notes a frame. Returns whether it is lost.
    fn on_frame(&mut self, now: u64, from: ProcessId, to: ProcessId, frame: &Frame<'_>) -> bool {
        let (source, destination) = (self.name(from), self.name(to));
        let (kind, text) = self.text(now, from, frame);
        let is_cut = self.cut.iter().any(|cut| *cut == source || *cut == destination);
        let chosen = self.losses.iter_mut().find(|(from, to, count)| {
            *count > 0 && *from == source && (*to == destination || to == "*")
        });
        let is_chosen = chosen.map(|(.., count)| *count -= 1).is_some();
        let path = match frame.opcode {
            Opcode::Slot => Some(Slot::parse(frame.payload).expect("well-formed").0.path),
            _ => None,
        };
        let is_lost = is_cut || is_chosen || (path.is_some() && path == self.dead_path);
        let is_shown = |shown: &String| match shown.split_once('.') {
            Some((of, of_kind)) => of == source && of_kind == kind,
            None => shown == kind,
        };
        if self.shown.is_empty() || self.shown.iter().any(is_shown) {
            let mark = if is_lost { " (lost)" } else { "" };
            let time = grouped(now);
            writeln!(self.log, "    {time} {source}>{destination} {text}{mark}").expect("a string");
        }
        is_lost
    }

    /// Returns the kind of a frame, and its text.
    fn text(&self, now: u64, from: ProcessId, frame: &Frame<'_>) -> (&'static str, String) {
        match frame.opcode {
            Opcode::Watchdog => {
                let Watchdog { epoch, primary } =
                    Watchdog::parse(frame.payload).expect("well-formed");
                ("watchdog", format!("watchdog epoch={epoch} primary={}", self.name(primary)))
            }
            Opcode::Slot => {
                let (slot, packets) = Slot::parse(frame.payload).expect("well-formed");
                let path = if slot.path == u8::MAX { "-".into() } else { slot.path.to_string() };
                ("slot", format!("slot packets={} path={path}", packets.count()))
            }
            Opcode::Drops => {
                let mut text = "drops".to_string();
                for loss in Drops::parse(frame.payload).expect("well-formed").losses() {
                    write!(text, " E{}:{} path={}", loss.src, loss.lost, loss.path).expect("fits");
                }
                ("drops", text)
            }
            Opcode::Fcp => self.fcp_text(now, from, frame),
            other => panic!("{other:?} has no word yet"),
        }
    }

    fn fcp_text(&self, now: u64, from: ProcessId, frame: &Frame<'_>) -> (&'static str, String) {
        let fcp = Fcp::parse(frame.header.psn().0, frame.payload).expect("well-formed");
        let (mut kind, mut text) = ("ack", String::new());
        for part in fcp.parts() {
            match part {
                FcpPart::Reset(reset) => {
                    kind = "reset";
                    write!(text, " reset epoch={}", reset.epoch).expect("to a string");
                }
                FcpPart::Arrival(_) => {}
                FcpPart::Totals(totals) => {
                    kind = if kind == "ack" { "totals" } else { kind };
                    let is_request = from.0 < self.endpoints;
                    text.push_str(if is_request { " request" } else { " granted" });
                    for total in totals.totals().filter(|total| total.total > 0) {
                        write!(text, " E{}={}", total.dst, total.total).expect("to a string");
                    }
                }
                FcpPart::Grants(grants) => {
                    kind = if kind == "ack" { "grant" } else { kind };
                    text.push_str(" grant");
                    let present = (OFFSET_NS + now) / SLOT_NS;
                    for grant in grants.grants() {
                        let ahead = grants.base() + u64::from(grant.slot) - present;
                        write!(text, " E{}+{ahead}", grant.dst).expect("to a string");
                    }
                }
            }
        }
        if text.is_empty() {
            text.push_str(" ack");
        }
        (kind, text[1..].to_string())
    }
}

fn number(text: &str) -> u64 {
    text.replace('_', "").parse().unwrap_or_else(|_| panic!("{text:?} is no number"))
}

/// Returns the number of a process like `E3`, or `A0`.
fn index(name: &str) -> usize {
    number(&name[1..]) as usize
}

struct Story {
    net: TestNet,
    wire: Rc<RefCell<Wire>>,
    /// Takeovers that were shown.
    starts: usize,
}

impl Story {
    fn new(line: &str) -> Self {
        let setting = |name: &str| {
            let mut pairs = line.split_whitespace().filter_map(|word| word.split_once('='));
            pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
        };
        let must = |name: &str| number(setting(name).unwrap_or_else(|| panic!("no {name}=")));
        let (endpoints, arbiters) = (must("endpoints") as u32, must("arbiters") as u32);
        let client = |process| client_config(process, endpoints, arbiters);
        let arbiter = |nth| {
            let mut config = arbiter_config(nth, endpoints, arbiters);
            config.comm.demand_slots_max = setting("demand_max").map_or(1 << 14, number) as u32;
            config.allocator.pairs_max = setting("pairs_max").map_or(64, number) as u32;
            config
        };
        let clients = (0..endpoints).map(client).collect();
        let mut net = TestNet::of(clients, (0..arbiters).map(arbiter).collect(), 1);
        let shown =
            setting("show").map_or(vec![], |kinds| kinds.split(',').map(Into::into).collect());
        let wire = Rc::new(RefCell::new(Wire { endpoints, shown, ..Wire::default() }));
        let tap = wire.clone();
        net.drop_filter =
            Box::new(move |now, from, to, frame| tap.borrow_mut().on_frame(now, from, to, frame));
        Self { net, wire, starts: 0 }
    }

    /// Runs one event. Returns what was seen.
    fn run(&mut self, line: &str) -> String {
        let mut words = line[1..].split_whitespace();
        let mut word = || words.next().unwrap_or_else(|| panic!("{line:?} is too short"));
        self.net.run_until(number(word()));
        let (net, wire) = (&mut self.net, &self.wire);
        let mut reply = String::new();
        match word() {
            "run" => {}
            "send" => {
                let (from, to, count) = (index(word()), index(word()), number(word()));
                let taken = (0..count).filter(|_| net.enqueue(from as u32, to as u32, 200)).count();
                assert_eq!(taken as u64, count, "the queue has space: {line:?}");
            }
            "crash" => net.is_down[index(word())] = true,
            "restart" => match word() {
                name if name.starts_with('A') => net.restart_arbiter(index(name)),
                name => net.restart_client(index(name) as u32),
            },
            "cut" => wire.borrow_mut().cut.push(word().into()),
            "heal" => {
                let mut wire = wire.borrow_mut();
                (wire.cut, wire.dead_path) = (Vec::new(), None);
            }
            "lose" => {
                let rule = (word().into(), word().into(), number(word()));
                wire.borrow_mut().losses.push(rule);
            }
            "dead-path" => wire.borrow_mut().dead_path = Some(number(word()) as u8),
            "clock-behind" => {
                let endpoint = index(word());
                net.skew_ns[endpoint] = -(number(word()) as i64);
            }
            "roles" => {
                for (nth, arbiter) in net.arbiters.iter().enumerate() {
                    let role = if arbiter.is_primary() { "primary" } else { "secondary" };
                    writeln!(reply, "    A{nth} is {role}, epoch={}", arbiter.epoch())
                        .expect("to a string");
                }
            }
            "avoided" => {
                let avoided: Vec<_> =
                    net.arbiters[index(word())].control_plane().avoided().collect();
                writeln!(reply, "    {avoided:?}").expect("to a string");
            }
            "counters" => {
                let arbiter = &net.arbiters[index(word())];
                let comm = arbiter.comm_stats();
                writeln!(
                    reply,
                    "    demanded={} advertised={} capped={} refused={} wasted={} timed_out={}",
                    comm.demanded,
                    comm.advertised,
                    comm.capped,
                    comm.refused,
                    comm.wasted,
                    comm.timed_out
                )
                .expect("to a string");
            }
            other => panic!("{other:?} is no event"),
        }
        for (arbiter, _) in &net.starts[self.starts..] {
            writeln!(reply, "    A{arbiter} is the primary").expect("to a string");
        }
        self.starts = net.starts.len();
        core::mem::take(&mut wire.borrow_mut().log) + &reply
    }
}

#[test]
fn every_scenario_replays_exactly() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    check_stories(&folder, 12, Story::new, Story::run);
}
