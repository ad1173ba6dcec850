//! Frames in granted timeslots take the path of their label.

use crate::harness;

use std::collections::BTreeSet;

use harness::at;
use onepipe_base::{Incarnation, Machine, Port, ProcessId, Verdict};
use onepipe_switch::{Config, Switch};
use onepipe_topology::{Route, Tree};
use onepipe_wire::{
    ANY_LINK, HOPS_MAX, Header, Opcode, SHORT_HEADER_LEN, SLOT_HEADER_LEN, Slot, seal_with_hops,
};

/// Two processes below, four uplinks on which no frame has ever arrived.
fn switch() -> Switch {
    let tree =
        Tree { base: 0, span: 2, child_span: 1, links_per_child: 1, host_span: 1, processes: 64 };
    let config = Config { upper_ports: 4, route: Route::Tree(tree), ..harness::star(2) };
    let mut switch = Switch::new(config).expect("valid");
    switch.handle_timeout(at(0));
    switch
}

/// Returns the verdict on a slot frame with this label that has passed `passed` switches.
fn next_hop(switch: &mut Switch, (from, dst): (u16, u32), label: [u8; 4], passed: u8) -> Verdict {
    let mut bytes = [0; SHORT_HEADER_LEN + SLOT_HEADER_LEN];
    let slot = Slot { label, timeslot: 1, path: 0, earlier: [0; 3] };
    slot.write(&mut bytes[SHORT_HEADER_LEN..]).expect("it fits");
    let header = Header::new(Opcode::Slot, ProcessId(1), ProcessId(dst), Incarnation(1));
    seal_with_hops(&mut bytes, header, SLOT_HEADER_LEN, HOPS_MAX - passed);
    switch.handle_frame(at(10), Port(from), &mut bytes)
}

#[test]
fn each_switch_follows_its_own_byte_of_the_label() {
    let mut switch = switch();
    let to = |port| Verdict::Forward(Port(port));
    for nth in 0..4 {
        let label = [0, 1, 2, 3].map(|at| if at == nth { 3 } else { 0 });
        assert_eq!(next_hop(&mut switch, (1, 40), label, nth), to(5));
        assert_eq!(next_hop(&mut switch, (1, 40), label, (nth + 1) % 4), to(2));
    }
    assert_eq!(
        next_hop(&mut switch, (1, 40), [6; 4], 0),
        to(4),
        "taken modulo the number of links"
    );
    assert_eq!(
        next_hop(&mut switch, (1, 0), [3; 4], 0),
        to(0),
        "the label does not affect a single next hop"
    );
    assert_eq!(next_hop(&mut switch, (2, 40), [3; 4], 0), Verdict::Dropped, "not up again");
}

#[test]
fn label_selects_a_link_of_a_downward_bundle() {
    let tree =
        Tree { base: 0, span: 16, child_span: 8, links_per_child: 4, host_span: 1, processes: 64 };
    let config =
        Config { lower_ports: 8, upper_ports: 4, route: Route::Tree(tree), ..harness::star(2) };
    let mut switch = Switch::new(config).expect("valid");
    switch.handle_timeout(at(0));
    for link in 0..4 {
        let verdict = next_hop(&mut switch, (8, 12), [ANY_LINK, ANY_LINK, ANY_LINK, link], 3);
        assert_eq!(verdict, Verdict::Forward(Port(4 + u16::from(link))));
    }
}

#[test]
fn unlabelled_pairs_keep_one_path_and_use_all_paths() {
    let mut switch = switch();
    let own = [ANY_LINK, 1, 1, 1];
    let next_hops: BTreeSet<String> =
        (10..60).map(|dst| format!("{:?}", next_hop(&mut switch, (1, dst), own, 0))).collect();
    assert_eq!(next_hops.len(), 4, "{next_hops:?}");
    for (label, passed) in [(own, 0), ([1; 4], 4), ([1; 4], 31)] {
        let first = next_hop(&mut switch, (1, 40), own, 0);
        assert_eq!(next_hop(&mut switch, (1, 40), label, passed), first);
    }
}
