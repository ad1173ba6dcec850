//! The checker accepts correct logs and rejects wrong ones.

use super::*;
use crate::Fault;
use crate::log::{Entry, Log, fingerprint};

const WINDOW_NS: u64 = 1_000_000;

/// Timestamp in ns, sender, number of the scattering.
type Line = (u64, u32, u64);

/// A history of three processes: 5 windows, 30 scatterings, each to all.
fn history() -> Vec<Line> {
    let of = |number: u64| (7_000_000 + number * 160_000, (number % 3) as u32, number / 3);
    (0..30).map(of).collect()
}

fn log_of(process: u32, lines: &[Line]) -> Log {
    let mut log = Log::new(process, 3, WINDOW_NS, 0);
    for &(timestamp_ns, from, sequence) in lines {
        if from == process {
            log.on_submitted();
        }
        log.on_delivered(0, Entry { timestamp_ns, from, index: 0, sequence, seen_ns: 0 });
    }
    log
}

/// Returns the logs of three processes, of which process `at` has delivered `lines`.
fn logs_with(at: usize, lines: &[Line]) -> [Log; 3] {
    let lines_of = |process| if process == at { lines.to_vec() } else { history() };
    [0, 1, 2].map(|process| log_of(process as u32, &lines_of(process)))
}

/// Returns the verdict on three processes with these streams and all windows closed.
fn verdict_of(is_reliable: bool, mut logs: [Log; 3]) -> Verdict {
    let mut checker = Checker::new(is_reliable, WINDOW_NS, 3);
    for (process, log) in logs.iter_mut().enumerate() {
        checker.add(process, log.take(Some(100 * WINDOW_NS)), 0);
    }
    checker.finish()
}

fn verdict_on(logs: [Log; 3]) -> Verdict {
    verdict_of(false, logs)
}

#[track_caller]
fn assert_violated(verdict: &Verdict, text: &str) {
    assert!(verdict.violations > 0);
    assert!(verdict.texts[0].contains(text), "{:?}", verdict.texts);
}

#[test]
fn equal_logs_pass() {
    for is_reliable in [false, true] {
        let verdict = verdict_of(is_reliable, logs_with(0, &history()));
        assert_eq!((verdict.violations, verdict.texts.len()), (0, 0));
        assert_eq!((verdict.windows, verdict.windows_full, verdict.messages), (5, 5, 90));
    }
}

#[test]
fn detects_swapped_messages() {
    let mut wrong = history();
    wrong.swap(3, 4);
    let logs = logs_with(2, &wrong);
    assert_eq!(logs[2].clone().take(None).faults.order, 1, "the process itself notices");
    for is_reliable in [false, true] {
        let verdict = verdict_of(is_reliable, logs.clone());
        let expected = "processes 0 and 2 delivered the same messages in different orders";
        assert_violated(&verdict, expected);
        assert_eq!(verdict.texts[1], "1 deliveries were not above the one before them");
    }
}

/// The faulty process finds its own stream ascending, so only the comparison can detect it.
#[test]
fn detects_swapped_timestamps_by_comparison() {
    let mut wrong = history();
    let (one, other) = (wrong[3].2, wrong[6].2);
    assert_eq!(wrong[3].1, wrong[6].1, "of one sender");
    (wrong[3].2, wrong[6].2) = (other, one);
    let logs = logs_with(1, &wrong);
    assert_eq!(logs[1].clone().take(None).faults, StreamFaults::default());
    assert_violated(&verdict_on(logs), "process 1 delivered other messages of process 0");
}

#[test]
fn accepts_loss_only_if_reported_to_sender() {
    let mut less = history();
    let (timestamp_ns, from, sequence) = less.remove(10);
    let unreported = verdict_on(logs_with(2, &less));
    assert_eq!(unreported.violations, 1);
    assert_violated(&unreported, "process 2 lacks 1 messages of process 1 without a loss report");
    for is_lost in [true, false] {
        let mut logs = logs_with(2, &less);
        logs[from as usize].on_failed(2, Some(timestamp_ns), sequence, is_lost);
        let verdict = verdict_on(logs);
        assert_eq!((verdict.violations, verdict.windows_full), (0, 4));
    }
}

#[test]
fn reliable_stream_may_not_lack_a_message() {
    let mut less = history();
    let (timestamp_ns, from, sequence) = less.remove(10);
    let mut logs = logs_with(2, &less);
    logs[from as usize].on_failed(2, Some(timestamp_ns), sequence, true);
    let verdict = verdict_of(true, logs);
    assert_violated(&verdict, "processes 0 and 2 delivered different reliable messages");
    // Nothing of a window.
    less.retain(|line| line.0 / WINDOW_NS != 8);
    assert_violated(
        &verdict_of(true, logs_with(1, &less)),
        "processes 0 and 1 delivered different",
    );
}

#[test]
fn closed_windows_of_killed_process_are_compared() {
    let mut wrong = history();
    wrong.remove(3);
    for (lines, violations) in [(history(), 0), (wrong, 1)] {
        let mut checker = Checker::new(true, WINDOW_NS, 3);
        for process in 0..2 {
            let mut log = log_of(process, &history());
            checker.add(process as usize, log.take(Some(100 * WINDOW_NS)), 0);
        }
        checker.add(2, log_of(2, &lines[..20]).take(None), 0);
        checker.on_killed(2, history()[20].0, 0);
        assert_eq!(checker.finish().violations, violations);
    }
}

#[test]
fn unsent_message_is_reported_as_lost() {
    let mut less = history();
    let (_, from, sequence) = less.remove(10);
    let mut logs = logs_with(2, &less);
    // The failure comes before the scattering's own message, whose timestamp the report needs.
    logs[from as usize] = Log::new(from, 3, WINDOW_NS, 0);
    logs[from as usize].on_failed(2, None, sequence, true);
    for (timestamp_ns, from, sequence) in history() {
        let entry = Entry { timestamp_ns, from, index: 0, sequence, seen_ns: 0 };
        logs[1].on_delivered(0, entry);
    }
    assert_eq!(verdict_on(logs).violations, 0);
}

#[test]
fn reported_loss_does_not_cover_another_message() {
    let mut less = history();
    less.remove(10);
    let (timestamp_ns, from, sequence) = history()[13];
    assert_eq!(from, history()[10].1);
    let mut logs = logs_with(2, &less);
    logs[from as usize].on_failed(2, Some(timestamp_ns), sequence, true);
    assert!(verdict_on(logs).violations > 0, "the sums differ");
}

#[test]
fn rejects_message_delivered_and_reported_lost() {
    let (timestamp_ns, from, sequence) = history()[10];
    let mut logs = logs_with(0, &history());
    logs[from as usize].on_failed(2, Some(timestamp_ns), sequence, true);
    let verdict = verdict_on(logs);
    assert_eq!(verdict.violations, 1);
    assert_violated(&verdict, "1 messages of process 1 to process 2 were delivered though");
}

#[test]
fn rejects_message_never_sent() {
    let mut more = history();
    more.insert(4, (more[3].0 + 1, 0, 999));
    let verdict = verdict_on(logs_with(2, &more));
    assert_violated(&verdict, "1 messages of process 0 to process 2 were delivered though");
}

#[test]
fn rejects_live_process_with_open_window() {
    let mut checker = Checker::new(false, WINDOW_NS, 3);
    for process in 0..3 {
        let lines = history();
        let lines = if process == 2 { &lines[..20] } else { &lines };
        checker.add(process as usize, log_of(process, lines).take(None), 0);
    }
    let verdict = checker.finish();
    assert!(verdict.texts.contains(&"process 2 did not complete window 10".to_string()));
}

#[test]
fn counts_losses_of_killed_sender_separately() {
    let killed_ns = history()[20].0;
    let run = |died_ns: Option<u64>, missing: usize| {
        let mut checker = Checker::new(false, WINDOW_NS, 3);
        let mut less = history();
        less.remove(missing);
        for process in 0..3 {
            let all = history();
            let lines = [&all[..], &less, &all[..20]][process];
            let barrier_ns = (process < 2).then_some(100 * WINDOW_NS);
            checker.add(process, log_of(process as u32, lines).take(barrier_ns), 0);
        }
        if let Some(died_ns) = died_ns {
            checker.on_killed(2, died_ns, 0);
        }
        checker.finish()
    };
    // The last message of process 2, which process 1 did not get.
    let last_of_2 = history().iter().rposition(|line| line.1 == 2).expect("sent a message");
    let died = run(Some(killed_ns), last_of_2);
    assert_eq!((died.violations, died.died_with_sender), (0, 1));
    assert!(run(None, last_of_2).violations > 0, "without a death it is a violation");
    // A message of process 0, which is alive.
    let last_of_0 = history().iter().rposition(|line| line.1 == 0).expect("sent a message");
    assert_eq!(run(Some(killed_ns), last_of_0).violations, 1);
    // A message of process 2 long before its end.
    let late = killed_ns + 2 * REPORT_LAG_NS;
    let early_of_2 = history().iter().position(|line| line.1 == 2).expect("sent a message");
    assert_eq!(run(Some(late), early_of_2).violations, 1);
}

#[test]
fn incremental_comparison_gives_same_verdict() {
    let mut less = history();
    let (timestamp_ns, from, sequence) = less.remove(3);
    let mut logs = logs_with(2, &less);
    let mut checker = Checker::new(false, WINDOW_NS, 3);
    for (process, log) in logs.iter_mut().enumerate() {
        checker.add(process, log.take(None), 0);
    }
    checker.advance();
    let so_far = checker.verdict();
    assert_eq!((so_far.windows, so_far.violations), (3, 0), "the window with a loss waits");
    logs[from as usize].on_failed(2, Some(timestamp_ns), sequence, true);
    for (process, log) in logs.iter_mut().enumerate() {
        checker.add(process, log.take(Some(100 * WINDOW_NS)), 0);
    }
    let verdict = checker.finish();
    assert_eq!((verdict.windows, verdict.violations, verdict.messages), (5, 0, 89));
}

#[test]
fn reports_of_survivors_agree() {
    let part = |failed_ns: Option<u64>, [submitted, returned, failed]: [u64; 3]| LogPart {
        failures: failed_ns
            .map(|failed_ns| Failure { process: 2, failed_ns, notified_ns: 1 })
            .into_iter()
            .collect(),
        counts: Counts { submitted, returned, failed, ..Counts::default() },
        ..LogPart::default()
    };
    let check = |other: LogPart| {
        let mut checker = Checker::new(true, WINDOW_NS, 2);
        checker.add(0, part(Some(9), [3, 2, 1]), 0);
        checker.add(1, other, 0);
        checker.finish().texts
    };
    assert_eq!(check(part(Some(9), [3, 2, 1])), [""; 0]);
    for failed_ns in [Some(8), None] {
        let texts = check(part(failed_ns, [3, 2, 1]));
        assert!(texts[0].starts_with("processes 0 and 1 received different failures"));
    }
    let expected =
        "process 1 submitted 4 reliable scatterings, but 2 were delivered and 1 recalled";
    assert_eq!(check(part(Some(9), [4, 2, 1])), [expected]);
}

#[test]
fn attributes_pauses_to_kill_at_survivors() {
    const MS: u64 = 1_000_000;
    let part = |pauses| LogPart { pauses: [pauses, vec![]], ..LogPart::default() };
    for (is_killed, of_kill, other) in [(true, 4, 6), (false, 0, 9)] {
        let mut checker = Checker::new(false, WINDOW_NS, 2);
        if is_killed {
            checker.on_killed(1, 0, 100 * MS);
        }
        checker.on_stopped(200 * MS);
        checker.add(0, part(vec![(98 * MS, 4 * MS), (150 * MS, 2 * MS)]), 300 * MS);
        let length = if is_killed { 6 } else { 9 };
        checker.add(1, part(vec![(99 * MS, length * MS)]), 300 * MS);
        let longest = checker.longest_pauses();
        assert_eq!((longest.of_kill_ns[0], longest.other_ns), (of_kill * MS, other * MS));
    }
}

#[test]
fn fingerprints_of_similar_messages_differ() {
    let mut seen = std::collections::BTreeSet::new();
    for timestamp_ns in 0..20 {
        for from in 0..20 {
            for sequence in 0..20 {
                assert!(seen.insert(fingerprint(timestamp_ns, from, sequence)));
            }
        }
    }
}

/// Each fault is found, by the process or by the comparison.
#[test]
fn detects_injected_faults() {
    for (fault, text) in [
        (Fault::Order, "deliveries were not above the one before them"),
        (Fault::Swap, "process 1 delivered other messages of process 0 than it sent"),
        (Fault::Loss, "process 1 lacks 1 messages of process 0"),
    ] {
        let mut checker = Checker::new(false, WINDOW_NS, 2);
        for process in [0, 1] {
            let mut log = Log::new(process, 2, WINDOW_NS, 0);
            if process == 1 {
                log.inject(fault);
            }
            for sequence in 0..10_001 {
                let timestamp_ns = 1_000 * sequence;
                log.on_delivered(
                    0,
                    Entry { timestamp_ns, from: 0, index: 0, sequence, seen_ns: 0 },
                );
            }
            checker.add(process as usize, log.take(Some(100 * WINDOW_NS)), 0);
        }
        let verdict = checker.finish();
        assert!(verdict.texts.join("\n").contains(text), "{verdict:?}");
    }
}
