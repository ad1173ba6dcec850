//! `onepipe decode`: the fields of frames.

use crate::program::{json, output};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../protocol/wire/testdata/");

#[test]
fn prints_the_fields_of_a_frame() {
    let file = format!("{GOLDEN}data-piggyback.hex");
    let printed = output(&["decode", "--file", &file, "--near", "1145915905146880"]);
    assert_eq!(printed.status.code(), Some(0));
    let text = String::from_utf8_lossy(&printed.stdout).into_owned();
    for line in [
        "  version     0x20",
        "  opcode      Data (0x01)",
        "PIGGYBACK",
        "  message_ts  1145915905147880",
        "  src         process 3, incarnation 1",
        "  dst         process 8",
        "  hop_tag     holds",
        "cumulative: Psn(",
        "bytes: \"hello\"",
        "\nvalid\n",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
    let report = json(&output(&["decode", "--json", "--file", &file]));
    assert_eq!(report["is_valid"], true);
    assert_eq!(report["header"][0]["name"], "version");
}

#[test]
fn says_why_a_frame_is_not_valid() {
    let printed = output(&["decode", "00"]);
    assert_eq!(printed.status.code(), Some(1));
    let text = String::from_utf8_lossy(&printed.stdout).into_owned();
    assert!(text.contains("not valid: ") && text.contains("header"), "{text}");
    let refused = output(&["decode", "0x"]);
    assert_eq!(refused.status.code(), Some(1));
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("line 1: 'x' is no hexadecimal digit"), "{text}");
}
