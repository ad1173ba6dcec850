use onepipe_sim_engine::Tally;

use super::*;

fn subject(build: &str) -> Subject {
    Subject { service: "scattering".to_owned(), build: build.to_owned() }
}

/// Returns the results of a run of `count` seeds, the last of which fails.
fn of_run(build: &str, first: u64, count: u64) -> Results {
    let all = Tally { seeds: count, deliveries: 10 * count, violations: 1, ..Tally::default() };
    let kinds = [("crash".to_owned(), Tally { faults: 2, ..all })].into();
    let totals = Totals { all, kinds };
    let seeds = Seeds { first, count, jobs: 1 };
    Results::of_run(subject(build), seeds, vec![first + count - 1], totals).expect("in range")
}

#[test]
fn adjacent_runs_become_one_range() {
    let mut results = Results::default();
    for (first, count) in [(110, 5), (100, 10), (200, 1)] {
        results.add(of_run("a", first, count), Path::new("f")).expect("disjoint");
    }
    results.add(of_run("b", 100, 1), Path::new("f")).expect("another build");
    let [a, b] = &results.entries[..] else { panic!("{results:?}") };
    assert_eq!(a.ranges, [Range { first: 100, last: 114 }, Range { first: 200, last: 200 }]);
    assert_eq!((a.totals.all.seeds, a.totals.all.deliveries), (16, 160));
    assert_eq!(a.totals.kinds["crash"].faults, 6);
    assert_eq!(a.failing, [109, 114, 200]);
    assert_eq!((b.subject.build.as_str(), b.totals.all.seeds), ("b", 1));
}

#[test]
fn seeds_that_were_run_before_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("fuzz.json");
    let update = |first, count| Results::update(&path, of_run("a", first, count));
    let results = update(100, 10).expect("new file");
    for (first, count, overlap) in [
        (100, 10, "100 to 109"),
        (90, 11, "100 to 100"),
        (109, 9, "109 to 109"),
        (103, 2, "103 to 104"),
    ] {
        let error = update(first, count).expect_err("run before").to_string();
        assert!(error.contains(&format!("has run the seeds {overlap} of scattering")), "{error}");
        let seeds = Seeds { first, count, jobs: 1 };
        let early = check_unused(&path, &subject("a"), seeds).expect_err("run before");
        assert_eq!(early.to_string(), error);
    }
    assert_eq!(Results::read(&path).expect("as before"), results);
    for (first, count) in [(90, 10), (110, 10)] {
        check_unused(&path, &subject("a"), Seeds { first, count, jobs: 1 }).expect("unused");
    }
    check_unused(&path, &subject("b"), Seeds { first: 100, count: 10, jobs: 1 }).expect("unused");
}

#[test]
fn concurrent_additions_are_all_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("fuzz.json");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let path = &path;
            scope.spawn(move || {
                for number in 0..10 {
                    let run = of_run("a", 100 * thread + 10 * number, 10);
                    Results::update(path, run).expect("disjoint");
                }
            });
        }
    });
    let results = Results::read(&path).expect("written");
    assert_eq!(results.entries[0].ranges, [Range { first: 0, last: 399 }]);
    assert_eq!(results.entries[0].totals.all.seeds, 400);
}

#[test]
fn damaged_files_are_refused() {
    let mut results = of_run("a", 100, 10);
    let error =
        |text: &str| format!("{:#}", Results::parse(text, Path::new("f")).expect_err("bad"));
    assert!(error("{").starts_with("f holds no results of `sim fuzz`"));
    assert!(error(r#"{"format":2,"entries":[]}"#).starts_with("f has format 2"));
    results.entries[0].totals.all.seeds += 1;
    let text = serde_json::to_string(&results).expect("JSON");
    assert_eq!(error(&text), "f: the ranges of build a hold 10 seeds, its totals 11");
    results.entries[0].totals.all.seeds -= 1;
    results.entries.push(results.entries[0].clone());
    let text = serde_json::to_string(&results).expect("JSON");
    assert!(error(&text).contains("has run the seeds 100 to 109"), "{}", error(&text));
}

#[test]
fn an_empty_shard_adds_nothing() {
    let seeds = Seeds { first: 100, count: 0, jobs: 1 };
    let results = Results::of_run(subject("a"), seeds, Vec::new(), Totals::default());
    assert_eq!(results.expect("no range"), Results::default());
    let seeds = Seeds { first: u64::MAX, count: 2, jobs: 1 };
    assert!(Results::of_run(subject("a"), seeds, Vec::new(), Totals::default()).is_err());
}
