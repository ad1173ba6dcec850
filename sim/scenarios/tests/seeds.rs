//! Seeds of `onepipe sim fuzz` that have found something, by what they found.

use onepipe_sim_check::Rule;
use onepipe_sim_scenarios::{Placement, Swarm};

/// Nothing is wrong with any of these seeds any more, with the switches' machines where they found
/// it.
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

/// Whatever machines and load do, a run has a bound, and reaching it is a failure.
#[test]
fn a_run_that_takes_too_many_steps_is_ended_and_said_to_have_failed() {
    let mut swarm = Swarm::draw_with(0, Placement::Chip);
    assert!(swarm.run().violations_by_rule.is_empty());
    swarm.plan.network.steps_max = 2_000;
    let report = swarm.run();
    assert_eq!(report.violations_by_rule.into_keys().collect::<Vec<_>>(), [Rule::End]);
    assert!(report.network.events < 2_000);
}

/// Who has failed refuses at once. The loop went round for ever at one instant, and its sender kept
/// a record of every round behind a scattering that was still open.
#[test]
fn a_closed_loop_to_receivers_that_have_failed_takes_its_time() {
    are_right(Placement::Chip, &[36, 139]);
}

/// A host did not ask a process for events that came up while it polled its frames; what the
/// process could deliver waited for whatever touched it next.
#[test]
fn what_comes_up_while_a_host_polls_for_frames_is_not_left_lying() {
    are_right(Placement::Chip, &[1_000_203]);
}

/// Crashes in the middle of a recovery, and frames lost and overtaken all the time.
#[test]
fn what_has_been_found_earlier_stays_right() {
    are_right(Placement::Chip, &[18, 21, 86]);
}

/// A process that had started anew was told a commit as its former life was, and took that for
/// leave to send reliable messages: with a clock that was behind they came too late.
#[test]
fn who_comes_back_is_told_no_commit_before_it_has_caught_up() {
    are_right(Placement::SwitchCpu, &[1035]);
}

/// A switch came back and died before it was confirmed; it had promised nothing, and that stood for
/// its former life, too. So the processes behind it had failed before what they had committed.
#[test]
fn lives_of_one_neighbour_are_told_apart() {
    are_right(Placement::Chip, &[1_001_262, 1_001_288]);
}

/// A host's switch was declared dead and never knew; one below which only the dead were had the
/// same fate. It waited for an echo, and its processes with it.
#[test]
fn a_switch_that_was_declared_dead_comes_back() {
    are_right(Placement::Chip, &[20_000_339, 20_000_427]);
}

/// A process died before the controllers knew of that life, and those who had its acknowledgements
/// waited for ever; one sent reliably before it was welcome.
#[test]
fn nothing_reliable_happens_before_a_welcome() {
    are_right(Placement::Chip, &[136, 20_000_133, 20_000_182, 20_000_540]);
}

/// Flat recovery told only those who took part, not those who had been declared dead, lived, and
/// came back with what they had been sent.
#[test]
fn who_was_declared_dead_knows_it_before_a_link_is_resolved() {
    are_right(Placement::Chip, &[20_000_081]);
}

/// Processes with a slow clock came back below a switch that nobody counted yet, or that was new
/// itself, and sent behind what others had committed.
#[test]
fn a_newcomer_waits_for_who_sits_below_other_switches() {
    are_right(Placement::Chip, &[20_000_076, 30_000_209, 30_001_029, 40_000_352]);
}

/// A process that waits to be placed anew sends again what others wait for.
#[test]
fn who_is_placed_anew_goes_on_with_what_has_left() {
    are_right(Placement::Chip, &[40_000_479]);
}

/// Two lives of a process failed one after the other, the later one below what the former had
/// committed, and that was thrown away, too.
#[test]
fn each_life_has_a_failure_of_its_own() {
    are_right(Placement::Chip, &[40_000_478, 60_000_150]);
}

/// A switch died, came back, and was lost again before its new life had promised anything: nothing
/// was known any more of what those behind it had committed.
#[test]
fn a_new_life_of_a_switch_is_no_excuse_for_a_low_bound() {
    are_right(Placement::Chip, &[30_000_732]);
}

/// A link was given up, came back, and was taken for down by the next controller.
#[test]
fn a_link_that_was_given_up_may_be_back() {
    are_right(Placement::Chip, &[70_000_992]);
}

/// A process was excluded, and of what it had sent the fate was not known.
#[test]
fn an_excluded_process_may_be_in_doubt() {
    are_right(Placement::Chip, &[30_001_596]);
}

/// The checker did not know who was declared failed before anybody was told, nor that it could not
/// be known when. (A host had no time to hear its own processes: the alarm was false, and lawful.)
#[test]
fn who_was_declared_failed_may_be_in_doubt_before_anybody_is_told() {
    are_right(Placement::Chip, &[70_000_162]);
}

/// A link on which more beacons were under way than were waited for went down and up for ever.
#[test]
fn a_link_with_a_long_way_comes_back_for_good() {
    are_right(Placement::SwitchCpu, &[70_000_620]);
}

/// A process that sends a scattering of some megabytes promises no more meanwhile; the bound of the
/// checker had no time for it.
#[test]
fn a_long_scattering_takes_its_time() {
    are_right(Placement::Chip, &[70_000_020]);
}

/// Hosts told their processes commits of each other before they had heard any switch above.
#[test]
fn nobody_is_told_a_commit_before_the_fabric_above_has_come_up() {
    are_right(Placement::Delegate, &[60_000_869, 80_001_421, 92_000_408]);
}

/// A switch had come back, and told commits without some who had been below its former life.
#[test]
fn a_switch_tells_no_commit_where_its_former_life_holds_some() {
    are_right(Placement::Delegate, &[80_000_812]);
    are_right(Placement::Chip, &[94_001_096]);
}

/// A process that came back was told that the fate of all was known up to the controller's time,
/// and delivered what a scattering had brought it whose sender failed later, and below.
#[test]
fn who_recovers_delivers_what_is_decided_only() {
    are_right(Placement::Chip, &[92_000_185]);
}

/// In the end everybody scattered to everybody at once, hosts had no time for beacons, and links
/// were taken for dead where no controller holds what is reliable together.
#[test]
fn a_fabric_without_controllers_is_asked_one_by_one_whether_it_is_well() {
    are_right(Placement::Chip, &[94_001_690, 98_001_341]);
}

/// The checker missed what was sent to a life that had ended in what the next one delivered.
#[test]
fn what_was_for_a_former_life_is_not_missed_in_the_next() {
    are_right(Placement::Delegate, &[80_002_532]);
}
