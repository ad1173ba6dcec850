//! Regression tests: seeds of `onepipe sim fuzz` that found a bug, by what they found.

use onepipe_sim_check::Rule;
use onepipe_sim_scenarios::{Placement, Report, Swarm};

/// Runs a seed, which may violate no invariant any more.
fn is_right(seed: u64) -> Report {
    let report = Swarm::draw_base(seed).run();
    assert_eq!(report.first_violations, Vec::<String>::new());
    report
}

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
fn step_limit_ends_a_run_as_failed() {
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
fn closed_loop_to_failed_receivers_backs_off() {
    are_right(Placement::Chip, &[36, 139]);
}

/// A host did not poll a process for events that were raised while it polled frames; what the
/// process could deliver waited for the next input of any kind.
#[test]
fn events_raised_during_transmit_are_polled() {
    are_right(Placement::Chip, &[1_000_203]);
}

/// Crashes during a recovery, with frames lost and reordered all the time.
#[test]
fn earlier_findings_stay_fixed() {
    are_right(Placement::Chip, &[18, 21, 86]);
}

/// A restarted process received a commit meant for its previous incarnation and took that for
/// permission to send reliable messages: with a slow clock they arrived too late.
#[test]
fn rejoining_process_gets_no_commit_before_catching_up() {
    are_right(Placement::SwitchCpu, &[1035]);
}

/// A switch restarted and crashed before it was confirmed. It had promised nothing, and that was
/// taken for its previous incarnation, too. So the processes behind it failed below what they had
/// committed.
#[test]
fn distinguishes_incarnations_of_a_neighbour() {
    are_right(Placement::Chip, &[1_001_262, 1_001_288]);
}

/// A host's switch was declared failed and was never notified; so was a switch with only failed
/// processes below it. It waited for a flood acknowledgement, and its processes with it.
#[test]
fn falsely_failed_switch_rejoins() {
    are_right(Placement::Chip, &[20_000_339, 20_000_427]);
}

//= spec/failure.md#R6
/// A process crashed before the controllers knew of its incarnation, and processes with its
/// acknowledgements waited forever; another one sent reliable messages before its announcement was
/// acknowledged.
#[test]
fn no_reliable_traffic_before_announce_ack() {
    are_right(Placement::Chip, &[136, 20_000_133, 20_000_182, 20_000_540]);
}

//= spec/failure.md#R28
/// Flat recovery notified only participants. Processes that had been declared failed but were alive
/// came back with what they had received.
#[test]
fn failed_process_is_notified_before_link_resume() {
    are_right(Placement::Chip, &[20_000_081]);
}

/// Processes with a slow clock rejoined below a switch that was not counted yet or had itself just
/// started, and sent below what others had committed.
#[test]
fn joiner_waits_for_processes_below_other_switches() {
    are_right(Placement::Chip, &[20_000_076, 30_000_209, 30_001_029, 40_000_352]);
}

/// A process that waits to be placed again keeps retransmitting what others wait for.
#[test]
fn rejoining_process_keeps_retransmitting() {
    are_right(Placement::Chip, &[40_000_479]);
}

/// Two incarnations of a process failed one after the other, the later one below what the earlier
/// one had committed, and the earlier one's messages were discarded, too.
#[test]
fn each_incarnation_has_its_own_failure() {
    are_right(Placement::Chip, &[40_000_478, 60_000_150]);
}

/// A switch crashed, restarted, and was lost again before its new incarnation had promised
/// anything. Then nothing was known of what the processes behind it had committed.
#[test]
fn switch_restart_does_not_lower_the_bound() {
    are_right(Placement::Chip, &[30_000_732]);
}

/// A link was abandoned, recovered, and was considered down by the next controller.
#[test]
fn abandoned_link_may_recover() {
    are_right(Placement::Chip, &[70_000_992]);
}

/// A process was excluded, and the outcome of its messages was unknown.
#[test]
fn excluded_process_may_report_unknown() {
    are_right(Placement::Chip, &[30_001_596]);
}

/// The checker did not know which process was declared failed before any process was notified, nor
/// that the failure timestamp was not exact. (An overloaded host missed the beacons of its own
/// processes: the false detection was allowed.)
#[test]
fn unknown_is_allowed_once_failure_is_decided() {
    are_right(Placement::Chip, &[70_000_162]);
}

/// A link with more beacons in flight than the receiver waited for went down and up forever.
#[test]
fn long_delay_link_stays_up_after_recovery() {
    are_right(Placement::SwitchCpu, &[70_000_620]);
}

/// A process that sends a scattering of some megabytes does not raise its promise meanwhile; the
/// checker's bound did not allow for it.
#[test]
fn long_scattering_delays_promises() {
    are_right(Placement::Chip, &[70_000_020]);
}

/// Hosts forwarded commits between their processes before they had received from any uplink.
#[test]
fn no_commit_before_uplinks_are_up() {
    are_right(Placement::Delegate, &[60_000_869, 80_001_421, 92_000_408]);
}

//= spec/failure.md#R47
/// A process restarted in a part of the fabric that was cut off. When the parts met, its leaf sent
/// no commit, but its host repeated the last one: its first messages lay below what others had
/// committed.
#[test]
fn host_repeats_no_commit_while_its_leaf_sends_none() {
    is_right(910_334);
}

/// A restarted switch forwarded commits without some processes below its previous incarnation.
#[test]
fn restarted_switch_withholds_commits() {
    are_right(Placement::Delegate, &[80_000_812]);
    are_right(Placement::Chip, &[94_001_096]);
}

//= spec/failure.md#R44
/// A recovering process was notified that all outcomes were known up to the controller's time, and
/// delivered a scattering whose sender failed later, at a lower timestamp.
#[test]
fn recovering_process_delivers_only_decided() {
    are_right(Placement::Chip, &[92_000_185]);
}

/// At the end all processes scattered at once, hosts had no CPU time for beacons, and links timed
/// out although no controller keeps the reliable service consistent.
#[test]
fn final_round_is_paced_without_controllers() {
    are_right(Placement::Chip, &[94_001_690, 98_001_341]);
}

/// The checker missed messages to a previous incarnation in the deliveries of the next one.
#[test]
fn messages_to_previous_incarnation_are_not_gaps() {
    are_right(Placement::Delegate, &[80_002_532]);
}

//= spec/failure.md#R41
/// Two leaves had no spine in common while links came back, and the controller released at once
/// what each of them held for the other: a scattering was delivered, and recalled.
#[test]
fn commits_are_held_while_links_come_back() {
    let report = is_right(911_621);
    assert_eq!(report.control_plane.partitions, 0);
}

//= spec/ordering.md#R45
/// Both ends of a link had lost it, and sent one beacon a heartbeat: too few for them to agree that
/// it is up again. Frequent Hello frames of a controller had kept all beacons frequent before.
#[test]
fn lost_link_between_switches_at_rest_returns() {
    is_right(910_816);
}

//= spec/failure.md#R65
/// The last round was submitted while a switch was still paused, in a fabric without controllers.
/// The others had lost their links to that switch, promised alone, and rejected what came from
/// slower clocks.
#[test]
fn final_round_waits_for_lost_links() {
    is_right(1_311_575);
}

//= spec/failure.md#R61
/// A controller with an older store acknowledged recalls before their sender had announced which
/// failures it knows. The latest store came back without them, and a receiver that had failed
/// delivered what its sender had reported as lost.
#[test]
fn no_recall_is_recorded_in_an_outdated_store() {
    is_right(1_700_365);
}

//= spec/failure.md#R61
/// A controller with an older store decided while a switch that was connected had not announced
/// the only process that knew more.
#[test]
fn switch_may_hide_processes_that_know_more() {
    is_right(1_700_264);
}

//= spec/failure.md#R43
/// A process had never sent to another one that failed, so its first reliable scattering to the
/// next incarnation waited for a tenth of the time only.
#[test]
fn first_use_of_a_failed_process_waits_for_its_return() {
    is_right(1_700_461);
}

//= spec/failure.md#R25
/// A failure was notified while a host was cut off. Its link had died before the notice and came
/// back after it, and was resumed as if the notice had reached the processes of that host.
#[test]
fn notice_reaches_processes_that_were_cut_off() {
    is_right(3_001_984);
}

//= spec/failure.md#R67
/// The switch that joined the controller's part of a fabric to one plane was stopped. All pings,
/// pongs and announcements took that plane, and the processes of the other parts were declared
/// failed.
#[test]
fn processes_are_reached_over_the_other_plane() {
    is_right(5_000_240);
}

//= spec/failure.md#R32
/// Processes that had been declared failed were notified while each sent a long message. They
/// acknowledged the notice at once, but stopped only after the message. Meanwhile links were
/// resumed, and the processes delivered messages that had been recalled and reported as lost.
#[test]
fn excluded_process_stops_before_it_acknowledges() {
    let report = Swarm::draw_base(7_000_498).run();
    assert_eq!(report.first_violations, Vec::<String>::new());
}

//= spec/ordering.md#R56
/// A process that had left was started again before it was inspected. The checker took it for one
/// that had run all the time, and a message to its previous incarnation for one with an outcome.
#[test]
fn leaver_that_returns_at_once_has_left() {
    let report = Swarm::draw_unbundled(100_004_768).run();
    assert_eq!(report.first_violations, Vec::<String>::new());
}

//= spec/ordering.md#R88
/// A process restarted in a fabric without controllers and waited for packets to its previous
/// incarnation, which their sender had given up.
#[test]
fn restarted_receiver_does_not_wait_for_given_up_packets() {
    let report = Swarm::draw_unbundled(100_005_297).run();
    assert_eq!(report.first_violations, Vec::<String>::new());
}

//= spec/failure.md#R64
/// A slow process stopped for eight tenths of the wait of its three controllers, and announced
/// itself every three tenths: nothing of it was received for eleven.
#[test]
fn slow_process_pauses_for_less_than_controllers_wait() {
    let swarm = Swarm::draw_unbundled(100_000_136);
    assert!(swarm.fault_names().any(|name| name == "process stopped"));
    assert_eq!(swarm.run().first_violations, Vec::<String>::new());
}

/// A host was paused, with clocks behind those of others by more than the link timeout, and its
/// processes were declared failed. A read was assumed to begin while they did not run, before they
/// handled frames with a commit barrier above its time.
#[test]
fn no_read_begins_at_a_paused_host() {
    let report = Swarm::draw_unbundled(100_005_651).run();
    assert_eq!(report.first_violations, Vec::<String>::new());
}

//= spec/ordering.md#R89
/// A leaving process rejected a packet and was started again. A copy of the packet, still on
/// its way, came after the next Connect, which named an older one, and was delivered.
#[test]
fn restarted_receiver_accepts_nothing_sent_before() {
    let report = Swarm::draw_unbundled(100_011_536).run();
    assert_eq!(report.first_violations, Vec::<String>::new());
}
