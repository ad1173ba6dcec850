//! Which processes are there, over switches and over an overlay: joined, left, killed, restarted.

use crate::harness;

use std::net::SocketAddr;
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

/// A process that is stopped has a link that times out, and comes back when it goes on.
//= spec/ordering.md#R75
#[test]
fn peer_is_unknown_while_its_link_is_lost() {
    let switch = Running::start_with("127.0.0.1:0", |config| config.link_timeout_ns = 500_000_000);
    let process = |process| Pipe::builder().process(process).udp(switch.address);
    let zero = process(0).join().expect("the switch is there");
    let mut one = process(1).embedded().expect("the switch is there");
    let mut run_until_known = || {
        let started = Instant::now();
        while zero.peers().is_empty() {
            assert!(started.elapsed() < DEADLINE, "the other process is not known");
            let progress = one.poll(|_| {});
            one.rest(progress);
        }
    };
    run_until_known();
    knows(&zero, &[]);
    run_until_known();
}

/// A switch that has restarted knows no process yet, and states nothing about those that have
/// ended meanwhile: neither to a process nor to a switch below it.
//= spec/ordering.md#R76
#[test]
fn peers_that_end_while_their_switch_restarts_are_dropped() {
    let start = |bind: &str, up: Option<SocketAddr>| {
        Running::start_with(bind, |config| {
            (config.processes_max, config.up) = (2_000, up);
            config.wait = DEADLINE;
        })
    };
    let root = start("127.0.0.1:0", None);
    let address = root.address;
    let below = start("127.0.0.1:0", Some(address));
    let join = |process, at: SocketAddr| {
        let builder = Pipe::builder().process(process).udp(at);
        builder.join().expect("the switch is there")
    };
    // Ids of both ranges.
    let (zero, one, far) = (join(0, address), join(1, below.address), join(1_500, address));
    knows(&zero, &[1, 1_500]);
    knows(&one, &[0, 1_500]);
    drop(root);
    drop(far);
    let _root = start(&address.to_string(), None);
    knows(&zero, &[1]);
    knows(&one, &[0]);
}
