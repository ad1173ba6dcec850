//! Invalid arguments, and help.

use crate::program::{errors, output};

/// Checks for exit status 2 and a helpful message.
#[track_caller]
fn refused(arguments: &[&str], expected: &str) {
    let output = output(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", errors(&output));
    assert!(errors(&output).contains(expected), "{arguments:?}: {}", errors(&output));
    assert!(output.stdout.is_empty(), "{arguments:?}");
}

#[test]
fn rejects_arguments_out_of_range() {
    refused(&["demo", "--processes", "1"], "1 is not in 2..=64");
    refused(&["demo", "--size", "10"], "10 is not in 24..=1000000");
    refused(&["demo", "--rate", "0"], "is not a rate: write for example 2000, 50k or 1.5M");
    refused(&["demo", "--seconds=-1"], "is not a number of seconds from 0.1 to 1000000");
    refused(&["sim", "--loss", "2"], "must lie between 0 and 1");
    refused(&["sim", "--duration", "10"], "has no unit: write for example 100us, 10ms or 1.5s");
    refused(&["switch", "--corrupt", "150%"], "must lie between 0 and 1");
    refused(&["switch", "--link-rate", "10"], "is not a bit rate from 1k to 1000G");
    refused(&["switch", "--link-rate", "1M", "--queue", "1MB"], "is not a size");
    refused(&["switch", "--rack-nodes", "65"], "65 is not in 1..=64");
    refused(&["switch", "--rack-nodes", "2", "--paths", "0"], "0 is not in 1..=64");
    refused(&["bench", "reorder", "--runs", "1"], "1 is not in 3..=1000");
}

#[test]
fn rejects_conflicting_arguments() {
    refused(&["demo", "--ipv6"], "--ipv6 requires --transport udp");
    refused(&["bench", "order", "--processes", "65"], "bench order takes 2 to 64 processes");
    refused(&["node", "--udp", "127.0.0.1:4410"], "--process");
    refused(&["node", "--overlay", "127.0.0.1:4410", "--udp", "[::1]:1"], "cannot be used with");
    refused(&["node", "--udp", "127.0.0.1:4410", "--fabric", "x"], "cannot be used with");
    refused(&["switch", "--mark-threshold", "4KiB"], "--link-rate <BITS>");
    refused(&["switch", "--paths", "4"], "--rack-nodes <RACK_NODES>");
    refused(&["switch", "--lossy-link", "rack=0,path=0"], "--rack-nodes <RACK_NODES>");
    let racks = |link, expected| {
        let racks = ["switch", "--nodes", "64", "--rack-nodes", "32", "--paths", "4"];
        refused(&[&racks[..], &["--lossy-link", link]].concat(), expected);
    };
    racks("rack=2,path=0", "no link of rack 2 to path 0: racks are 0 to 1 and paths 0 to 3");
    racks("rack=0,path=4", "no link of rack 0 to path 4: racks are 0 to 1 and paths 0 to 3");
    racks("rack=0,path=0,loss=1.5", "\"1.5\" is not a probability: it must lie between 0 and 1");
    racks("rack=0", "a link needs a rack and a path: write for example rack=0,path=2");
    refused(&["sim", "--interval", "1us", "--outstanding", "3"], "cannot be used with");
}

#[test]
fn rejects_unknown_names_with_known_ones() {
    refused(&["dmeo"], "demo");
    refused(&["demo", "--transport", "tcp"], "[possible values: shm, udp]");
    refused(&["bench", "everything"], "[possible values: reorder, endpoint, pair, order");
    refused(&["bench"], "<NAME>");
    refused(&["switch", "--listen", "nowhere"], "write for example 127.0.0.1:4410");
    refused(&["completions", "tcsh"], "[possible values: bash");
}

#[test]
fn rejects_unknown_topology() {
    refused(&["sim", "--topology", "ring:4"], "leaf-spine");
    refused(&["sim", "--topology", "star:x"], "star:HOSTS");
    refused(&["sim", "--topology", "fat-tree:3"], "fat-tree:3 is odd");
}

#[test]
fn every_command_has_help_with_examples() {
    for command in
        ["demo", "node", "switch", "aggregator", "transfer", "clean", "sim", "bench", "completions"]
    {
        let output = output(&[command, "--help"]);
        assert_eq!(output.status.code(), Some(0), "{command}");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(&format!("  onepipe {command}")), "{command}: {text}");
    }
    let text = String::from_utf8_lossy(&output(&["--help"]).stdout).into_owned();
    assert!(text.contains("onepipe demo") && !text.contains("worker"), "{text}");
}

#[test]
fn completions_know_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let output = output(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0));
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("demo") && text.contains("switch"), "{shell}");
    }
}
