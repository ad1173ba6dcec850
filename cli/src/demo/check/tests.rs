//! The checker accepts correct logs and rejects wrong ones.

use super::super::log::{Entry, Log, fingerprint};
use super::*;

const WINDOW_NS: u64 = 1_000_000;

/// Timestamp in ns, sender, number of the scattering.
type Line = (u64, u32, u64);

/// A history of three processes: 5 windows, 30 scatterings, each to all.
fn history() -> Vec<Line> {
    let of = |number: u64| (7_000_000 + number * 160_000, (number % 3) as u32, number / 3);
    (0..30).map(of).collect()
}

fn log_of(lines: &[Line]) -> Log {
    let mut log = Log::new(WINDOW_NS, 3);
    for &(timestamp_ns, from, sequence) in lines {
        log.on_delivered(Entry { timestamp_ns, from, index: 0, sequence, seen_ns: 0 });
    }
    log
}

fn add(checker: &mut Checker, process: usize, log: &mut Log) {
    let (windows, failures) = log.take();
    checker.add(process, windows, failures, log.closed_below());
}

/// Returns the verdict on three processes with these streams and all windows closed.
fn verdict_on(mut logs: [Log; 3]) -> Verdict {
    let mut checker = Checker::new(WINDOW_NS, 3);
    for (process, log) in logs.iter_mut().enumerate() {
        log.on_barrier(100 * WINDOW_NS);
        add(&mut checker, process, log);
    }
    checker.finish()
}

#[test]
fn equal_logs_pass() {
    let verdict = verdict_on([(); 3].map(|()| log_of(&history())));
    assert_eq!((verdict.violations, verdict.first.len()), (0, 0));
    assert_eq!((verdict.windows, verdict.windows_full, verdict.messages), (5, 5, 90));
}

#[test]
fn detects_swapped_messages() {
    let mut wrong = history();
    wrong.swap(3, 4);
    let logs = [log_of(&history()), log_of(&history()), log_of(&wrong)];
    assert_eq!(logs[2].faults.order, 1, "the process itself notices");
    let verdict = verdict_on(logs);
    assert_eq!(verdict.first, [Violation::Order { window: 7, one: 0, other: 2 }]);
}

/// The faulty process finds its own stream ascending, so only the comparison can detect it.
#[test]
fn detects_swapped_timestamps_by_comparison() {
    let mut wrong = history();
    let (one, other) = (wrong[3].2, wrong[6].2);
    assert_eq!(wrong[3].1, wrong[6].1, "of one sender");
    (wrong[3].2, wrong[6].2) = (other, one);
    let logs = [log_of(&history()), log_of(&wrong), log_of(&history())];
    assert_eq!(logs[1].faults.count(), 0);
    let verdict = verdict_on(logs);
    let found = |window| Violation::Mismatch { window, from: 0, at: 1 };
    assert_eq!(verdict.first[0], found(7));
    assert!(verdict.violations >= 1);
}

#[test]
fn accepts_loss_only_if_reported_to_sender() {
    let mut less = history();
    let (timestamp_ns, from, sequence) = less.remove(10);
    let unreported = verdict_on([log_of(&history()), log_of(&history()), log_of(&less)]);
    let window = timestamp_ns / WINDOW_NS;
    let expected = Violation::Unreported { window, from, at: 2, messages: 1 };
    assert_eq!(unreported.first, [expected]);

    let verdict_with_report = |is_lost| {
        let mut logs = [log_of(&history()), log_of(&history()), log_of(&less)];
        logs[from as usize].on_failed(from, 2, timestamp_ns, sequence, is_lost);
        verdict_on(logs)
    };
    let reported_lost = verdict_with_report(true);
    assert_eq!(
        (reported_lost.violations, reported_lost.lost, reported_lost.windows_full),
        (0, 1, 4)
    );
    let unsure = verdict_with_report(false);
    assert_eq!((unsure.violations, unsure.lost, unsure.unknown), (0, 0, 1));
}

#[test]
fn reported_loss_does_not_cover_another_message() {
    let mut less = history();
    less.remove(10);
    let (timestamp_ns, from, sequence) = history()[13];
    assert_eq!(from, history()[10].1);
    let mut logs = [log_of(&history()), log_of(&history()), log_of(&less)];
    logs[from as usize].on_failed(from, 2, timestamp_ns, sequence, true);
    assert!(verdict_on(logs).violations > 0, "the sums differ");
}

#[test]
fn rejects_message_delivered_and_reported_lost() {
    let (timestamp_ns, from, sequence) = history()[10];
    let mut logs = [(); 3].map(|()| log_of(&history()));
    logs[from as usize].on_failed(from, 2, timestamp_ns, sequence, true);
    let window = timestamp_ns / WINDOW_NS;
    let expected = Violation::Excess { window, from, at: 2, messages: 1 };
    assert_eq!(verdict_on(logs).first, [expected]);
}

#[test]
fn rejects_message_never_sent() {
    let mut more = history();
    more.insert(4, (more[3].0 + 1, 0, 999));
    let verdict = verdict_on([log_of(&history()), log_of(&history()), log_of(&more)]);
    let expected = Violation::Excess { window: 7, from: 0, at: 2, messages: 1 };
    assert_eq!(verdict.first, [expected]);
}

#[test]
fn rejects_live_process_with_open_window() {
    let mut checker = Checker::new(WINDOW_NS, 3);
    for process in 0..3 {
        let lines = history();
        let mut log = log_of(if process == 2 { &lines[..20] } else { &lines });
        add(&mut checker, process, &mut log);
    }
    let verdict = checker.finish();
    assert!(verdict.first.contains(&Violation::Unfinished { window: 10, at: 2 }));
}

#[test]
fn counts_losses_of_killed_sender_separately() {
    let killed_ns = history()[20].0;
    let run = |died_ns: Option<u64>, missing: usize| {
        let mut checker = Checker::new(WINDOW_NS, 3);
        let mut less = history();
        less.remove(missing);
        for process in 0..3 {
            let all = history();
            let lines = [&all[..], &less, &all[..20]][process];
            let mut log = log_of(lines);
            if process < 2 {
                log.on_barrier(100 * WINDOW_NS);
            }
            add(&mut checker, process, &mut log);
        }
        if let Some(died_ns) = died_ns {
            checker.on_killed(2, died_ns);
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
    let (timestamp_ns, from, sequence) = history()[3];
    let mut less = history();
    less.remove(3);
    let mut logs = [log_of(&history()), log_of(&history()), log_of(&less)];
    let mut checker = Checker::new(WINDOW_NS, 3);
    for (process, log) in logs.iter_mut().enumerate() {
        add(&mut checker, process, log);
    }
    let so_far = checker.advance();
    assert_eq!((so_far.windows, so_far.violations), (3, 0), "the window with a loss waits");
    logs[from as usize].on_failed(from, 2, timestamp_ns, sequence, true);
    for (process, log) in logs.iter_mut().enumerate() {
        log.on_barrier(100 * WINDOW_NS);
        add(&mut checker, process, log);
    }
    let verdict = checker.finish();
    assert_eq!((verdict.windows, verdict.violations, verdict.lost), (5, 0, 1));
    assert_eq!(verdict.messages, 89);
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
