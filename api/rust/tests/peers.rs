//! Which processes are there, over switches and over an overlay: joined, left, killed, restarted.

mod harness;

use std::time::{Duration, Instant};

use harness::DEADLINE;
use harness::switch::Running;
use onepipe::{Builder, EmbeddedPipe, Pipe};

/// A root and a switch below it.
fn two_switches(above: &'static str) -> [Running; 2] {
    let root = Running::start_with("127.0.0.1:0", |config| config.above = above);
    let below = Running::start_with("127.0.0.1:0", |config| {
        (config.up, config.above) = (Some(root.address), above);
        config.wait = DEADLINE;
    });
    [root, below]
}

/// Waits until `pipe` knows exactly these others.
fn knows(pipe: &Pipe, others: &[u32]) {
    let started = Instant::now();
    loop {
        let peers: Vec<u32> = pipe.peers().into_iter().map(|process| process.0).collect();
        if peers == others {
            return;
        }
        assert!(started.elapsed() < DEADLINE, "{peers:?}, not {others:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Joins as each of `builders`, and changes which processes there are.
fn join_leave_kill_restart(process: impl Fn(usize, u32) -> Builder) {
    let mut zero = process(0, 0).join().expect("the switch is there");
    knows(&zero, &[]);
    assert!(!zero.wait_for_peers(1, Duration::from_millis(50)), "nobody else has joined");
    let mut one = process(1, 1).join().expect("the switch is there");
    assert!(zero.wait_for_peers(1, DEADLINE) && one.wait_for_peers(1, DEADLINE));
    let two = process(1, 2).join().expect("the switch is there");
    for (pipe, others) in [(&zero, [1, 2]), (&one, [0, 2]), (&two, [0, 1])] {
        knows(pipe, &others);
    }
    one.leave().expect("nothing is open");
    knows(&zero, &[2]);
    knows(&two, &[0]);
    // A panic ends its thread without a word, as a kill ends a process.
    let killed = std::thread::spawn({
        let builder = process(1, 1);
        move || {
            let mut pipe: EmbeddedPipe = builder.embedded().expect("the switch is there");
            let started = Instant::now();
            while pipe.peers().len() < 2 {
                assert!(started.elapsed() < DEADLINE, "the others are not known");
                let progress = pipe.poll(|_| {});
                pipe.rest(progress);
            }
            std::panic::panic_any("injected by the test");
        }
    });
    let ended = killed.join().expect_err("it panics").downcast::<&str>();
    assert_eq!(ended.ok().as_deref(), Some(&"injected by the test"));
    knows(&zero, &[2]);
    knows(&two, &[0]);
    one = process(0, 1).join().expect("it may join elsewhere");
    for (pipe, others) in [(&zero, [1, 2]), (&one, [0, 2]), (&two, [0, 1])] {
        knows(pipe, &others);
    }
    zero.leave().expect("nothing is open");
    knows(&one, &[2]);
}

//= spec/ordering.md#R75
#[test]
fn peers_are_known_across_two_switches() {
    let switches = two_switches("switch");
    join_leave_kill_restart(|at, process| {
        Pipe::builder().process(process).udp(switches[at].address)
    });
}

//= spec/ordering.md#R75
#[test]
fn peers_are_known_across_two_aggregators() {
    let switches = two_switches("aggregator");
    join_leave_kill_restart(|at, process| {
        Pipe::builder().process(process).overlay(switches[at].address)
    });
}
