//! When a switch may advertise, when it must, and what it never passes on.

use crate::harness;

use harness::{at, beacon_from, beacons, both, frame, frame_with_hops, join, pass, put, star, ts};
use onepipe_base::{Machine, Mono, Now, Port, Promises, Timestamp, Verdict, WIRE_MODULUS};
use onepipe_switch::{Config, Eager, Switch};
use onepipe_topology::{Route, Tree};
use onepipe_wire::Opcode;

const HOUR_NS: u64 = 3_600_000_000_000;

fn new(config: Config) -> Switch {
    Switch::new(config).expect("a valid configuration")
}

//= spec/ordering.md#R14
//= spec/ordering.md#R16
#[test]
fn forwards_without_promise_during_start_wait() {
    let mut switch = new(Config { start_wait_ns: 500, ..star(3) });
    assert_eq!(switch.poll_timeout(), Some(Mono::from_ns(0)), "a driver starts it at once");
    switch.handle_timeout(at(10_000));
    join(&mut switch, at(10_000), 0, 0, both(10_000));
    join(&mut switch, at(10_000), 1, 1, both(9_990));
    assert_eq!(beacons(&mut switch, at(10_000)), []);

    let (output, promises) =
        pass(&mut switch, at(10_100), 0, frame(Opcode::Ack, 0, 1, both(10_100)));
    assert_eq!(output, 1);
    let aged_ns = ts(10_100).since_ns(promises.barrier);
    assert!(
        aged_ns > 19 * HOUR_NS && aged_ns < 20 * HOUR_NS,
        "the frame's own promise is not passed on"
    );
    assert_eq!(switch.stats().forwarded_without_promise, 1);

    assert_eq!(switch.poll_timeout(), Some(Mono::from_ns(10_500)));
    switch.handle_timeout(at(10_500));
    assert_eq!(beacons(&mut switch, at(10_500)), [(0, both(9_990)), (1, both(10_100))]);
}

//= spec/ordering.md#R16
#[test]
fn advertises_once_all_inputs_have_promised() {
    let mut switch = new(Config { start_wait_ns: 1_000_000, ..star(2) });
    join(&mut switch, at(0), 0, 0, both(5));
    join(&mut switch, at(1), 1, 1, both(6));
    assert_eq!(pass(&mut switch, at(2), 0, frame(Opcode::Ack, 0, 1, both(7))), (1, both(7)));
}

//= spec/ordering.md#R17
#[test]
fn promise_too_far_ahead_drops_the_frame() {
    let mut switch = new(star(2));
    join(&mut switch, at(0), 0, 0, both(0));
    join(&mut switch, at(0), 1, 1, both(0));
    for hours in [3, 38] {
        for ahead in
            [both(hours * HOUR_NS), Promises { barrier: ts(1), commit: ts(hours * HOUR_NS) }]
        {
            let verdict = put(&mut switch, at(1), 0, frame(Opcode::Ack, 0, 1, ahead));
            assert_eq!(verdict, Verdict::Dropped);
        }
    }
    assert_eq!(switch.stats().dropped_ahead, 4);
    assert_eq!(pass(&mut switch, at(2), 0, frame(Opcode::Ack, 0, 1, both(2))), (1, both(2)));
    let hour_ahead = pass(&mut switch, at(3), 0, frame(Opcode::Ack, 0, 1, both(HOUR_NS)));
    assert_eq!(hour_ahead, (1, both(HOUR_NS)), "a correct clock may be an hour off");
}

#[test]
fn wire_clock_wraps_in_mid_run() {
    let now = |ns: u64| Now {
        mono: Mono::from_ns(ns),
        sync: Timestamp::from_ns(5 * WIRE_MODULUS - 1_000 + ns),
    };
    let promise = |ns: u64| Promises::both(now(ns).sync);
    let mut switch = new(star(3));
    for port in 0..3 {
        join(&mut switch, now(0), port, port.into(), promise(0));
    }
    beacons(&mut switch, now(0));
    let mut last = promise(0);
    for step in (100..2_000).step_by(50) {
        let port = (step / 50 % 3) as u16;
        beacon_from(&mut switch, now(step), port, promise(step - 40));
        let bytes = frame(Opcode::Ack, 0, 1, promise(step));
        let (_, promises) = pass(&mut switch, now(step), 0, bytes);
        assert!(promises.barrier >= last.barrier && promises.barrier <= promise(step).barrier);
        last = promises;
    }
    assert!(last.barrier.as_ns() > 5 * WIRE_MODULUS + 700, "{last:?}");
}

#[test]
fn clock_steps_do_not_disturb_the_switch() {
    let step = |ns: u64, hours: i64| Now {
        mono: Mono::from_ns(ns),
        sync: Timestamp::from_ns(ts(ns).as_ns().wrapping_add_signed(hours * HOUR_NS as i64)),
    };
    // 30 hours would carry the promises past half the wire's range if the step moved the reference.
    for hours in [-30, -1, 0, 1, 30] {
        let mut switch = new(Config { beacon_interval_ns: 3_000, ..star(2) });
        join(&mut switch, at(0), 0, 0, both(0));
        join(&mut switch, at(0), 1, 1, both(0));
        for time in (1_000..30_000).step_by(1_000) {
            let now = step(time, if time > 5_000 { hours } else { 0 });
            let mut bytes = frame(Opcode::Ack, 0, 1, both(time));
            assert_eq!(switch.handle_frame(now, Port(0), &mut bytes), Verdict::Forward(Port(1)));
            assert_eq!(harness::promises_of(&bytes, at(time)), both(time), "{hours} h at {time}");
            let due = switch.poll_timeout().expect("beacons").since_ns(now.mono);
            assert!(due <= 3_375, "{due} ns to the next instant");
            switch.handle_timeout(now);
        }
    }
}

//= spec/ordering.md#R11
#[test]
fn idle_outputs_get_one_beacon_per_instant() {
    let mut switch = new(Config { beacon_interval_ns: 3_000, link_timeout_ns: 0, ..star(4) });
    for port in 0..3 {
        join(&mut switch, at(100), port, port.into(), both(90));
    }
    beacons(&mut switch, at(100));
    let due = switch.poll_timeout().expect("an instant");
    assert_eq!((due.as_ns() + harness::OFFSET_NS) % 3_000, 0);
    pass(&mut switch, at(200), 0, frame(Opcode::Ack, 0, 1, both(200)));
    switch.handle_timeout(at(due.as_ns() - 1));
    assert_eq!(beacons(&mut switch, at(due.as_ns() - 1)), []);
    switch.handle_timeout(at(due.as_ns()));
    let sent = beacons(&mut switch, at(due.as_ns()));
    assert_eq!(sent, [(0, both(90)), (2, both(90))], "port 1 was busy, port 3 never joined");

    let late = due.as_ns() + 40_000;
    switch.handle_timeout(at(late));
    assert_eq!(
        beacons(&mut switch, at(late)).len(),
        3,
        "one a port, however many instants were missed"
    );
    assert!(switch.poll_timeout().is_some_and(|next| next > at(late).mono));
    assert_eq!(switch.stats().beacons_sent, 3 + 2 + 3);
}

#[test]
fn eager_beacons_are_sent_once_per_rise() {
    let mut switch = new(Config { eager_beacons: Eager::Always, ..star(4) });
    for port in 0..4 {
        join(&mut switch, at(0), port, port.into(), both(0));
    }
    assert_eq!(beacons(&mut switch, at(0)).len(), 4);
    for port in 0..3 {
        beacon_from(&mut switch, at(10), port, both(10));
    }
    assert_eq!(beacons(&mut switch, at(10)), [(3, both(10))], "the others wait for port 3");
    beacon_from(&mut switch, at(11), 3, both(5));
    beacon_from(&mut switch, at(11), 3, both(11));
    assert_eq!(beacons(&mut switch, at(11)), [0, 1, 2].map(|port| (port, both(10))));
    assert_eq!(beacons(&mut switch, at(11)), []);

    let (_, promises) = pass(&mut switch, at(12), 0, frame(Opcode::Ack, 0, 1, both(12)));
    assert_eq!(promises, both(10));
    assert_eq!(beacons(&mut switch, at(12)), [], "no minimum has risen");
}

#[test]
fn eager_round_is_sent_once_when_the_last_beacon_arrives() {
    let mut switch =
        new(Config { beacon_interval_ns: 3_000, eager_beacons: Eager::ByRound, ..star(3) });
    for port in 0..3 {
        join(&mut switch, at(0), port, port.into(), both(0));
    }
    beacons(&mut switch, at(0));
    for (ns, port) in [(3_100, 2), (3_400, 0)] {
        beacon_from(&mut switch, at(ns), port, both(ns - 100));
        assert_eq!(beacons(&mut switch, at(ns)), [], "port 1 has not promised yet");
    }
    beacon_from(&mut switch, at(3_500), 1, both(3_050));
    let advertised = [(0, both(3_000)), (1, both(3_000)), (2, both(3_050))];
    assert_eq!(beacons(&mut switch, at(3_500)), advertised);
    beacon_from(&mut switch, at(3_600), 2, both(3_550));
    assert_eq!(
        beacons(&mut switch, at(3_600)),
        [],
        "less than a quarter of an interval is no round"
    );
    switch.handle_timeout(at(6_000));
    assert_eq!(
        beacons(&mut switch, at(6_000)),
        [],
        "all outputs were advertised since the last instant"
    );
    switch.handle_timeout(at(9_000));
    assert_eq!(beacons(&mut switch, at(9_000)).len(), 3, "beacons also show that the link is up");
}

#[test]
fn lazy_switch_waits_for_the_instant() {
    let mut switch = new(star(2));
    join(&mut switch, at(0), 0, 0, both(0));
    join(&mut switch, at(0), 1, 1, both(0));
    beacons(&mut switch, at(0));
    beacon_from(&mut switch, at(10), 0, both(10));
    assert_eq!(beacons(&mut switch, at(10)), []);
}

#[test]
fn tree_sends_beacons_before_hearing_neighbours() {
    let tree =
        Tree { base: 0, span: 2, child_span: 1, links_per_child: 1, host_span: 1, processes: 4 };
    let config = Config { start_wait_ns: 0, ..Config::new(2, 1, Route::Tree(tree)) };
    let mut switch = new(config);
    switch.handle_timeout(at(0));
    beacon_from(&mut switch, at(1), 0, both(1));
    let due = switch.poll_timeout().expect("an instant").as_ns();
    switch.handle_timeout(at(due));
    let sent = beacons(&mut switch, at(due));
    assert_eq!(
        sent,
        [0, 1, 2].map(|port| (port, both(1))),
        "no frame yet on port 1, and on 2 above"
    );
}

//= spec/ordering.md#R35
#[test]
fn malformed_frames_only_change_a_counter() {
    let mut switch = new(star(2));
    join(&mut switch, at(0), 0, 0, both(0));
    join(&mut switch, at(0), 1, 1, both(0));
    beacons(&mut switch, at(0));
    let good = frame(Opcode::Ack, 0, 1, both(10));
    let before = switch.clone();
    let mut bad = 0;
    for byte in 0..good.len() {
        let mut bytes = good;
        bytes[byte] ^= 0x10;
        assert_eq!(put(&mut switch, at(0), 0, bytes), Verdict::Dropped, "byte {byte}");
        assert_eq!(switch.handle_frame(at(0), Port(0), &mut { good }[..byte]), Verdict::Dropped);
        bad += 2;
    }
    assert_eq!(switch.stats().dropped_malformed, bad);
    assert_eq!(put(&mut switch, at(0), 2, good), Verdict::Dropped);
    assert_eq!(switch.stats().dropped_port, 1);
    assert_eq!(beacons(&mut switch, at(0)), beacons(&mut before.clone(), at(0)));
    assert_eq!(pass(&mut switch, at(1), 1, frame(Opcode::Ack, 1, 0, both(1))), (0, both(1)));
}

#[test]
fn frame_without_hops_left_is_dropped() {
    let mut switch = new(star(2));
    join(&mut switch, at(0), 0, 0, both(0));
    join(&mut switch, at(0), 1, 1, both(0));
    let last = frame_with_hops(Opcode::Ack, 0, 1, both(1), 1);
    assert_eq!(pass(&mut switch, at(1), 0, last).0, 1);
    let spent = frame_with_hops(Opcode::Ack, 0, 1, both(1), 0);
    assert_eq!(put(&mut switch, at(1), 0, spent), Verdict::Dropped);
    assert_eq!(switch.stats().dropped_hops, 1);
}

//= spec/failure.md#R3
//= spec/ordering.md#R12
#[test]
fn commit_and_barrier_are_aggregated_separately() {
    let mut switch = new(star(3));
    let promises_of_both = |barrier, commit| Promises { barrier: ts(barrier), commit: ts(commit) };
    for port in 0..3 {
        join(&mut switch, at(0), port, port.into(), both(0));
    }
    beacon_from(&mut switch, at(1), 2, promises_of_both(30, 5));
    let bytes = frame(Opcode::Ack, 0, 1, promises_of_both(20, 10));
    assert_eq!(pass(&mut switch, at(2), 0, bytes), (1, promises_of_both(20, 5)));
}

#[test]
fn out_of_range_configurations_are_rejected() {
    assert!(Switch::new(star(0)).is_err());
    let route = || star(1).route;
    assert!(Switch::new(Config::new(u16::MAX, 1, route())).is_err());
    assert!(Switch::new(Config { ahead_ns_max: WIRE_MODULUS / 4, ..star(1) }).is_err());
}
