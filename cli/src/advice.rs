//! What to do about an error of the system.

use std::io;

/// Formats an error with its causes. If the last cause is an error of the system, appends what to
/// do about it.
pub fn describe(error: &anyhow::Error) -> String {
    let advice = error.root_cause().downcast_ref::<io::Error>().and_then(advice);
    match advice {
        Some(advice) => format!("{error:#}: {advice}"),
        None => format!("{error:#}"),
    }
}

fn advice(error: &io::Error) -> Option<&'static str> {
    // Other errors of this type were made by this program, and say what to do.
    error.raw_os_error()?;
    Some(match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another program uses this port: stop that program, or choose another port"
        }
        io::ErrorKind::AddrNotAvailable => {
            "this machine has no such address: choose one of its own, or 0.0.0.0 for all of them"
        }
        io::ErrorKind::NotFound => "correct the path, or create what is missing",
        io::ErrorKind::PermissionDenied => {
            "this user may not do that: choose another path, or a port from 1024 on"
        }
        io::ErrorKind::IsADirectory => "name a file instead of a directory",
        io::ErrorKind::NotADirectory => "a part of the path is not a directory: correct the path",
        io::ErrorKind::AlreadyExists => "choose another path",
        io::ErrorKind::ReadOnlyFilesystem => "choose a path on a file system that is writable",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free space on this disk",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn errors_of_the_system_come_with_advice() {
        let missing = std::fs::read("/no/such/file").context("cannot read /no/such/file");
        let text = describe(&missing.expect_err("it does not exist"));
        assert!(text.starts_with("cannot read /no/such/file: No such file"), "{text}");
        assert!(text.ends_with("): correct the path, or create what is missing"), "{text}");
        let own = io::Error::new(io::ErrorKind::NotFound, "no group of this name");
        assert_eq!(describe(&own.into()), "no group of this name");
    }
}
