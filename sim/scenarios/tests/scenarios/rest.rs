//! A fabric with controllers at rest: announcements and Hello frames are rare, and no step of a
//! recovery waits for the next one.

use crate::fixture;

use fixture::{controller_plan, end, switch};
use onepipe_base::Port;
use onepipe_sim_network::{Fault, LinkFaults, Loss, NodeId};
use onepipe_sim_scenarios::Fabric;

/// Heartbeat in these tests: a thousand beacon intervals, and thirty times the slow interval of
/// announcements.
const HEARTBEAT_US: u64 = 3_000;
/// Two rounds of announcements at rest, to three controllers.
const TWO_ROUNDS_US: u64 = 6 * HEARTBEAT_US;

/// How long a process may take to answer a ping: longer than announcements are frequent after a
/// change, shorter than a round of them at rest.
const PING_TIMEOUT_US: u64 = 4_000;

/// Returns a fabric of `shape` with three controllers behind the last hosts, at rest.
fn at_rest(shape: &str, seed: u64) -> Fabric {
    let mut plan = controller_plan(shape, 1, 3, seed);
    plan.load = None;
    plan.set_on_demand(1_000);
    plan.endpoint.probes_max = 2;
    plan.control_plane.as_mut().expect("it has controllers").controller.ping_timeout_ns =
        PING_TIMEOUT_US * 1_000;
    assert_eq!(plan.switch.heartbeat_interval_ns, HEARTBEAT_US * 1_000);
    let mut fabric = Fabric::new(plan);
    fabric.run_us(TWO_ROUNDS_US);
    fabric
}

/// Submits a reliable message from process 0 to process 2.
fn scatter(fabric: &mut Fabric) {
    fabric.scatter_reliably(0, &[(2, 64)]).expect("the process runs").expect("accepted");
    // The request for a connection is offered by the next poll, as a real driver does at once.
    fabric.network().command(NodeId(0), |_, machine, _| {
        machine.process_mut(Port(0));
    });
}

/// Sends a reliable message from process 0 to process 2. Returns how long it takes in us, at most
/// `us_max`: commits wait for the recovery from every failure before it.
fn commit_us(fabric: &mut Fabric, us_max: u64) -> u64 {
    let before = fabric.report().messages.delivered;
    scatter(fabric);
    let is_delivered = |fabric: &Fabric| fabric.report().messages.delivered > before;
    for us in 1..us_max {
        fabric.run_us(1);
        if is_delivered(fabric) {
            return us;
        }
    }
    us_max
}

//= spec/failure.md#R45
//= spec/failure.md#R46
#[test]
fn controlled_fabric_at_rest_is_quiet() {
    for (shape, links) in [("star:6", 6), ("leaf-spine:2x2x4", 8 + 4)] {
        let mut fabric = at_rest(shape, 1);
        let before = fabric.stats().hops;
        fabric.run_us(30 * HEARTBEAT_US);
        let sent = fabric.stats().hops - before;
        // A heartbeat in each direction, and the announcements of all nodes on their way to the
        // controllers. At the fast intervals it would be a thousand frames.
        assert!(sent <= 30 * links * 9, "{shape}: {sent} frames");
        end(fabric);
    }
}

//= spec/failure.md#R45
#[test]
fn failure_at_rest_is_resolved_at_once() {
    for shape in ["star:6", "leaf-spine:2x2x4"] {
        let mut fabric = at_rest(shape, 2);
        fabric.crash_process(1);
        let us = commit_us(&mut fabric, HEARTBEAT_US);
        assert!(us < HEARTBEAT_US / 4, "{shape}: {us} us");
        assert_eq!(fabric.report().control_plane.failures, 1);
        end(fabric);
    }
}

//= spec/failure.md#R45
#[test]
fn failure_at_rest_is_reported_despite_loss() {
    for seed in 0..20 {
        let mut fabric = at_rest("leaf-spine:2x2x4", seed);
        let loss = Loss { control_ppm: 300_000, ..Loss::default() };
        fabric.crash_process(1);
        scatter(&mut fabric);
        fabric.run_us(10);
        fabric.set_link_faults(LinkFaults { loss, ..LinkFaults::default() });
        fabric.run_us(HEARTBEAT_US / 2);
        assert_eq!(fabric.report().messages.failures, 1, "seed {seed}");
        end(fabric);
    }
}

/// While a link is frozen, its announcement goes on at the slow interval: whatever the controllers
/// have missed, they learn soon after they can be reached again.
//= spec/failure.md#R45
#[test]
fn failure_is_resolved_soon_after_an_outage() {
    for seed in 0..10 {
        let mut fabric = at_rest("star:6", seed);
        fabric.crash_process(1);
        scatter(&mut fabric);
        fabric.run_us(10);
        let loss = Loss { control_ppm: 1_000_000, ..Loss::default() };
        fabric.set_link_faults(LinkFaults { loss, ..LinkFaults::default() });
        fabric.run_us(TWO_ROUNDS_US);
        assert_eq!(fabric.report().control_plane.failures, 0, "no announcement has arrived");
        fabric.set_link_faults(LinkFaults::default());
        fabric.run_us(HEARTBEAT_US / 4);
        assert_eq!(fabric.report().messages.failures, 1, "seed {seed}");
        end(fabric);
    }
}

/// A switch that restarts knows no route to a controller before that one's next Hello.
//= spec/failure.md#R46
#[test]
fn restarted_switch_is_registered_at_once() {
    for seed in 0..10 {
        let mut fabric = at_rest("star:6", seed);
        let star = switch(&fabric, 0);
        fabric.inject(Fault::Crash(star));
        // The controllers notice that their Hello frames are not answered.
        fabric.run_us(5 * HEARTBEAT_US);
        fabric.inject(Fault::Restart(star));
        for failures in [0, 1] {
            let us = commit_us(&mut fabric, HEARTBEAT_US);
            assert!(us < HEARTBEAT_US / 4, "seed {seed}, {failures} failures: {us} us");
            fabric.run_us(TWO_ROUNDS_US);
            fabric.crash_process(1);
        }
        end(fabric);
    }
}

/// A replica that has started at rest learns all nodes from their rare announcements.
//= spec/failure.md#R45
#[test]
fn standby_started_at_rest_takes_over() {
    let mut fabric = at_rest("leaf-spine:2x2x4", 5);
    let (active, _) = fabric.active().expect("a controller is active");
    let replicas = fabric.members()..fabric.topology().processes();
    let standbys: Vec<u32> = replicas.filter(|id| *id != active).collect();
    standbys.iter().for_each(|id| fabric.crash_process(*id));
    fabric.run_us(HEARTBEAT_US);
    standbys.iter().for_each(|id| fabric.restart_process(*id));
    fabric.run_us(TWO_ROUNDS_US);
    fabric.crash_process(active);
    fabric.run_us(TWO_ROUNDS_US);
    let (next, epoch) = fabric.active().expect("another controller is active");
    assert!(next != active && epoch > 1, "replica {next}, epoch {epoch}");
    fabric.crash_process(1);
    let us = commit_us(&mut fabric, HEARTBEAT_US);
    assert!(us < HEARTBEAT_US / 4, "{us} us");
    end(fabric);
}

/// A receiver whose link carries only beacons is pinged in vain. Answered Hello frames
/// show the controller meanwhile that it is not its own link that is silent.
//= spec/failure.md#R46
#[test]
fn unresponsive_receiver_at_rest_is_declared_dead() {
    let mut fabric = at_rest("star:6", 6);
    // The connection is opened.
    commit_us(&mut fabric, HEARTBEAT_US);
    fabric.run_us(TWO_ROUNDS_US);
    let star = switch(&fabric, 0);
    let loss = Loss { data_ppm: 1_000_000, control_ppm: 1_000_000, ..Loss::default() };
    let faults = LinkFaults { loss, ..LinkFaults::default() };
    for link in fabric.between(star, NodeId(2)) {
        fabric.inject(Fault::SetLinkFaults(link, faults));
    }
    scatter(&mut fabric);
    let before = fabric.now();
    while fabric.report().control_plane.unresponsive == 0 {
        fabric.run_us(100);
        let us = fabric.now().since(before) / 1_000_000;
        assert!(us < 3 * PING_TIMEOUT_US, "{:#?}", fabric.report().control_plane);
    }
    end(fabric);
}
