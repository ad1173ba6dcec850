//! `onepipe block bench`: three sides, each with its figures.

use crate::program::{errors, exclusive, json, output};

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

#[test]
fn measures_recovery_with_stale_blocks_beside_a_copy() {
    let _guard = exclusive();
    let measured = output(&["block", "bench", "--recovery", "1MiB", "--json"]);
    assert!(measured.status.success(), "{}", errors(&measured));
    let report = json(&measured)["reports"][0].clone();
    let copied = |of: &str| report[of]["copied_bytes"].as_u64().expect("a number");
    // The writes of clients may add some to the stale blocks, and the log may have the rest.
    assert!(copied("stale") >= 1 << 20, "{report}");
    assert!(copied("full") >= copied("stale"), "{report}");
    for of in ["stale", "full"] {
        for figure in ["seconds", "writes_per_s"] {
            assert!(report[of][figure].as_f64().is_some_and(|value| value > 0.0), "{report}");
        }
    }
    let wrong = errors(&output(&["block", "bench", "--recovery", "0"]));
    assert!(wrong.contains("64 KiB"), "{wrong}");
}
