//! Readable scenarios: `testdata/*.txt`.
//!
//! A line that starts with `@` is an input at that many nanoseconds; the indented lines below it
//! are all outputs of the switch. The first line configures the switch, `#` starts a comment.

use crate::harness;

use std::fmt::Write;
use std::path::Path;

use harness::{OFFSET_NS, at, events, frame, frames_sent, promises_of, ts};
use onepipe_base::{Machine, Port, Promises, Verdict};
use onepipe_switch::{Config, Eager, Switch, SwitchEvent};
use onepipe_topology::{ForwardingTable, Route, Tree};
use onepipe_verify_testing::{check_stories, grouped};
use onepipe_wire::Opcode;

/// The words of a line: `name`, or `name=number`.
struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    fn has(&self, word: &str) -> bool {
        self.0.split_whitespace().any(|item| item == word)
    }

    fn text(&self, name: &str) -> Option<&'a str> {
        let mut pairs = self.0.split_whitespace().filter_map(|word| word.split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.text(name).map(number)
    }

    fn must(&self, name: &str) -> u64 {
        self.number(name).unwrap_or_else(|| panic!("{name}= is missing in {:?}", self.0))
    }
}

fn number(text: &str) -> u64 {
    text.replace('_', "").parse().unwrap_or_else(|_| panic!("{text:?} is no number"))
}

fn set_up(line: &str) -> Switch {
    let words = Words(line);
    assert!(words.has("switch"), "the first line sets the switch up: {line:?}");
    let route = match words.text("tree") {
        None => Route::ForwardingTable(ForwardingTable::new(
            16,
            words.number("upper").is_some_and(|ports| ports > 0),
        )),
        Some(text) => {
            let numbers: Vec<u32> = text.split(',').map(|item| number(item) as u32).collect();
            let [base, span, child_span, links_per_child, processes] = numbers[..] else {
                panic!("tree=BASE,SPAN,CHILD_SPAN,LINKS,PROCESSES")
            };
            Route::Tree(Tree {
                base,
                span,
                child_span,
                links_per_child: links_per_child as u16,
                host_span: 1,
                processes,
            })
        }
    };
    let upper_ports = words.number("upper").unwrap_or(0) as u16;
    Switch::new(Config {
        beacon_interval_ns: words.number("interval").unwrap_or(0),
        link_timeout_ns: words.number("timeout").unwrap_or(0),
        start_wait_ns: words.number("wait").unwrap_or(0),
        eager_beacons: if words.has("eager") { Eager::Always } else { Eager::Never },
        ..Config::new(words.must("lower") as u16, upper_ports, route)
    })
    .expect("valid")
}

fn promises_text(promises: Promises) -> String {
    let Some(barrier) = promises.barrier.as_ns().checked_sub(OFFSET_NS) else {
        return "b=none".into();
    };
    let commit = promises.commit.as_ns() - OFFSET_NS;
    match commit == barrier {
        true => format!("b={}", grouped(barrier)),
        false => format!("b={} c={}", grouped(barrier), grouped(commit)),
    }
}

fn opcode(words: &Words<'_>) -> Opcode {
    let names = [
        ("beacon", Opcode::Beacon),
        ("join", Opcode::Join),
        ("leave", Opcode::Leave),
        ("data", Opcode::Data),
        ("ack", Opcode::Ack),
    ];
    let found = names.into_iter().find(|(name, _)| words.has(name));
    found.unwrap_or_else(|| panic!("no opcode in {:?}", words.0)).1
}

/// Runs one input line. Returns the output lines of the switch.
fn run(switch: &mut Switch, line: &str) -> String {
    let words = Words(line);
    let time = number(line[1..].split_whitespace().next().expect("a time behind the @"));
    let (now, mut reply) = (at(time), String::new());
    if words.has("timeout") {
        switch.handle_timeout(now);
    } else {
        let barrier = words.must("b");
        let promises =
            Promises { barrier: ts(barrier), commit: ts(words.number("c").unwrap_or(barrier)) };
        let address = |name| words.number(name).map_or(harness::NO_PROCESS, |id| id as u32);
        let mut bytes = frame(opcode(&words), address("src"), address("dst"), promises);
        let port = Port(words.must("port") as u16);
        match switch.handle_frame(now, port, &mut bytes) {
            Verdict::Consumed => {}
            Verdict::Replicate(_) => unreachable!("no frame is shared"),
            Verdict::Dropped => reply.push_str("    dropped\n"),
            Verdict::Forward(output) => {
                let promises_text = promises_text(promises_of(&bytes, now));
                writeln!(reply, "    forward port={} {promises_text}", output.0)
                    .expect("to a string");
            }
        }
    }
    for event in events(switch) {
        let (word, port) = match event {
            SwitchEvent::LinkJoined(port) => ("joined", port),
            SwitchEvent::LinkLost(port) => ("lost", port),
            SwitchEvent::LinkLeft(port) => ("left", port),
            other => panic!("{other:?} has no word yet"),
        };
        writeln!(reply, "    {word} port={}", port.0).expect("to a string");
    }
    for (opcode, port, promises) in frames_sent(switch, now) {
        let word = match opcode {
            Opcode::Beacon => "beacon",
            // Its promises count nowhere.
            Opcode::LeaveAck => {
                writeln!(reply, "    leave-ack port={port}").expect("to a string");
                continue;
            }
            other => panic!("{other:?} has no word yet"),
        };
        writeln!(reply, "    {word} port={port} {}", promises_text(promises)).expect("to a string");
    }
    reply
}

#[test]
fn every_scenario_replays_exactly() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    check_stories(&folder, 4, set_up, run);
}
