//! `onepipe sim totals`: results of several runs of `onepipe sim fuzz` add up.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use crate::program::{errors, json, output};

/// Runs seeds of a service as the build `tested`, and adds their results to a file.
fn fuzz(service: &str, totals: &Path, more: &[&str]) {
    let totals = totals.to_str().expect("UTF-8 path");
    let arguments =
        ["sim", "fuzz", "--service", service, "--build", "tested", "--totals", totals, "--json"];
    let output = output(&[&arguments, more].concat());
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
}

/// Returns the totals of a file, without processor times.
fn totals(arguments: &[&str]) -> Value {
    fn without_times(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.remove("processor_us");
                fields.values_mut().for_each(without_times);
            }
            Value::Array(values) => values.iter_mut().for_each(without_times),
            _ => {}
        }
    }
    let output = output(&[&["sim", "totals", "--json"], arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let mut value = json(&output);
    without_times(&mut value);
    value
}

fn name(folder: &TempDir, name: &str) -> String {
    folder.path().join(name).to_str().expect("UTF-8 path").to_owned()
}

#[test]
fn shards_add_up_to_the_totals_of_one_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let (whole, sum) = (name(&folder, "whole.json"), name(&folder, "sum.json"));
    for service in ["scattering", "amcast"] {
        let seeds = ["--seed", "100", "--seeds", "5"];
        fuzz(service, Path::new(&whole), &seeds);
        let shards: Vec<String> = (0..3)
            .map(|index| {
                let path = name(&folder, &format!("{service}-{index}.json"));
                let shard = format!("{index}/3");
                fuzz(service, Path::new(&path), &[&seeds[..], &["--shard", &shard]].concat());
                path
            })
            .collect();
        let mut arguments: Vec<&str> = shards.iter().map(String::as_str).collect();
        arguments.extend(["--into", &sum]);
        totals(&arguments);
    }
    let (whole, sum) = (totals(&[&whole]), totals(&[&sum]));
    assert_eq!(whole, sum);
    let entries = whole["builds"].as_array().expect("builds");
    assert_eq!(entries.len(), 2, "{whole}");
    for entry in entries {
        let all = &entry["totals"]["all"];
        assert_eq!((&all["seeds"], &all["violations"]), (&5.into(), &0.into()), "{entry}");
        for key in ["faults", "deliveries", "reliable"] {
            assert!(all[key].as_u64() > Some(0), "{key}: {entry}");
        }
        assert_eq!(entry["ranges"], serde_json::json!([{ "first": 100, "last": 104 }]));
    }
}

#[test]
fn no_build_runs_a_seed_twice() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = name(&folder, "fuzz.json");
    let run = |build: &str, seed: &str| {
        let arguments = ["sim", "fuzz", "--seeds", "2", "--service", "amcast", "--totals", &path];
        output(&[&arguments[..], &["--seed", seed, "--build", build]].concat())
    };
    assert_eq!(run("a", "100").status.code(), Some(0));
    let first = std::fs::read(&path).expect("written");
    let refused = run("a", "101");
    assert_eq!(refused.status.code(), Some(1));
    let expected = "build a has run the seeds 101 to 101 of amcast already";
    assert!(errors(&refused).contains(expected), "{}", errors(&refused));
    assert_eq!(std::fs::read(&path).expect("written"), first);
    let merged = output(&["sim", "totals", &path, "--into", &path]);
    assert_eq!(merged.status.code(), Some(1));
    assert!(errors(&merged).contains("has run the seeds 100 to 101"), "{}", errors(&merged));
    assert_eq!(run("b", "101").status.code(), Some(0));
    assert_eq!(run("a", "102").status.code(), Some(0));
    assert_eq!(totals(&[&path])["all"]["seeds"], 6);
}

#[test]
fn the_page_of_results_holds_their_tables() {
    let results = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/results");
    let page = std::fs::read_to_string(results.join("fuzz.md")).expect("committed");
    let (_, tables) = page.split_once("## Totals\n\n").expect("a heading");
    let file = results.join("fuzz.json");
    let output = output(&["sim", "totals", file.to_str().expect("UTF-8 path")]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let hint = "onepipe sim totals docs/results/fuzz.json --page docs/results/fuzz.md";
    assert_eq!(tables, String::from_utf8_lossy(&output.stdout), "run {hint}");
}
