//! Shows each rule of the table failing.

use std::fs;

use super::*;
use crate::workspace::Import;

fn member(folder: &str, imports: &[&str], dev: &[&str]) -> Member {
    let import = |is_dev| move |to: &&str| Import { folder: (*to).to_string(), is_dev };
    Member {
        name: folder.replace('/', "-"),
        folder: folder.to_string(),
        imports: imports.iter().map(import(false)).chain(dev.iter().map(import(true))).collect(),
    }
}

fn refusals(from: &str, to: &str) -> Vec<String> {
    check(&[member(from, &[to], &[])])
}

#[test]
fn the_table_as_written_passes() {
    let workspace = [
        member("protocol/simd", &[], &[]),
        member("protocol/base", &[], &[]),
        member("protocol/arbiter", &["protocol/simd", "protocol/base"], &[]),
        member("protocol/wire", &["protocol/base"], &[]),
        member("protocol/endpoint", &["protocol/base", "protocol/wire"], &[]),
        member("protocol/rivals", &["protocol/base", "protocol/wire"], &[]),
        member("protocol/node", &["protocol/endpoint", "protocol/switch"], &[]),
        member("sim/network", &["sim/engine", "protocol/node", "protocol/rivals"], &["sim/check"]),
        member("transport/udp", &["transport/driver", "protocol/node"], &[]),
        member("apps/kv", &["protocol/node"], &[]),
        member("daemons/switch", &["transport/udp", "protocol/switch"], &[]),
        member("api/rust", &["transport/udp", "protocol/endpoint"], &["daemons/switch"]),
        member("api/c", &["api/rust"], &[]),
        member("apps/kv/server", &["api/rust", "apps/kv", "apps/journal", "protocol/base"], &[]),
        member("apps/log/server", &["api/rust", "apps/log", "apps/journal"], &[]),
        member("apps/block/replica", &["apps/journal"], &[]),
        member(
            "apps/block/server",
            &["apps/block", "apps/block/replica", "apps/log", "apps/log/server"],
            &[],
        ),
        member("cli", &["sim/scenarios", "daemons/switch", "api/rust", "bench/micro"], &[]),
        member("xtask", &[], &[]),
    ];
    assert_eq!(check(&workspace), [""; 0]);
}

#[test]
fn nothing_imports_what_lies_above() {
    for (from, to) in [
        ("protocol/base", "protocol/wire"),
        ("protocol/simd", "protocol/wire"),
        ("protocol/wire", "protocol/endpoint"),
        ("protocol/endpoint", "protocol/node"),
        ("protocol/node", "sim/network"),
        ("protocol/node", "transport/udp"),
        ("transport/udp", "api/rust"),
        ("api/rust", "cli"),
        ("daemons/switch", "bench/micro"),
    ] {
        let found = refusals(from, to);
        assert_eq!(found, [format!("{from} imports {to}: it lies above")]);
    }
}

#[test]
fn siblings_never_import_each_other() {
    for (from, to) in [
        ("protocol/base", "protocol/simd"),
        ("protocol/wire", "protocol/topology"),
        ("protocol/endpoint", "protocol/switch"),
        ("protocol/controller", "protocol/amcast"),
        ("protocol/switch", "protocol/rivals"),
        ("daemons/switch", "api/rust"),
        ("api/rust", "daemons/switch"),
    ] {
        assert!(refusals(from, to)[0].contains("siblings"), "{from} {to}");
    }
}

#[test]
fn families_never_import_each_other() {
    for (from, to) in [
        ("sim/network", "transport/udp"),
        ("transport/shm", "sim/engine"),
        ("apps/kv", "sim/check"),
    ] {
        assert!(refusals(from, to)[0].contains("families"), "{from} {to}");
    }
}

#[test]
fn what_users_run_does_not_hold_a_simulator() {
    for from in ["api/rust", "daemons/controller"] {
        assert!(refusals(from, "sim/engine")[0].contains("simulator"), "{from}");
    }
}

#[test]
fn wrappers_import_the_rust_api_alone() {
    for (from, to) in [
        ("api/c", "protocol/endpoint"),
        ("api/python", "transport/shm"),
        ("apps/kv/server", "apps/tpcc"),
        ("apps/kv/server", "apps/block/replica"),
        ("apps/log/server", "apps/kv/server"),
        ("api/c", "daemons/switch"),
    ] {
        assert!(refusals(from, to)[0].contains("`api/rust` alone"), "{from} {to}");
    }
}

#[test]
fn tests_obey_the_same_table() {
    let found = check(&[member("protocol/endpoint", &[], &["protocol/switch", "sim/engine"])]);
    assert_eq!(found.len(), 2);
    assert!(found[0].starts_with("protocol/endpoint tests against protocol/switch: siblings"));
    assert!(found[1].ends_with("it lies above"));
}

#[test]
fn a_folder_without_a_rank_is_refused() {
    for folder in ["protocol/gossip", "tools", "apps/kv/client/extra"] {
        assert!(check(&[member(folder, &[], &[])])[0].contains("without a rank"), "{folder}");
    }
}

/// End to end, from manifests on disk to the refusal.
#[test]
fn a_made_up_workspace_with_a_forbidden_import_fails() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let root = root.path().canonicalize().expect("it is there");
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("inside the root")).expect("make a folder");
        fs::write(path, text).expect("write a file");
    };
    let package = |name: &str| format!("[package]\nname = \"{name}\"\nedition = \"2024\"\n");
    write("Cargo.toml", "[workspace]\nresolver = \"3\"\nmembers = [\"protocol/*\"]\n");
    for folder in ["endpoint", "switch"] {
        write(&format!("protocol/{folder}/src/lib.rs"), "");
    }
    write("protocol/switch/Cargo.toml", &package("the-switch"));
    write("protocol/endpoint/Cargo.toml", &package("endpoint"));
    run(&root).expect("two siblings that do not know each other");

    // A renamed dependency, for one platform only, counts as well.
    let hidden = "[target.'cfg(unix)'.dependencies]\n\
                  harmless = { package = \"the-switch\", path = \"../switch\" }\n";
    write("protocol/endpoint/Cargo.toml", &(package("endpoint") + hidden));
    let refused = run(&root).expect_err("siblings");
    assert_eq!(refused.to_string(), "layers: 1 found");
}
