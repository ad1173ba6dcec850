//! Recovery of the paper's testbed within its time bounds.

use onepipe_sim_recovery::{Calibration, Component, Measured, Options, Recovery, run};

fn fail(hosts: u32, component: Component, recovery: Recovery) -> Measured {
    let options = Options::testbed(hosts, component, recovery, 7);
    run(&options, |_| {}).expect("the fabric recovers")
}

/// Detection (10 beacon intervals of 3 us) + 6 diameters (6 links of 0.5 us) + 15 us per host.
fn bound_us(hosts: u32) -> f64 {
    30.0 + 6.0 * 3.0 + 15.0 * f64::from(hosts)
}

#[test]
fn recovers_process_and_rack_within_bounds() {
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
fn tree_recovery_time_is_independent_of_hosts() {
    for component in [Component::Host, Component::Rack] {
        let few = fail(8, component, Recovery::Tree).stall_us();
        let many = fail(32, component, Recovery::Tree).stall_us();
        assert!(many < 1.25 * few, "{}: {many} us, not {few} us", component.name());
        let flat = fail(32, component, Recovery::Flat).stall_us();
        assert!(flat > 1.5 * many, "{}: one by one it takes {flat} us", component.name());
    }
}

#[test]
fn core_failures_fail_no_process() {
    for component in [Component::CoreLink, Component::CoreSwitch] {
        let measured = fail(16, component, Recovery::Flat);
        assert_eq!((measured.failed, measured.correct), (0, 16));
        assert!(measured.last_us <= 3.0 * bound_us(0), "{}: {measured:?}", component.name());
    }
}

#[test]
fn core_failure_costs_one_local_evaluation() {
    let shape = "fat-tree:8".parse().expect("the shape is valid");
    let options = Options::full(shape, Component::CoreSwitch, Recovery::Tree, 1);
    let measured = run(&options, |_| {}).expect("the fabric recovers");
    let controller_work = measured.controller_work;
    // One evaluation per report would occupy the controller until its own switch considered it
    // dead.
    assert!(
        controller_work.evaluations <= 2 && controller_work.visits < 1_000,
        "{controller_work:?}"
    );
    let testbed = fail(32, Component::CoreSwitch, Recovery::Tree).stall_us();
    assert!(measured.stall_us() < 1.5 * testbed, "{} us, not {testbed} us", measured.stall_us());
}

#[test]
fn recovers_with_traffic_deterministically() {
    let options =
        Options { senders: 31, ..Options::testbed(32, Component::Rack, Recovery::Tree, 3) };
    let one = run(&options, |_| {}).expect("the fabric recovers");
    let other = run(&options, |_| {}).expect("the fabric recovers");
    assert_eq!(one.stalls_us, other.stalls_us);
    assert!(one.last_us <= 3.0 * bound_us(32), "{one:?}");
}

#[test]
fn variants_of_the_controller_change_what_they_name() {
    let stall_us = |component, change: fn(Calibration) -> Calibration| {
        let options = Options::testbed(16, component, Recovery::Flat, 7);
        let calibration = change(options.calibration.clone());
        let measured = run(&Options { calibration, ..options }, |_| {});
        measured.expect("the fabric recovers").stall_us()
    };
    let each = |calibration| Calibration { has_notice_per_failure: true, ..calibration };
    let (each_us, all_us) = (stall_us(Component::Rack, each), stall_us(Component::Rack, |all| all));
    assert!(each_us > 1.5 * all_us, "{each_us} and {all_us} us");
    let at_once_us = stall_us(Component::CoreLink, Calibration::without_waits);
    let less_us = stall_us(Component::CoreLink, |all| all) - at_once_us;
    assert!((5.0..20.0).contains(&less_us), "{less_us} us");
}
