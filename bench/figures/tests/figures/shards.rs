//! Evaluations whose runs are shared by several processes.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use onepipe_bench_figures::{Experiment, Figure, Record, Shard, Task, all, write};

fn shard(text: &str) -> Shard {
    text.parse().expect("it is a shard")
}

/// Returns a figure of ten short runs.
fn experiment() -> Experiment {
    let mut experiment = all().into_iter().find(|one| one.id == "9a").expect("the figure exists");
    experiment.xs_quick = &[8.0, 16.0];
    experiment
}

fn tasks() -> Vec<Task> {
    experiment().cases(true).into_iter().map(|(_, _, task)| task).collect()
}

fn complete(record: &mut Record, tasks: &[Task]) {
    let is_cancelled = AtomicBool::new(false);
    record.complete(tasks, 2, &is_cancelled, |_| {}).expect("the record can be written");
}

/// Writes the report, and returns its files with their names.
fn report(record: &Record, directory: &Path) -> Vec<(&'static str, String)> {
    let experiment = experiment();
    let (measured, errors) = record.measured(&experiment, true);
    assert_eq!(errors, [""; 0]);
    write(directory, &[Figure { experiment, measured, errors }], true).expect("it can be written");
    let names = ["9a.csv", "9a.svg", "report.html", "evaluation.md"];
    let read = |name| std::fs::read_to_string(directory.join(name)).expect("it exists");
    names.map(|name| (name, read(name))).into()
}

#[test]
fn merged_shards_give_the_report_of_one_process() {
    let temporary = tempfile::tempdir().expect("a temporary directory can be created");
    let [whole, one, two, merged] =
        ["whole", "one", "two", "merged"].map(|name| temporary.path().join(name));
    let tasks = tasks();
    let mut record = Record::open(&whole, false).expect("the record opens");
    complete(&mut record, &tasks);
    let expected = report(&record, &whole);

    // Two shards share a directory, as on a file system of a cluster; one has its own.
    for (text, directory) in [("0/3", &one), ("1/3", &two), ("2/3", &one)] {
        let part = shard(text).of(&tasks);
        assert!((3..=4).contains(&part.len()), "{text}: {} runs", part.len());
        let mut record = Record::open_shard(directory, shard(text), false).expect("it opens");
        complete(&mut record, &part);
        assert_eq!((record.missing(&part), record.failed(&part)), (0, 0));
    }
    let mut record = Record::open(&merged, false).expect("the record opens");
    assert_eq!(record.merge(std::slice::from_ref(&one), false).expect("it merges"), 0);
    assert_eq!(record.missing(&tasks), 3, "the shard in the other directory");
    assert_eq!(record.merge(&[one, two], false).expect("it merges"), 0);
    assert_eq!(record.missing(&tasks), 0);
    for ((name, text), (_, expected)) in report(&record, &merged).iter().zip(&expected) {
        assert!(text == expected, "{name} differs");
    }

    // The merged runs are a record of their own: nothing is run again.
    let again = Record::open(&merged, false).expect("the record opens");
    assert_eq!(again.missing(&tasks), 0);
}

#[test]
fn merge_leaves_out_other_builds_and_needs_runs() {
    let temporary = tempfile::tempdir().expect("a temporary directory can be created");
    let [from, into, empty] = ["from", "into", "empty"].map(|name| temporary.path().join(name));
    std::fs::create_dir(&empty).expect("it can be created");
    let part = shard("0/10").of(&tasks());
    let mut record = Record::open_shard(&from, shard("0/10"), false).expect("it opens");
    complete(&mut record, &part);
    let path = record.path().to_owned();
    let text = std::fs::read_to_string(&path).expect("it exists");
    std::fs::write(&path, text.replace("\"build\":\"", "\"build\":\"not ")).expect("it is written");
    let mut record = Record::open(&into, false).expect("the record opens");
    assert_eq!(record.merge(std::slice::from_ref(&from), false).expect("it merges"), 1);
    assert_eq!(record.missing(&part), 1);
    assert_eq!(record.merge(&[from], true).expect("it merges"), 0);
    assert_eq!(record.missing(&part), 0);
    assert!(record.merge(&[empty], true).is_err());
}
