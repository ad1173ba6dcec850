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
