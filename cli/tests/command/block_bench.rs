//! `onepipe block bench`: each side with its figures.

use std::fs;
use std::iter;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::program::{errors, exclusive, has, json, onepipe, output, unique};

#[test]
fn measures_replicas_beside_primary_backup() {
    let _guard = exclusive();
    let options = ["--runs", "1", "--seconds", "0.1", "--depth", "1,8", "--size", "1MiB"];
    let measured = output(&[&["block", "bench", "--json"][..], &options].concat());
    assert!(measured.status.success(), "{}", errors(&measured));
    let printed = json(&measured);
    let loads = printed["reports"][0]["loads"].as_array().expect("loads").clone();
    let names: Vec<_> = loads.iter().map(|load| load["load"].as_str().expect("text")).collect();
    assert_eq!(names, ["1 in flight", "8 in flight"]);
    for load in &loads {
        let sides = load["sides"].as_array().expect("sides");
        let names: Vec<_> = sides.iter().map(|side| side["side"].as_str().expect("text")).collect();
        let expected =
            ["onepipe, 3 replicas", "primary-backup, 3 replicas", "a local file, not replicated"];
        assert_eq!(names, expected);
        for side in sides {
            for figure in ["rate", "p50_us", "p99_us", "cpu_us"] {
                assert!(side[figure].as_f64().is_some_and(|value| value > 0.0), "{figure}: {side}");
            }
        }
    }
    let wrong = errors(&output(&["block", "bench", "--depth", "0"]));
    assert!(wrong.contains("--depth"), "{wrong}");
}

/// Returns a folder with links to some programs, as the only path where programs are found.
fn path_with(programs: &[&str]) -> PathBuf {
    let folder = std::env::temp_dir().join(unique("peers-path"));
    fs::create_dir(&folder).expect("the name is unique");
    for program in programs {
        let found = Command::new("which").arg(program).output().expect("which is installed");
        let target = String::from_utf8(found.stdout).expect("a path");
        symlink(target.trim(), folder.join(program)).expect("the folder is new");
    }
    folder
}

#[test]
fn measures_installed_peers_and_names_missing_ones() {
    if !has("fio", "fio") || !has("qemu-nbd", "qemu-utils") {
        return;
    }
    let _guard = exclusive();
    let options =
        ["block", "bench", "--peers", "--json", "--runs", "1", "--seconds", "0.2", "--depth", "2"];
    let run = |programs: &[&str]| {
        let path = path_with(programs);
        let output = onepipe(&options).env("PATH", &path).output().expect("it can be run");
        fs::remove_dir_all(path).expect("it is there");
        output
    };
    let measured = run(&["env", "fio", "qemu-nbd"]);
    assert!(measured.status.success(), "{}", errors(&measured));
    let printed = json(&measured);
    assert_eq!(printed["reports"][0]["bench"], "block-peers");
    let sides = printed["reports"][0]["loads"][0]["sides"].as_array().expect("sides").clone();
    let figure = |side: usize, name: &str| sides[side][name].as_f64();
    for side in [0, 1] {
        for name in ["rate", "p50_us", "p99_us", "cpu_us"] {
            assert!(figure(side, name).is_some_and(|value| value > 0.0), "{name}: {sides:?}");
        }
    }
    let refused = sides[2]["refused"].as_str().expect("Ceph is not found");
    assert!(refused.contains("ceph-mon is not installed: apt-get install"), "{refused}");
    let without_fio = run(&["env"]);
    assert_eq!(without_fio.status.code(), Some(1));
    assert!(errors(&without_fio).contains("fio is not installed"), "{}", errors(&without_fio));
}

#[test]
fn measures_recovery_with_stale_blocks_beside_a_copy() {
    let _guard = exclusive();
    let measure = || {
        let measured = output(&["block", "bench", "--recovery", "1MiB", "--json"]);
        assert!(measured.status.success(), "{}", errors(&measured));
        json(&measured)["reports"][0].clone()
    };
    let copied_of = |report: &Value, of: &str| report[of]["copied_bytes"].as_u64();
    // The writes of clients may add some to the stale blocks. On a busy machine the log of the
    // others may still have all that the replica has missed: then no block is stale.
    let copies = |report: &Value| copied_of(report, "stale").is_some_and(|bytes| bytes >= 1 << 20);
    let mut reports = iter::repeat_with(measure).take(4);
    let report = reports.find(copies).expect("one of four recoveries copies stale blocks");
    let copied = |of: &str| copied_of(&report, of).expect("a number");
    assert!(copied("full") >= copied("stale"), "{report}");
    for of in ["stale", "full"] {
        for figure in ["seconds", "writes_per_s"] {
            assert!(report[of][figure].as_f64().is_some_and(|value| value > 0.0), "{report}");
        }
    }
    let wrong = errors(&output(&["block", "bench", "--recovery", "0"]));
    assert!(wrong.contains("64 KiB"), "{wrong}");
}
