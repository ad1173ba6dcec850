//! Recovery of the paper's testbed within its time bounds.

use onepipe_sim_recovery::{Component, Measured, Options, Recovery, run};

fn fail(hosts: u32, component: Component, recovery: Recovery) -> Measured {
    let options = Options::testbed(hosts, component, recovery, 7);
    run(&options, |_| {}).expect("the fabric recovers")
}

/// Detection (10 beacon intervals of 3 us) + 6 diameters (6 links of 0.5 us) + 15 us per host.
fn bound_us(hosts: u32) -> f64 {
    30.0 + 6.0 * 3.0 + 15.0 * f64::from(hosts)
}

#[test]
fn a_process_and_a_rack_are_recovered_from_in_time_both_ways() {
    for recovery in [Recovery::Flat, Recovery::Tree] {
        for (component, failed) in [(Component::Process, 1), (Component::Rack, 8)] {
            let measured = fail(32, component, recovery);
            let name = component.name();
            assert_eq!((measured.failed, measured.correct), (failed, 31 - failed), "{name}");
            assert!(measured.last_us <= 3.0 * bound_us(32), "{name}: {} us", measured.last_us);
            assert!((24.0..=40.0).contains(&measured.detection_us), "{name}: {measured:?}");
        }
    }
}

#[test]
fn in_a_tree_the_news_takes_no_longer_for_four_times_the_hosts() {
    for component in [Component::Host, Component::Rack] {
        let few = fail(8, component, Recovery::Tree).stall_us();
        let many = fail(32, component, Recovery::Tree).stall_us();
        assert!(many < 1.25 * few, "{}: {many} us, not {few} us", component.name());
        let flat = fail(32, component, Recovery::Flat).stall_us();
        assert!(flat > 1.5 * many, "{}: one by one it takes {flat} us", component.name());
    }
}

#[test]
fn who_only_lost_a_core_loses_nobody_and_waits_for_nobody() {
    for component in [Component::CoreLink, Component::CoreSwitch] {
        let measured = fail(16, component, Recovery::Flat);
        assert_eq!((measured.failed, measured.correct), (0, 16));
        assert!(measured.last_us <= 3.0 * bound_us(0), "{}: {measured:?}", component.name());
    }
}

#[test]
fn a_core_that_many_report_costs_the_controller_a_look_at_what_is_around_it() {
    let shape = "fat-tree:8".parse().expect("the shape is valid");
    let options = Options::full(shape, Component::CoreSwitch, Recovery::Tree, 1);
    let measured = run(&options, |_| {}).expect("the fabric recovers");
    let thought = measured.thought;
    // One evaluation per report would occupy the controller until its own switch considered it dead.
    assert!(thought.looks <= 2 && thought.visits < 1_000, "{thought:?}");
    let testbed = fail(32, Component::CoreSwitch, Recovery::Tree).stall_us();
    assert!(measured.stall_us() < 1.5 * testbed, "{} us, not {testbed} us", measured.stall_us());
}

#[test]
fn those_who_have_something_under_way_recover_too_and_alike_each_time() {
    let options =
        Options { senders: 31, ..Options::testbed(32, Component::Rack, Recovery::Tree, 3) };
    let one = run(&options, |_| {}).expect("the fabric recovers");
    let other = run(&options, |_| {}).expect("the fabric recovers");
    assert_eq!(one.stalls_us, other.stalls_us);
    assert!(one.last_us <= 3.0 * bound_us(32), "{one:?}");
}
