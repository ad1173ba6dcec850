//! Small evaluations from the first run to the report.

use std::sync::atomic::AtomicBool;

use onepipe_bench_figures::{
    Access, Background, Better, Calibration, Condition, ContradictedPoints, Contradiction, Counts,
    Experiment, Figure, Form, InFlight, KeyValue, Large, Measured, Multicast, Outcome, Rack,
    RackTraffic, Record, Role, Scheduler, Scheme, Setup, Stated, System, Table, Task, Threads,
    Tpcc, Traffic, Values, all, claim_results, write,
};

fn setup(system: System, processes: u32) -> Setup {
    let traffic = Traffic::Idle { every_ns: 20_000 };
    Setup { seed: 3, ..Setup::new(system, processes, traffic) }
}

fn figure(id: &str) -> Experiment {
    all().into_iter().find(|figure| figure.id == id).expect("the figure exists")
}

#[test]
fn every_system_delivers_deterministically() {
    use System::{BestEffort, HostSequencer, Lamport, Reliable, SwitchSequencer, Token, Unordered};
    let systems = [BestEffort, Reliable, Unordered, Token, Lamport, SwitchSequencer, HostSequencer];
    for system in systems {
        for processes in [2, 8, 16] {
            let setup = setup(system, processes);
            let measured = setup.run().unwrap_or_else(|error| panic!("{setup:?}: {error}"));
            assert_eq!(measured, setup.run().expect("the run succeeds again"), "{setup:?}");
            // One message of each process every 20 us.
            let rate = measured["throughput_mps"];
            assert!((0.04..0.06).contains(&rate), "{setup:?}: {rate} M/s");
        }
    }
}

#[test]
fn ordering_costs_less_than_two_beacon_intervals() {
    for processes in [8, 16, 32] {
        let latency =
            |system| setup(system, processes).run().expect("the run succeeds")["latency_mean_us"];
        let over_us = latency(System::BestEffort) - latency(System::Unordered);
        assert!((0.0..6.0).contains(&over_us), "{processes} processes: {over_us} us");
    }
}

#[test]
fn background_flows_delay_messages_by_queue_length() {
    let run = |flows, is_dctcp, oversubscription| {
        let setup = Setup { warm_up_us: 600, measure_us: 400, ..setup(System::BestEffort, 32) };
        let background = Background { oversubscription, ..Background::new(flows, is_dctcp) };
        let task = Task::Shared(setup, background);
        let measured = task.run().unwrap_or_else(|error| panic!("{background:?}: {error}"));
        assert_eq!(measured["flows_gbps"] > 0.0, flows > 0, "{measured:?}");
        measured
    };
    let latency = |measured: &Values| measured["latency_mean_us"];
    let (idle, short, long) = (run(0, false, 1), run(4, true, 1), run(4, false, 1));
    assert_eq!(idle, run(0, true, 1), "equal setups give equal values");
    assert!(latency(&idle) < latency(&short) && latency(&short) < latency(&long));
    assert!(short["flows_gbps"] > 60.0, "{short:?}");
    assert!(idle["queue_2_1_us"] < 0.1, "{idle:?}");
    assert_eq!(idle["frames_overflowed"], 0.0, "{idle:?}");
    // The mark is at 97.5 KB, which take 7.8 us. Windows of Reno flows end in the queue, which
    // loses nothing.
    assert!((4.0..16.0).contains(&short["queue_2_1_us"]), "{short:?}");
    assert!(long["queue_2_1_us"] > 10.0, "{long:?}");
    assert_eq!(long["frames_overflowed"], 0.0, "{long:?}");
    let narrow = run(4, true, 4);
    // Flows within a rack take the bandwidth that the others leave, and cross fewer links.
    assert!(narrow["hops"] < 0.8 * short["hops"], "{narrow:?}");
}

#[test]
fn delegates_add_their_detour_per_switch() {
    for (processes, switches) in [(8, 1.0), (32, 5.0)] {
        for system in [System::BestEffort, System::Reliable] {
            let latency = |form| {
                let setup = Setup { form, warm_up_us: 400, ..setup(system, processes) };
                setup.run().expect("the run succeeds")["latency_mean_us"]
            };
            let detour_us = Calibration::PAPER.detour_ns as f64 / 1_000.0;
            let over = (latency(Form::Host) - latency(Form::Chip)) / (switches * detour_us);
            assert!((0.4..1.6).contains(&over), "{system:?}, {processes} processes: {over}");
        }
    }
}

#[test]
fn beacons_take_more_of_a_slower_link() {
    let percent = |gbps| {
        let task = Task::BeaconShare { interval_ns: 10_000, gbps };
        task.run().expect("the run succeeds")["percent_of_link"]
    };
    let (slow, fast) = (percent(10), percent(100));
    assert!((0.5..2.0).contains(&slow) && (9.0..11.0).contains(&(slow / fast)), "{slow} {fast}");
}

#[test]
fn scheduled_flows_add_less_than_two_us() {
    let run = |flows: u32| {
        let setup = Setup { warm_up_us: 2_000, measure_us: 400, ..setup(System::BestEffort, 32) };
        let is_scheduled = flows > 0;
        let background = Background { is_scheduled, ..Background::new(flows, false) };
        Task::Shared(setup, background).run().expect("the run succeeds")
    };
    let (idle, beside) = (run(0), run(5));
    let more_us = beside["latency_mean_us"] - idle["latency_mean_us"];
    assert!((0.0..2.0).contains(&more_us), "{more_us} us more: {beside:?}");
    assert!(beside["flows_gbps"] > 5.0, "the flows have just started: {beside:?}");
    assert_eq!(beside["frames_overflowed"], 0.0, "{beside:?}");
}

#[test]
fn low_priority_flows_add_less_than_two_us() {
    let run = |flows: u32, is_scheduled, has_classes| {
        let setup = Setup { warm_up_us: 2_000, measure_us: 400, ..setup(System::Reliable, 32) };
        let background = Background::new(flows, false);
        let background = Background { is_scheduled, has_classes, ..background };
        Task::Shared(setup, background).run().expect("the run succeeds")
    };
    let idle = run(0, false, true)["latency_mean_us"];
    let more_us = |values: &Values| values["latency_mean_us"] - idle;
    let (scheduled, unscheduled) = (run(5, true, true), run(5, false, true));
    assert!((0.0..2.0).contains(&more_us(&scheduled)), "{scheduled:?}");
    assert!((0.0..2.0).contains(&more_us(&unscheduled)), "{unscheduled:?}");
    assert_eq!(scheduled["frames_overflowed"], 0.0, "{scheduled:?}");
    let before = run(5, false, false);
    assert!(more_us(&before) > 10.0, "without classes: {before:?}");
}

#[test]
fn arbiter_keeps_shares_equal_as_senders_change() {
    let run = |scheduler| {
        let traffic = RackTraffic::ComeAndGo { interval_ms: 10 };
        Task::Rack(Rack { scheduler, traffic, seed: 1 }).run().expect("the run succeeds")
    };
    let (tcp, arbiter) = (run(Scheduler::Tcp), run(Scheduler::Arbiter));
    // A segment in 10 ms is 1.1 Mbit/s.
    assert!(
        arbiter["deviation_mbps"] < 1.1 && tcp["deviation_mbps"] > 100.0,
        "{arbiter:?} {tcp:?}"
    );
    // The TCP of a new sender starts with few segments.
    assert!(arbiter["deviation_all_mbps"] < tcp["deviation_all_mbps"] / 4.0, "{arbiter:?} {tcp:?}");
    assert!(arbiter["line_percent"] > 95.0, "{arbiter:?}");
}

#[test]
fn rack_runs_are_deterministic_and_arbiter_is_fair() {
    let run = |scheduler, traffic| {
        let task = Task::Rack(Rack { scheduler, traffic, seed: 1 });
        task.run().unwrap_or_else(|error| panic!("{task:?}: {error}"))
    };
    let five = |scheduler| run(scheduler, RackTraffic::FiveSenders { interval_ms: 5 });
    let (tcp, arbiter) = (five(Scheduler::Tcp), five(Scheduler::Arbiter));
    assert_eq!(arbiter, five(Scheduler::Arbiter));
    let deviation = |values: &Values| values["deviation_mbps"];
    // A segment in 5 ms is 2.2 Mbit/s.
    assert!(deviation(&arbiter) < 2.2 && deviation(&tcp) > 100.0, "{tcp:?} {arbiter:?}");
    assert!(arbiter["line_percent"] > 98.0 && tcp["line_percent"] > 98.0, "{tcp:?} {arbiter:?}");
    assert!(arbiter["queue_p99_kb"] < 3.1 && tcp["queue_p50_kb"] > 1_000.0, "{tcp:?} {arbiter:?}");
    let load = run(Scheduler::Arbiter, RackTraffic::Load { permille: 500 });
    assert!((0.3..3.0).contains(&load["control_percent"]), "{load:?}");
}

#[test]
fn multicast_runs_are_deterministic_and_rank_schedules() {
    let run = |condition, scheme, members| {
        let (bytes, block_len) = (1 << 20, 1 << 16);
        let task = Task::Multicast(Multicast { condition, scheme, members, bytes, block_len });
        task.run().unwrap_or_else(|error| panic!("{task:?}: {error}"))
    };
    let calm = |scheme| run(Condition::Undisturbed, scheme, 8);
    let (pipeline, tree) = (calm(Scheme::Pipeline), calm(Scheme::Tree));
    assert_eq!(pipeline, calm(Scheme::Pipeline));
    assert!(pipeline["ms"] < tree["ms"] && tree["ms"] < calm(Scheme::Sequential)["ms"]);
    let parts = run(Condition::Breakdown, Scheme::Pipeline, 4);
    let sum = parts["part_1_us"] + parts["part_2_us"] + parts["part_3_us"];
    assert!((sum - parts["part_4_us"]).abs() < 1.0, "the parts add up to the total: {parts:?}");
    let stall = run(Condition::Stall { us: 50 }, Scheme::Pipeline, 4);
    assert!((1.0..120.0).contains(&stall["more_us"]), "{stall:?}");
    assert!(run(Condition::SlowLink, Scheme::Chain, 8)["kept_percent"] < 70.0);
    assert!(run(Condition::Sierra, Scheme::Pipeline, 4)["ms"] > 0.2, "1 MiB at 40 Gbit/s");
}

#[test]
fn bulk_is_slower_for_small_payloads_and_spares_others() {
    let run = |bytes, is_bulk, has_small_messages| {
        let large = Large {
            bytes,
            receivers: 7,
            is_bulk,
            is_reliable: true,
            has_classes: true,
            has_small_messages,
        };
        Task::Large(large).run().unwrap_or_else(|error| panic!("{large:?}: {error}"))
    };
    assert!(run(2_048, true, false)["took_us"] > run(2_048, false, false)["took_us"]);
    let beside = run(65_536, true, true);
    assert!((-1.0..2.0).contains(&beside["more_us"]), "{beside:?}");
}

#[test]
fn store_runs_are_deterministic_and_count_what_they_use() {
    let run = |threads| {
        // Enough to use the sending threads all the time.
        let in_flight = InFlight::Operations(64);
        let store = KeyValue { in_flight, threads, ..KeyValue::new(8, false) };
        Task::KeyValue(store).run().expect("eight processes fit")
    };
    let values = run(Threads::Two);
    assert_eq!(values, run(Threads::Two));
    let one = run(Threads::One);
    assert!(one["throughput_mtps"] < values["throughput_mtps"], "{one:?} {values:?}");
    // Two requests and two replies, less those of a process to itself and writes that share one.
    let messages = values["requests"] + values["replies"] + values["local"];
    assert!((3.0..4.1).contains(&messages), "{values:?}");
    let sending = |values: &Values, messages: f64| {
        values["throughput_mtps"] * 200.0 * messages / 1e3 / values["sending_mean"]
    };
    let two = sending(&values, messages + values["others"]);
    assert!((two - 1.0).abs() < 0.01, "acknowledgements cost the sending thread nothing: {two}");
    let messages = one["requests"] + one["replies"] + one["local"];
    let one_thread = sending(&one, messages + one["others"] + one["acks"]);
    assert!((one_thread - 1.0).abs() < 0.01, "{one_thread}: {one:?}");
    // Each message is received once, some by several processes.
    assert!(values["polling_mean"] > 0.8 * values["sending_mean"], "{values:?}");
    assert_eq!(one["polling_mean"], 0.0);
    // The bound leaves beacons out, which do not grow with the rate.
    let kinds = ["data", "acks", "beacons", "handshakes", "others"];
    let bytes: f64 = kinds.map(|kind| values[&format!("link_{kind}_bytes")]).iter().sum();
    let share = 1.0 - values["link_beacons_bytes"] / bytes;
    let bound = values["link_bound_mtps"] * values["link_fullest"] * share;
    assert!((bound / values["throughput_mtps"] - 1.0).abs() < 0.03, "{values:?}");
    assert!(values["read_only_us"] < values["write_only_us"], "{values:?}");
}

#[test]
fn classes_of_one_store_run_are_plotted_without_further_runs() {
    let directory = tempfile::tempdir().expect("a temporary directory can be created");
    let mut experiment = figure("14b");
    experiment.curves.retain(|curve| curve.name.starts_with("1Pipe"));
    // A quick run leaves these runs out.
    experiment.xs = experiment.xs_quick;
    let tasks: Vec<Task> = experiment.cases(false).into_iter().map(|(_, _, task)| task).collect();
    let keys: Vec<String> =
        tasks.iter().map(|task| serde_json::to_string(task).expect("a task is JSON")).collect();
    assert_eq!(keys.len(), 3);
    assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    let values = r#"{"Ok":{"read_only_us":1.0,"write_only_us":2.0,"read_write_us":3.0}}"#;
    let line = format!(r#"{{"build":"","task":{},"result":{values},"seconds":0.0}}"#, keys[0]);
    std::fs::write(directory.path().join("runs.jsonl"), line).expect("the record can be written");
    let record = Record::open(directory.path(), true).expect("the record opens");
    let (measured, errors) = record.measured(&experiment, false);
    assert_eq!(errors, Vec::<String>::new());
    for (curve, us) in
        [("1Pipe, read-only", 1.0), ("1Pipe, write-only", 2.0), ("1Pipe, read-write", 3.0)]
    {
        assert_eq!(measured.at(curve, 5.0), Some(us), "{curve}");
    }
}

#[test]
fn loss_slows_tpcc_and_violates_nothing() {
    let run = |loss_ppb| {
        let tpcc = Tpcc {
            loss_ppb,
            probe_timeout_ns: 20_000,
            reply_timeout_min_ns: 20_000,
            ..Tpcc::new(2)
        };
        Task::Tpcc(tpcc).run().expect("all conditions hold")
    };
    let (calm, lossy) = (run(0), run(20_000_000));
    assert!(lossy["throughput_mtps"] < calm["throughput_mtps"], "{calm:?} {lossy:?}");
    assert!(lossy["new_order_us"] > calm["new_order_us"], "{calm:?} {lossy:?}");
}

#[test]
fn table_runs_are_deterministic_and_count_what_they_use() {
    let run = |access, inserts, replicas| {
        let table = Table { access, inserts, replicas, in_flight: 32, threads: Threads::Two };
        table.run().unwrap_or_else(|error| panic!("{table:?}: {error}"))
    };
    let ordered = run(Access::Ordered, true, 2);
    assert_eq!(ordered, run(Access::Ordered, true, 2), "equal setups give equal values");
    // The change of a bucket is one message for two replicas, and both reply.
    let others = ordered["server_messages"] - ordered["client_messages"];
    assert!((0.9..1.1).contains(&others), "{ordered:?}");
    // A leader asks its follower: two messages and two replies.
    let leader = run(Access::Leader, true, 2);
    assert!((0.99..1.01).contains(&leader["client_messages"]), "{leader:?}");
    assert!((2.9..3.1).contains(&leader["server_messages"]), "{leader:?}");
    // A look-up reads a bucket and at least one node.
    let look_up = run(Access::Leader, false, 1);
    assert!(look_up["client_messages"] > 2.0 && look_up["kops"] > 0.0, "{look_up:?}");
}

#[test]
fn rejects_processes_that_do_not_fit() {
    for processes in [0, 1, 33, 100] {
        let refused =
            setup(System::BestEffort, processes).run().expect_err("the processes do not fit");
        assert!(refused.to_string().contains(&format!("{processes} processes")), "{refused}");
    }
}

#[test]
fn interrupted_evaluation_resumes() {
    let directory = tempfile::tempdir().expect("a temporary directory can be created");
    let tasks: Vec<Task> = [System::Unordered, System::BestEffort, System::Unordered]
        .map(|system| Task::Order(setup(system, 2)))
        .into();
    let run = |tasks: &[Task], is_cancelled: bool| {
        let mut record = Record::open(directory.path(), false).expect("the record opens");
        let mut seen = Vec::new();
        record
            .complete(tasks, 2, &AtomicBool::new(is_cancelled), |now| {
                seen.push((now.done, now.total))
            })
            .expect("the record can be written");
        seen
    };
    assert_eq!(run(&tasks, true), [(0, 2)], "cancelled before the first; equal tasks count once");
    assert_eq!(run(&tasks[..1], false), [(0, 1), (1, 1)]);
    // A truncated line.
    let path = directory.path().join("runs.jsonl");
    let mut text = std::fs::read_to_string(&path).expect("the record exists");
    text.push_str("{\"build\":\"12");
    std::fs::write(&path, text).expect("the record can be written");
    assert_eq!(run(&tasks, false), [(1, 2), (2, 2)], "one of the two is recorded");
    assert_eq!(run(&tasks, false), [(2, 2)], "both are recorded");
}

#[test]
fn records_of_other_builds_are_optional() {
    let directory = tempfile::tempdir().expect("a temporary directory can be created");
    let mut experiment = figure("9a");
    experiment.xs_quick = &[8.0];
    let tasks: Vec<Task> = experiment.cases(true).into_iter().map(|(_, _, task)| task).collect();
    let mut record = Record::open(directory.path(), false).expect("the record opens");
    record.complete(&tasks, 2, &AtomicBool::new(false), |_| {}).expect("the record can be written");
    let path = directory.path().join("runs.jsonl");
    let text = std::fs::read_to_string(&path).expect("the record exists");
    let other = text.replace("{\"build\":\"", "{\"build\":\"not ");
    std::fs::write(&path, other).expect("the record can be written");
    for (takes_any_build, missing) in [(false, tasks.len()), (true, 0)] {
        let record = Record::open(directory.path(), takes_any_build).expect("the record opens");
        let (_, errors) = record.measured(&experiment, true);
        assert_eq!(errors.len(), missing, "{takes_any_build}: {errors:?}");
    }
}

#[test]
fn every_figure_writes_csv_svg_and_claims() {
    let directory = tempfile::tempdir().expect("a temporary directory can be created");
    let mut experiment = figure("9a");
    experiment.xs_quick = &[8.0, 16.0];
    let tasks: Vec<Task> = experiment.cases(true).into_iter().map(|(_, _, task)| task).collect();
    let mut record = Record::open(directory.path(), false).expect("the record opens");
    record.complete(&tasks, 2, &AtomicBool::new(false), |_| {}).expect("the record can be written");
    let (measured, errors) = record.measured(&experiment, true);
    assert_eq!(errors, Vec::<String>::new());
    let empty = figure("10");
    let (nothing, missing) = record.measured(&empty, true);
    assert_eq!(missing.len(), empty.cases(true).len(), "missing runs are reported");
    let figures = [
        Figure { experiment, measured, errors },
        Figure { experiment: empty, measured: nothing, errors: missing },
    ];
    write(directory.path(), &figures, true).expect("the output can be written");
    let read =
        |name: &str| std::fs::read_to_string(directory.path().join(name)).expect("the file exists");
    let csv = read("9a.csv");
    assert_eq!(csv.lines().count(), 1 + 10, "four curves at two positions, and two at one:\n{csv}");
    assert!(csv.lines().nth(1).is_some_and(|line| line.starts_with("best effort,8,")), "{csv}");
    let svg = read("9a.svg");
    let dots = svg.matches("<circle").count() + svg.matches("<polygon").count();
    assert_eq!(dots, 10 + 6, "a dot for each point, and for each curve in the legend: {svg}");
    assert!(["best effort", "reliable", "unordered"].iter().all(|curve| svg.contains(curve)));
    let page = read("report.html");
    assert_eq!(page.matches("<svg").count(), 2);
    assert!(page.contains("not run"), "the page reports missing runs");
    assert!(page.contains("verdicts are not final"), "{page}");
    assert!(read("evaluation.md").contains("| 9a | best effort: within 25 %"));
    let verified = claim_results(&figures);
    let calibrated = verified.iter().find(|line| line.claim.starts_with("unordered"));
    assert_eq!(
        calibrated.map(|line| line.verdict),
        Some(None),
        "calibration curves are not verified"
    );
}

#[test]
fn curves_name_real_contradictions_only() {
    for experiment in all() {
        for curve in &experiment.curves {
            let Role::Contradicted { points, .. } = curve.role else { continue };
            for ContradictedPoints { first, last, numbers } in points {
                assert!(numbers.is_real(), "{}, {}: {numbers}", experiment.id, curve.name);
                assert!(first <= last, "{}, {}: {numbers}", experiment.id, curve.name);
            }
        }
    }
}

#[test]
fn verdicts_follow_from_the_measured_points() {
    let results = |role, factor: f64| {
        let mut experiment = figure("9a");
        experiment.claims.clear();
        experiment.curves.truncate(1);
        let curve = &mut experiment.curves[0];
        curve.role = role;
        let (name, column) = (curve.name, curve.column.expect("the paper has this curve"));
        let points =
            experiment.reference.points(column).into_iter().map(|(x, paper)| {
                (x, Values::from([(experiment.metric.to_owned(), factor * paper)]))
            });
        let curves = [(name, points.collect())].into();
        let measured = Measured { metric: experiment.metric, curves };
        claim_results(&[Figure { experiment, measured, errors: vec![] }])
    };
    let verdict = |role, factor| results(role, factor)[0].verdict;
    const LAST: ContradictedPoints = ContradictedPoints {
        first: 512.0,
        last: 512.0,
        numbers: Contradiction::Differ(
            Stated { value: 10.0, text: "10 us" },
            Stated { value: 7.0, text: "7 us" },
        ),
    };
    assert_eq!(verdict(Role::Predicted, 1.2), Some(Outcome::Holds));
    assert_eq!(verdict(Role::Predicted, 0.5), Some(Outcome::DoesNotHold));
    assert_eq!(verdict(Role::Ours(Better::Lower), 0.5), Some(Outcome::Better));
    assert_eq!(verdict(Role::Ours(Better::Higher), 0.5), Some(Outcome::DoesNotHold));
    const ALL: &[ContradictedPoints] = &[ContradictedPoints { first: 8.0, ..LAST }];
    let role = |points| Role::Contradicted { better: None, points };
    assert_eq!(verdict(role(ALL), 1.2), Some(Outcome::Holds));
    let contradicted = results(role(ALL), 0.5);
    assert_eq!(contradicted[0].verdict, Some(Outcome::PaperContradictsItself));
    assert_eq!(contradicted[0].remark, "from 8 to 512 10 us against 7 us");
    let partly = results(role(&[LAST]), 0.5);
    assert_eq!(partly[0].verdict, Some(Outcome::DoesNotHold), "other points are no better");
    assert!(partly[0].remark.ends_with("contradicts itself at 512 10 us against 7 us"));
    let better = Role::Contradicted { better: Some(Better::Lower), points: &[LAST] };
    assert_eq!(verdict(better, 0.5), Some(Outcome::Better));
    let counts = Counts::of(&contradicted);
    assert_eq!(counts, Counts { paper_contradicts_itself: 1, ..Counts::default() });
}

#[test]
fn compared_points_exist_in_the_reference() {
    for experiment in all() {
        for (curve, x, _) in experiment.cases(false) {
            let column = experiment.curves.iter().find(|one| one.name == curve);
            let Some(column) = column.and_then(|one| one.column) else { continue };
            let point = experiment.reference.at(column, x);
            assert!(point.is_some(), "figure {}: {column} has no point at {x}", experiment.id);
        }
        let all = experiment.xs;
        assert!(experiment.xs_quick.iter().all(|x| all.contains(x)), "{}", experiment.id);
    }
}
