//! Regression tests: seeds of `onepipe sim fuzz` that found a bug, by what they found.

use onepipe_sim_check::Rule;
use onepipe_sim_scenarios::{Placement, Swarm};

/// Runs seeds with the placement at which they failed; none may violate an invariant any more.
fn are_right(placement: Placement, seeds: &[u64]) {
    for seed in seeds {
        let report = Swarm::draw_with(*seed, placement).run();
        assert_eq!(
            report.first_violations,
            Vec::<String>::new(),
            "onepipe sim fuzz --seed {seed} --trace"
        );
    }
}

/// A run has a step limit whatever machines and load do, and reaching it is a violation.
#[test]
fn a_run_that_takes_too_many_steps_is_ended_and_said_to_have_failed() {
    let mut swarm = Swarm::draw_with(0, Placement::Chip);
    assert!(swarm.run().violations_by_rule.is_empty());
    swarm.plan.network.steps_max = 2_000;
    let report = swarm.run();
    assert_eq!(report.violations_by_rule.into_keys().collect::<Vec<_>>(), [Rule::End]);
    assert!(report.network.events < 2_000);
}

/// A failed receiver refuses immediately. The closed loop submitted forever at one instant, and the
/// sender kept a record of every round behind a scattering that was still open.
#[test]
fn a_closed_loop_to_receivers_that_have_failed_takes_its_time() {
    are_right(Placement::Chip, &[36, 139]);
}

/// A host did not poll a process for events that were raised while it polled frames; what the
/// process could deliver waited for the next input of any kind.
#[test]
fn what_comes_up_while_a_host_polls_for_frames_is_not_left_lying() {
    are_right(Placement::Chip, &[1_000_203]);
}

/// Crashes during a recovery, with frames lost and reordered all the time.
#[test]
fn what_has_been_found_earlier_stays_right() {
    are_right(Placement::Chip, &[18, 21, 86]);
}

/// A restarted process received a commit meant for its previous incarnation and took that for
/// permission to send reliable messages: with a slow clock they arrived too late.
#[test]
fn who_comes_back_is_told_no_commit_before_it_has_caught_up() {
    are_right(Placement::SwitchCpu, &[1035]);
}

/// A switch restarted and crashed before it was confirmed. It had promised nothing, and that was
/// taken for its previous incarnation, too. So the processes behind it failed below what they had
/// committed.
#[test]
fn lives_of_one_neighbour_are_told_apart() {
    are_right(Placement::Chip, &[1_001_262, 1_001_288]);
}

/// A host's switch was declared failed and was never notified; so was a switch with only failed
/// processes below it. It waited for a flood acknowledgement, and its processes with it.
#[test]
fn a_switch_that_was_declared_dead_comes_back() {
    are_right(Placement::Chip, &[20_000_339, 20_000_427]);
}

/// A process crashed before the controllers knew of its incarnation, and processes with its
/// acknowledgements waited forever; another one sent reliable messages before its announcement was
/// acknowledged.
#[test]
fn nothing_reliable_happens_before_a_welcome() {
    are_right(Placement::Chip, &[136, 20_000_133, 20_000_182, 20_000_540]);
}

/// Flat recovery notified only participants. Processes that had been declared failed but were alive
/// came back with what they had received.
#[test]
fn who_was_declared_dead_knows_it_before_a_link_is_resolved() {
    are_right(Placement::Chip, &[20_000_081]);
}

/// Processes with a slow clock rejoined below a switch that was not counted yet or had itself just
/// started, and sent below what others had committed.
#[test]
fn a_newcomer_waits_for_who_sits_below_other_switches() {
    are_right(Placement::Chip, &[20_000_076, 30_000_209, 30_001_029, 40_000_352]);
}

/// A process that waits to be placed again keeps retransmitting what others wait for.
#[test]
fn who_is_placed_anew_goes_on_with_what_has_left() {
    are_right(Placement::Chip, &[40_000_479]);
}

/// Two incarnations of a process failed one after the other, the later one below what the earlier
/// one had committed, and the earlier one's messages were discarded, too.
#[test]
fn each_life_has_a_failure_of_its_own() {
    are_right(Placement::Chip, &[40_000_478, 60_000_150]);
}

/// A switch crashed, restarted, and was lost again before its new incarnation had promised
/// anything. Then nothing was known of what the processes behind it had committed.
#[test]
fn a_new_life_of_a_switch_is_no_excuse_for_a_low_bound() {
    are_right(Placement::Chip, &[30_000_732]);
}

/// A link was abandoned, recovered, and was considered down by the next controller.
#[test]
fn a_link_that_was_given_up_may_be_back() {
    are_right(Placement::Chip, &[70_000_992]);
}

/// A process was excluded, and the outcome of its messages was unknown.
#[test]
fn an_excluded_process_may_be_in_doubt() {
    are_right(Placement::Chip, &[30_001_596]);
}

/// The checker did not know which process was declared failed before any process was notified, nor
/// that the failure timestamp was not exact. (An overloaded host did not hear its own processes:
/// the false detection was allowed.)
#[test]
fn who_was_declared_failed_may_be_in_doubt_before_anybody_is_told() {
    are_right(Placement::Chip, &[70_000_162]);
}

/// A link with more beacons in flight than the receiver waited for went down and up forever.
#[test]
fn a_link_with_a_long_way_comes_back_for_good() {
    are_right(Placement::SwitchCpu, &[70_000_620]);
}

/// A process that sends a scattering of some megabytes does not raise its promise meanwhile; the
/// checker's bound did not allow for it.
#[test]
fn a_long_scattering_takes_its_time() {
    are_right(Placement::Chip, &[70_000_020]);
}

/// Hosts forwarded commits between their processes before they had heard from any uplink.
#[test]
fn nobody_is_told_a_commit_before_the_fabric_above_has_come_up() {
    are_right(Placement::Delegate, &[60_000_869, 80_001_421, 92_000_408]);
}

/// A restarted switch forwarded commits without some processes below its previous incarnation.
#[test]
fn a_switch_tells_no_commit_where_its_former_life_holds_some() {
    are_right(Placement::Delegate, &[80_000_812]);
    are_right(Placement::Chip, &[94_001_096]);
}

/// A recovering process was told that all outcomes were known up to the controller's time, and
/// delivered a scattering whose sender failed later, at a lower timestamp.
#[test]
fn who_recovers_delivers_what_is_decided_only() {
    are_right(Placement::Chip, &[92_000_185]);
}

/// At the end all processes scattered at once, hosts had no CPU time for beacons, and links timed
/// out although no controller keeps the reliable service consistent.
#[test]
fn a_fabric_without_controllers_is_asked_one_by_one_whether_it_is_well() {
    are_right(Placement::Chip, &[94_001_690, 98_001_341]);
}

/// The checker missed messages to a previous incarnation in the deliveries of the next one.
#[test]
fn what_was_for_a_former_life_is_not_missed_in_the_next() {
    are_right(Placement::Delegate, &[80_002_532]);
}
