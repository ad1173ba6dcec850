//! Frames in granted timeslots take the way that their labels say.

mod rig;

use std::collections::BTreeSet;

use onepipe_base::{Incarnation, Machine, Port, ProcessId, Verdict};
use onepipe_switch::{Config, Switch};
use onepipe_topology::{Route, Tree};
use onepipe_wire::{
    ANY_LINK, HEADER_LEN, HOPS_MAX, Header, Opcode, SLOT_HEADER_LEN, Slot, seal_with_hops,
};
use rig::at;

/// Two processes below, four ways up, of which none has ever been heard.
fn switch() -> Switch {
    let tree = Tree { base: 0, span: 2, child_span: 1, lanes: 1, processes: 64 };
    let config = Config { upper_ports: 4, route: Route::Tree(tree), ..rig::star(2) };
    let mut switch = Switch::new(config).expect("valid");
    switch.handle_timeout(at(0));
    switch
}

/// Where a slot frame goes that has passed `passed` switches and bears this label.
fn way(switch: &mut Switch, (from, dst): (u16, u32), label: [u8; 4], passed: u8) -> Verdict {
    let mut bytes = [0; HEADER_LEN + SLOT_HEADER_LEN];
    let slot = Slot { label, timeslot: 1, path: 0, earlier: [0; 3] };
    slot.write(&mut bytes[HEADER_LEN..]).expect("it fits");
    let header = Header::new(Opcode::Slot, ProcessId(1), ProcessId(dst), Incarnation(1));
    seal_with_hops(&mut bytes, header, SLOT_HEADER_LEN, HOPS_MAX - passed);
    switch.handle_frame(at(10), Port(from), &mut bytes)
}

#[test]
fn each_switch_obeys_its_own_byte_of_the_label() {
    let mut switch = switch();
    let to = |port| Verdict::Forward(Port(port));
    for nth in 0..4 {
        let label = [0, 1, 2, 3].map(|at| if at == nth { 3 } else { 0 });
        assert_eq!(way(&mut switch, (1, 40), label, nth), to(5));
        assert_eq!(way(&mut switch, (1, 40), label, (nth + 1) % 4), to(2));
    }
    assert_eq!(way(&mut switch, (1, 40), [6; 4], 0), to(4), "counted round and round");
    assert_eq!(way(&mut switch, (1, 0), [3; 4], 0), to(0), "the way down is not chosen");
    assert_eq!(way(&mut switch, (2, 40), [3; 4], 0), Verdict::Dropped, "not up again");
}

#[test]
fn a_bundle_down_is_one_of_several_ways_too() {
    let tree = Tree { base: 0, span: 16, child_span: 8, lanes: 4, processes: 64 };
    let config =
        Config { lower_ports: 8, upper_ports: 4, route: Route::Tree(tree), ..rig::star(2) };
    let mut switch = Switch::new(config).expect("valid");
    switch.handle_timeout(at(0));
    for lane in 0..4 {
        let verdict = way(&mut switch, (8, 12), [ANY_LINK, ANY_LINK, ANY_LINK, lane], 3);
        assert_eq!(verdict, Verdict::Forward(Port(4 + u16::from(lane))));
    }
}

#[test]
fn without_a_label_a_pair_keeps_one_way_and_all_ways_are_used() {
    let mut switch = switch();
    let own = [ANY_LINK, 1, 1, 1];
    let ways: BTreeSet<String> =
        (10..60).map(|dst| format!("{:?}", way(&mut switch, (1, dst), own, 0))).collect();
    assert_eq!(ways.len(), 4, "{ways:?}");
    for (label, passed) in [(own, 0), ([1; 4], 4), ([1; 4], 31)] {
        let first = way(&mut switch, (1, 40), own, 0);
        assert_eq!(way(&mut switch, (1, 40), label, passed), first);
    }
}
