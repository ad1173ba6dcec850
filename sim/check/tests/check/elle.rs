//! The order checker against an independent one: `adya`, an implementation of Elle for databases.
//!
//! Each scattering is a transaction that appends to one list per receiver, each receiver's log a
//! read of its list. The logs agree on one order iff no cycle of writes (G0) is found.

use std::fmt::Write;

use adya::{History, Opts, Valid, Workload};
use onepipe_base::{ProcessId, Timestamp};
use onepipe_sim_check::{Checker, Delivered, Submitted, Tag, digest};
use onepipe_wire::Service;
use proptest::prelude::*;

const RECEIVERS: usize = 3;

/// The receivers of each scattering, and the deliveries of each receiver in order. Scattering n has
/// the timestamp n; all come from one process.
#[derive(Clone, Debug)]
struct Logs {
    to: Vec<Vec<usize>>,
    logs: [Vec<usize>; RECEIVERS],
}

fn accepted_by_ours(history: &Logs) -> bool {
    let sender = ProcessId(RECEIVERS as u32);
    let service = Service::Reliable;
    let mut checker = Checker::new(RECEIVERS as u32 + 1, false);
    let tag = |number: usize| Tag { incarnation: 0, scattering: number as u64 };
    for (number, to) in history.to.iter().enumerate() {
        let messages: Vec<_> = to.iter().map(|to| (ProcessId(*to as u32), digest(&[]))).collect();
        let submitted =
            Submitted { service, tag: tag(number), messages: &messages, submitted_at: 0 };
        checker.submitted(sender, submitted);
    }
    for (receiver, log) in history.logs.iter().enumerate() {
        for &number in log {
            let index = history.to[number].iter().position(|to| *to == receiver);
            let index = index.expect("the receiver is a destination of the scattering") as u16;
            let stamp = Timestamp::from_ns((1 << 50) + number as u64);
            let (tag, digest) = (Some(tag(number)), digest(&[]));
            let delivered = Delivered { service, stamp, from: sender, index, tag, digest };
            checker.delivered(ProcessId(receiver as u32), delivered);
        }
    }
    checker.finish();
    checker.violations().count() == 0
}

fn accepted_by_adya(history: &Logs) -> bool {
    let mut text = String::new();
    let mut add = |process: usize, messages: Vec<String>, result: Option<Vec<String>>| {
        let result = result.as_ref().unwrap_or(&messages);
        for (kind, messages) in [("invoke", &messages), ("ok", result)] {
            let value = messages.join(",");
            writeln!(text, r#"{{"type":"{kind}","process":{process},"value":[{value}]}}"#)
                .expect("memory");
        }
    };
    for (number, to) in history.to.iter().enumerate() {
        let append = |to: &usize| format!(r#"["append","r{to}",{number}]"#);
        add(number, to.iter().map(append).collect(), None);
    }
    for (receiver, log) in history.logs.iter().enumerate() {
        let asked = vec![format!(r#"["r","r{receiver}",null]"#)];
        let answered = vec![format!(r#"["r","r{receiver}",{log:?}]"#)];
        add(history.to.len() + receiver, asked, Some(answered));
    }
    let history = History::from_json(&text).expect("well-formed");
    let opts = Opts { models: vec!["read-uncommitted".into()], ..Opts::default() };
    adya::check(&history, Workload::ListAppend, &opts).valid == Valid::True
}

/// Returns correct logs of scatterings to these receivers.
fn right(to: Vec<Vec<usize>>) -> Logs {
    let log = |receiver| {
        let numbers = 0..to.len();
        numbers.filter(|number| to[*number].contains(&receiver)).collect()
    };
    let logs = [log(0), log(1), log(2)];
    Logs { to, logs }
}

//= spec/ordering.md#R20
#[test]
fn both_checkers_reject_the_same_logs() {
    let pair = || right(vec![vec![0, 1], vec![0, 1]]);
    let mut opposite = pair();
    opposite.logs[1].swap(0, 1);
    let mut ring = right(vec![vec![0, 1], vec![1, 2], vec![2, 0]]);
    ring.logs[0].swap(0, 1);
    for (name, history, is_right) in
        [("right", pair(), true), ("opposite", opposite, false), ("ring of three", ring, false)]
    {
        assert_eq!(accepted_by_ours(&history), is_right, "{name}, ours");
        assert_eq!(accepted_by_adya(&history), is_right, "{name}, adya");
    }
}

fn any_logs() -> impl Strategy<Value = (Logs, Vec<(usize, usize)>)> {
    let to = prop::sample::subsequence(vec![0, 1, 2], 1..=3);
    let swaps = prop::collection::vec((0..RECEIVERS, 0usize..30), 0..3);
    (prop::collection::vec(to, 2..30).prop_map(right), swaps)
}

proptest! {
    #[test]
    fn rejects_whatever_adya_rejects((mut history, swaps) in any_logs()) {
        prop_assert!(accepted_by_ours(&history) && accepted_by_adya(&history));
        let before = history.logs.clone();
        for (receiver, at) in swaps {
            let log = &mut history.logs[receiver];
            if log.len() > 1 {
                let at = at % (log.len() - 1);
                log.swap(at, at + 1);
            }
        }
        // Our checker knows the timestamps and rejects every log that is not ascending; adya
        // rejects only logs that contradict each other.
        prop_assert_eq!(accepted_by_ours(&history), history.logs == before);
        prop_assert!(accepted_by_adya(&history) || !accepted_by_ours(&history));
    }
}
