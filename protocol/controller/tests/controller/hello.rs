//! Hello frames at rest: how often, and what their answers show.

use crate::harness;

use harness::{CONTROLLERS, announce, at, config, drain, instance, link, process, switch};
use onepipe_base::{Machine, Now, Port, Promises};
use onepipe_controller::{Config, Controller, Epoch, Event};
use onepipe_wire::{HEADER_LEN, Header, Opcode, Side, seal};

const HELLO_NS: u64 = 10_000;
const HEARTBEAT_NS: u64 = 1_000_000;

fn new(heartbeat_interval_ns: u64) -> Controller {
    let config = Config { hello_interval_ns: HELLO_NS, heartbeat_interval_ns, ..config() };
    let mut controller = Controller::new(config).expect("a valid configuration");
    controller.activate(at(0), Epoch(1), &[]);
    controller
}

/// Receives the answer of the switch to a Hello.
fn answer(controller: &mut Controller, now: Now) {
    let mut bytes = [0; HEADER_LEN];
    let own = instance(switch(0), 1);
    seal(&mut bytes, Header::hop_only(Opcode::Hello, own, None, Promises::both(now.sync)), 0);
    controller.handle_frame(now, Port(0), &mut bytes);
}

/// Runs the controller until `until_ns`, with answers or without. Returns when it sent a Hello.
fn hellos(controller: &mut Controller, until_ns: u64, has_answers: bool) -> Vec<u64> {
    let mut sent = Vec::new();
    while let Some(due) = controller.poll_timeout().filter(|due| due.as_ns() < until_ns) {
        controller.handle_timeout(at(due.as_ns()));
        for (opcode, ..) in drain(controller, at(due.as_ns())) {
            if opcode == Opcode::Hello {
                sent.push(due.as_ns());
                if has_answers {
                    answer(controller, at(due.as_ns()));
                }
            }
        }
    }
    sent
}

/// Returns the last interval.
fn last_interval(sent: &[u64]) -> u64 {
    sent[sent.len() - 1] - sent[sent.len() - 2]
}

//= spec/failure.md#R46
#[test]
fn hellos_are_rare_only_at_rest() {
    let mut fixed = new(0);
    let sent = hellos(&mut fixed, 5_000_000, true);
    assert_eq!((sent.len(), last_interval(&sent)), (500, HELLO_NS), "no rest");

    let mut controller = new(HEARTBEAT_NS);
    let sent = hellos(&mut controller, 10_000_000, true);
    assert_eq!(last_interval(&sent), HEARTBEAT_NS);
    assert!((50..70).contains(&sent.len()), "{} Hello frames", sent.len());

    // An announcement shows that something is going on.
    let up = [link(2, Side::Lower, instance(process(CONTROLLERS.first.0), 1))];
    let mut bytes = announce(instance(switch(0), 1), 1, &up);
    controller.handle_frame(at(10_000_000), Port(0), &mut bytes);
    let sent = hellos(&mut controller, 10_300_000, true);
    assert!(sent.len() >= 28, "{} Hello frames", sent.len());
    assert_eq!(last_interval(&hellos(&mut controller, 20_000_000, true)), HEARTBEAT_NS);
}

//= spec/failure.md#R46
#[test]
fn unanswered_hellos_become_frequent() {
    let mut controller = new(HEARTBEAT_NS);
    assert_eq!(last_interval(&hellos(&mut controller, 10_000_000, true)), HEARTBEAT_NS);
    let sent = hellos(&mut controller, 16_000_000, false);
    assert_eq!(last_interval(&sent), HELLO_NS, "the switch may have restarted");
    assert_eq!(sent.iter().filter(|at| **at < 13_000_000).count(), 3);
    assert_eq!(last_interval(&hellos(&mut controller, 30_000_000, true)), HEARTBEAT_NS);
}

//= spec/failure.md#R46
#[test]
fn is_isolated_after_ten_silent_heartbeats() {
    let mut controller = Controller::new(Config {
        hello_interval_ns: HELLO_NS,
        heartbeat_interval_ns: HEARTBEAT_NS,
        isolated_after_ns: HEARTBEAT_NS,
        ..config()
    })
    .expect("a valid configuration");
    controller.activate(at(0), Epoch(1), &[]);
    answer(&mut controller, at(0));
    let mut isolated_at = None;
    while let Some(due) = controller.poll_timeout().filter(|_| isolated_at.is_none()) {
        controller.handle_timeout(at(due.as_ns()));
        let mut slot = [0; 1_500];
        while controller.poll_transmit(at(due.as_ns()), &mut slot).is_some() {}
        while let Some(event) = controller.poll_event() {
            if event == Event::Isolated {
                isolated_at = Some(due.as_ns());
            }
        }
    }
    assert_eq!(isolated_at, Some(10 * HEARTBEAT_NS));
}
