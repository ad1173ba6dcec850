//! `onepipe figures`, without a figure.

use std::process::Stdio;

use crate::program::onepipe;

/// As `onepipe figures --list | head -n 0`.
#[test]
fn list_ends_quietly_when_its_pipe_is_closed() {
    for arguments in [&["figures", "--list"][..], &["figures", "--list", "--json"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe can be made");
        drop(reader);
        let child = onepipe(arguments).stdout(writer).stderr(Stdio::piped()).spawn();
        let ended = child.and_then(std::process::Child::wait_with_output).expect("it ends");
        assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
        assert_eq!(ended.status.code(), Some(1));
    }
}
