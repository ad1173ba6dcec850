//! Forms other than the chip: whose promises count, which frames pass unchanged, which links get
//! beacons.

use crate::harness;

use harness::{at, beacon_from, beacons, both, frame, join, promises_of, put, run, ts};
use onepipe_base::{Port, Promises, Verdict};
use onepipe_switch::{Config, Eager, Form, Switch};
use onepipe_topology::{ForwardingTable, Route};
use onepipe_wire::{HOPS_MAX, Opcode, parse_header};
use proptest::collection::vec;
use proptest::prelude::*;

const INTERVAL_NS: u64 = 3_000;

/// Returns a switch with two lower ports followed by two upper ones.
fn switch(form: Form) -> Switch {
    let route = Route::ForwardingTable(ForwardingTable::new(8, true));
    let config = Config { form, start_wait_ns: 0, ..Config::new(2, 2, route) };
    Switch::new(config).expect("valid")
}

/// Returns a switch whose four inputs have promised `ns`.
fn with_promises(form: Form, ns: u64) -> Switch {
    let mut switch = switch(form);
    (0..2).for_each(|port| join(&mut switch, at(ns), port, port.into(), both(ns)));
    (2..4).for_each(|port| beacon_from(&mut switch, at(ns), port, both(ns)));
    while !beacons(&mut switch, at(ns)).is_empty() {}
    // The upper switches have come up since, and count it: now the processes have caught up.
    (2..4).chain(0..2).for_each(|port| beacon_from(&mut switch, at(ns), port, both(ns)));
    while !beacons(&mut switch, at(ns)).is_empty() {}
    switch
}

/// Returns the last barrier that each port gets within two intervals.
fn advertised(switch: &mut Switch, ns: u64) -> Vec<u64> {
    let sent = run(switch, ns + 2 * INTERVAL_NS);
    let last = |port| sent.iter().rev().find(|sent| sent.port == port);
    let barrier = |port| last(port).map(|sent| sent.header.promises(ts(ns)).barrier);
    (0..4).filter_map(barrier).map(|barrier| barrier.since_ns(ts(0))).collect()
}

//= spec/ordering.md#R12
#[test]
fn off_chip_frames_pass_unchanged_and_only_beacons_count() {
    let mut beside = with_promises(Form::OffChip, 10_000);
    for (from, to) in [(0, 1), (1, 5), (2, 0), (3, 1)] {
        let mut bytes = frame(Opcode::Data, from, to, both(90_000));
        let before = bytes;
        let verdict = onepipe_base::Machine::handle_frame(
            &mut beside,
            at(11_000),
            Port(from as u16),
            &mut bytes,
        );
        assert!(matches!(verdict, Verdict::Forward(_)), "{from} to {to}: {verdict:?}");
        assert_eq!(bytes, before, "{from} to {to}");
    }
    assert_eq!(advertised(&mut beside, 12_000), [10_000; 4], "frames do not count");
    let mut chip = with_promises(Form::Chip, 10_000);
    for (from, to) in [(0, 1), (1, 5), (2, 0), (3, 1)] {
        put(&mut chip, at(11_000), from as u16, frame(Opcode::Data, from, to, both(90_000)));
    }
    assert_eq!(advertised(&mut chip, 12_000), [90_000; 4]);
}

//= spec/ordering.md#R12
#[test]
fn off_chip_busy_links_get_beacons_and_silent_ones_time_out() {
    // Port 1 is busy; only instants count, eager beacons are off.
    let beacons_of_busy = |form| {
        let config = Config { eager_beacons: Eager::Never, ..switch(form).config().clone() };
        let mut switch = Switch::new(config).expect("valid");
        join(&mut switch, at(12_000), 1, 1, both(12_000));
        let mut count = 0;
        for ns in 12_001..24_000 {
            (0..4).for_each(|port| beacon_from(&mut switch, at(ns), port, both(ns)));
            put(&mut switch, at(ns), 0, frame(Opcode::Data, 0, 1, both(ns)));
            count += run(&mut switch, ns).iter().filter(|sent| sent.port == 1).count();
        }
        count
    };
    // The chip's one beacon answers the join.
    assert_eq!((beacons_of_busy(Form::OffChip), beacons_of_busy(Form::Chip)), (3, 1));
    let mut beside = with_promises(Form::OffChip, 12_000);
    for ns in 12_001..60_000 {
        put(&mut beside, at(ns), 0, frame(Opcode::Data, 0, 1, both(ns)));
        if ns.is_multiple_of(100) {
            (1..4).for_each(|port| beacon_from(&mut beside, at(ns), port, both(ns)));
            run(&mut beside, ns);
        }
    }
    assert!(!beside.is_live(Port(0)), "frames do not keep a link alive");
    assert!(beside.is_live(Port(1)));
}

#[test]
fn edge_counts_frames_from_below_and_beacons_from_above() {
    let mut edge = with_promises(Form::Edge, 10_000);
    // From above: rewritten for the process, and not counted.
    let mut down = frame(Opcode::Data, 5, 0, both(90_000));
    let verdict = onepipe_base::Machine::handle_frame(&mut edge, at(11_000), Port(2), &mut down);
    assert_eq!(verdict, Verdict::Forward(Port(0)));
    assert_eq!(promises_of(&down, at(11_000)), both(10_000));
    // From below: counted, and advertised to the neighbour at once.
    let mut across = frame(Opcode::Data, 0, 1, both(12_000));
    let verdict = onepipe_base::Machine::handle_frame(&mut edge, at(11_000), Port(0), &mut across);
    assert_eq!(verdict, Verdict::Forward(Port(1)));
    assert_eq!(promises_of(&across, at(11_000)), both(10_000), "the upper ports hold it");
    (2..4).for_each(|port| beacon_from(&mut edge, at(11_000), port, both(20_000)));
    // Leaving: raises nothing anywhere.
    let mut out = frame(Opcode::Data, 1, 5, both(13_000));
    let verdict = onepipe_base::Machine::handle_frame(&mut edge, at(11_000), Port(1), &mut out);
    assert!(matches!(verdict, Verdict::Forward(Port(2 | 3))), "{verdict:?}");
    assert!(promises_of(&out, at(11_000)).barrier < ts(0).saturating_sub_ns(1 << 45));
    assert_eq!(parse_header(&out).expect("well-formed").0.hops(), HOPS_MAX - 1);
    assert_eq!(advertised(&mut edge, 12_000), [13_000, 12_000, 12_000, 12_000]);
}

#[test]
fn data_frame_does_not_bring_up_a_beacon_only_link() {
    for (form, port) in [(Form::OffChip, 0), (Form::OffChip, 2), (Form::Edge, 2)] {
        let mut switch = switch(form);
        join(&mut switch, at(9_000), 1, 1, both(9_000));
        let from = if port == 0 { 0 } else { 5 };
        put(&mut switch, at(9_000), port, frame(Opcode::Data, from, 1, both(9_000)));
        assert!(!switch.is_live(Port(port)), "{form:?}, port {port}");
        beacon_from(&mut switch, at(9_000), port, both(9_000));
        assert!(switch.is_live(Port(port)), "{form:?}, port {port}");
    }
}

proptest! {
    /// Whatever promises passing frames carry, only the promises of beacons are advertised.
    #[test]
    fn off_chip_data_does_not_change_beacons(
        frames in vec((0u16..4, 0u32..8, any::<u64>(), any::<bool>()), 0..60),
    ) {
        let (mut with, mut without) = (with_promises(Form::OffChip, 10_000), with_promises(Form::OffChip, 10_000));
        let mut ns = 10_000;
        for (port, to, promise, is_beacon) in frames {
            ns += 100;
            if is_beacon {
                let promises = both(ns - 100 + promise % 100);
                beacon_from(&mut with, at(ns), port, promises);
                beacon_from(&mut without, at(ns), port, promises);
            } else {
                let promises = Promises { barrier: ts(promise >> 20), commit: ts(promise >> 18) };
                put(&mut with, at(ns), port, frame(Opcode::Data, u32::from(port), to, promises));
            }
            let with_promises = |switch: &mut Switch| {
                let sent = run(switch, ns);
                sent.into_iter().map(|sent| (sent.port, sent.header)).collect::<Vec<_>>()
            };
            prop_assert_eq!(with_promises(&mut with), with_promises(&mut without));
        }
    }
}
