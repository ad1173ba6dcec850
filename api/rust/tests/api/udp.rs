//! Pipes through a software switch on loopback.

use crate::harness;

use std::net::SocketAddr;
use std::time::Duration;

use harness::switch::{Running, join_and_exchange, meet, process};
use harness::{DEADLINE, message, number, to};
use onepipe::{
    Event, JoinError, LeaveError, Link, Message, Mismatch, Pipe, ProcessId, RefuseReason, Timestamp,
};
use onepipe_daemon_switch::Controllers;

const CONTROLLERS: Controllers = Controllers { first: ProcessId(20), count: 3 };

#[test]
fn all_receivers_see_one_order() {
    const EACH: u64 = 500;
    for bind in ["127.0.0.1:0", "[::1]:0"] {
        let switch = Running::start(bind);
        let mut pipes = meet(&switch, 3);
        let count = pipes.len() as u32;
        for number in 0..EACH {
            for pipe in &mut pipes {
                let payload = number.to_be_bytes();
                let all: Vec<Message<'_>> = (0..count).map(|id| to(id, &payload)).collect();
                pipe.scatter_wait(&all, DEADLINE).expect("the buffer drains");
            }
        }
        let mut logs: Vec<Vec<(Timestamp, ProcessId, u64)>> = Vec::new();
        for pipe in &mut pipes {
            let log = (0..EACH * u64::from(count)).map(|_| message(pipe));
            logs.push(log.map(|m| (m.timestamp, m.from, number(&m))).collect());
        }
        assert!(logs[0].is_sorted_by(|a, b| (a.0, a.1) < (b.0, b.1)));
        assert!(logs.iter().all(|log| *log == logs[0]));
        for pipe in &mut pipes {
            assert_eq!(pipe.leave(), Ok(()));
        }
    }
}

#[test]
fn long_message_crosses_in_fragments() {
    let switch = Running::start("127.0.0.1:0");
    let mut pipes = meet(&switch, 2);
    let long: Vec<u8> = (0..300_000u32).map(|at| (at ^ at >> 8) as u8).collect();
    pipes[0].scatter(&[to(1, &long)]).expect("there is capacity");
    assert!(message(&mut pipes[1]).payload == long);
}

#[test]
fn without_a_switch_leaving_is_bounded() {
    let address = {
        let switch = Running::start("127.0.0.1:0");
        switch.address
    };
    let mut alone = Pipe::builder()
        .process(0)
        .udp(address)
        .leave_timeout(Duration::from_millis(50))
        .wait(Duration::ZERO)
        .join()
        .expect("joining does not wait for a reply");
    alone.scatter(&[to(1, b"is anybody there?")]).expect("there is capacity");
    assert_eq!(alone.recv_timeout(Duration::from_millis(50)), None);
    assert_eq!(alone.leave(), Err(LeaveError::Unresolved(ProcessId(0))));
}

/// An address at which a switch was until a moment ago.
fn closed_address() -> SocketAddr {
    Running::start("127.0.0.1:0").address
}

//= spec/ordering.md#R63
#[test]
fn joining_without_a_switch_is_an_error() {
    let (address, wait) = (closed_address(), Duration::from_millis(50));
    for (above, builder) in
        [("switch", Pipe::builder().udp(address)), ("aggregator", Pipe::builder().overlay(address))]
    {
        let error = builder.process(0).wait(wait).join().map(drop).expect_err("nothing answers");
        let JoinError::NoAnswer { address: at, waited, .. } = error else { panic!("{error}") };
        assert_eq!((at, waited), (address, wait));
        let text = error.to_string();
        assert!(text.contains(&format!("onepipe {above} --listen {address}")), "{text}");
    }
}

//= spec/ordering.md#R63
#[test]
fn switch_may_start_after_its_processes() {
    let address = closed_address();
    let joining = std::thread::spawn(move || Pipe::builder().process(1).udp(address).join());
    std::thread::sleep(Duration::from_millis(100));
    let _switch = Running::start(&address.to_string());
    let pipe = joining.join().expect("no panic").expect("the switch is there by now");
    assert_eq!(pipe.config().processes_max, 8);
}

//= spec/ordering.md#R67
#[test]
fn settings_of_the_switch_are_adopted() {
    let switch = Running::start_with("127.0.0.1:0", |config| {
        config.processes_max = 24;
        config.controllers = Some(CONTROLLERS);
        config.link_timeout_ns = 7_000_000_000;
    });
    let other = Pipe::builder().process(19).link_timeout(Duration::from_secs(8));
    let error = other.udp(switch.address).join().map(drop).expect_err("not as the switch");
    let is_named = matches!(error, JoinError::Mismatch { setting: "link timeout (ns)", .. });
    assert!(is_named, "{error}");
    for builder in [Pipe::builder().udp(switch.address), Pipe::builder().overlay(switch.address)] {
        let pipe = builder.process(19).leave_timeout(Duration::ZERO).join();
        let pipe = pipe.expect("the switch is there");
        let config = pipe.config();
        assert_eq!((config.processes_max, config.controllers), (24, Some(CONTROLLERS)));
        assert_eq!(config.link_timeout_ns, 7_000_000_000);
    }
}

//= spec/ordering.md#R67
#[test]
fn other_settings_than_the_switch_has_are_named() {
    let switch = Running::start_with("127.0.0.1:0", |config| {
        (config.processes_max, config.controllers) = (24, Some(CONTROLLERS));
    });
    let join = |builder: onepipe::Builder| {
        let error = builder.udp(switch.address).join().map(drop).expect_err("not as the switch");
        match error {
            JoinError::Mismatch { setting, ours, theirs } => (setting, ours, theirs),
            JoinError::Refused { reason, .. } => ("", String::new(), reason),
            other => panic!("{other}"),
        }
    };
    let (setting, ours, theirs) = join(Pipe::builder().process(1).processes(64));
    assert_eq!((setting, &*ours, &*theirs), ("processes", "64", "24"));
    let (setting, ours, theirs) = join(Pipe::builder().process(1).controllers(9, 2));
    assert_eq!((setting, &*ours, &*theirs), ("controllers", "9 to 10", "20 to 22"));
    let (_, _, reason) = join(Pipe::builder().process(24));
    assert!(reason.contains("process ids lie below 24"), "{reason}");
    let (_, _, reason) = join(Pipe::builder().process(21));
    assert!(reason.contains("reserved for a controller"), "{reason}");
}

/// Its successor serves fewer processes.
//= spec/ordering.md#R63
#[test]
fn refusal_of_a_restarted_switch_is_reported() {
    let first = Running::start_with("127.0.0.1:0", |config| config.processes_max = 24);
    let address = first.address;
    let pipe = Pipe::builder().process(20).udp(address).leave_timeout(Duration::ZERO);
    let mut pipe = pipe.join().expect("the switch is there");
    drop(first);
    let _second = Running::start(&address.to_string());
    loop {
        match pipe.recv_timeout(DEADLINE) {
            Some(Event::Refused(reason)) => return assert_eq!(reason, RefuseReason::OutOfRange),
            Some(_) => {}
            None => panic!("the refusal is not reported"),
        }
    }
}

/// A process whose controllers are others than the switch has would be declared failed, or would
/// wait for them.
//= spec/ordering.md#R77
#[test]
fn changed_terms_of_a_restarted_switch_are_reported() {
    let with = |processes_max, controllers| {
        move |config: &mut onepipe_daemon_switch::Config| {
            (config.processes_max, config.controllers) = (processes_max, controllers);
        }
    };
    let others = Controllers { first: ProcessId(20), count: 2 };
    let cases = [
        (with(32, Some(CONTROLLERS)), ("processes", "24", "32")),
        (with(24, Some(others)), ("controllers", "20 to 22", "20 to 21")),
        (with(24, None), ("controllers", "20 to 22", "none")),
    ];
    for (after, expected) in cases {
        let first = Running::start_with("127.0.0.1:0", with(24, Some(CONTROLLERS)));
        let address = first.address;
        let pipe = Pipe::builder().process(3).udp(address).leave_timeout(Duration::ZERO);
        let mut pipe = pipe.join().expect("the switch is there");
        drop(first);
        let _second = Running::start_with(&address.to_string(), after);
        let change = loop {
            match pipe.recv_timeout(DEADLINE) {
                Some(Event::TermsChanged(change)) => break change,
                Some(_) => {}
                None => panic!("the change is not reported"),
            }
        };
        let Mismatch { setting, ours, theirs } = change.mismatch();
        assert_eq!((setting, &*ours, &*theirs), expected);
    }
}

#[test]
fn switch_failure_is_reported_and_its_successor_found() {
    let first = Running::start("127.0.0.1:0");
    let address = first.address;
    let impatient = |id| process(&first, id).tune(|config| config.link_timeout_ns = 1_000_000_000);
    let mut pipes = join_and_exchange(vec![impatient(0), impatient(1)]);
    drop(first);
    for pipe in &mut pipes {
        assert_eq!(pipe.recv_timeout(DEADLINE), Some(Event::LinkLost(Link::Switch)));
    }
    let _second = Running::start(&address.to_string());
    let mut sent: u64 = 0;
    // Messages sent before the switch knows all addresses may be lost.
    'found: loop {
        pipes[0].scatter_wait(&[to(1, &sent.to_be_bytes())], DEADLINE).expect("there is capacity");
        sent += 1;
        for _ in 0..100 {
            if let Some(Event::Message(m)) = pipes[1].recv_timeout(Duration::from_millis(10)) {
                assert!(number(&m) < sent);
                break 'found;
            }
        }
    }
}

//= spec/ordering.md#R58
#[test]
fn leave_hands_back_what_it_cannot_deliver() {
    let switch = Running::start("127.0.0.1:0");
    let leaver = process(&switch, 1).leave_timeout(Duration::from_millis(500));
    let mut pipes = join_and_exchange(vec![process(&switch, 0), leaver]);
    // A process that is there, and promises nothing more: the barrier stops.
    let mut stalled = process(&switch, 2).embedded().expect("joining needs no reply");
    stalled.scatter(&[to(2, b"up")]).expect("there is capacity");
    let mut is_up = false;
    while !is_up {
        let progress = stalled.poll(|event| is_up |= event.message().is_some());
        stalled.rest(progress);
    }
    pipes[0].scatter(&[to(1, b"acknowledged")]).expect("there is capacity");
    assert_eq!(pipes[0].leave(), Ok(()), "its message was acknowledged");
    let left = pipes[1].leave();
    let undelivered = LeaveError::Undelivered { process: ProcessId(1), messages: 1 };
    assert_eq!(left, Err(undelivered));
    let handed_back = pipes[1].recv().expect("what was handed back can be read");
    let Event::Undelivered(message) = handed_back else { panic!("{handed_back:?}") };
    assert_eq!(message.payload, b"acknowledged");
}
