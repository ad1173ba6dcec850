use alloc::string::ToString;
use alloc::vec::Vec;

use super::*;

fn parse(line: &str) -> Result<Command, CommandError> {
    let words: Vec<Vec<u8>> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    Command::parse(&words)
}

#[test]
fn names_are_unique_and_in_lower_case() {
    let mut names: Vec<&str> = Command::specs().map(|spec| spec.name).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] < pair[1]));
    assert!(names.iter().all(|name| name.to_ascii_lowercase() == *name));
}

#[test]
fn names_have_any_case() {
    assert_eq!(parse("get k"), parse("GeT k"));
    assert_eq!(parse("GET k").map(|command| command.name()), Ok("get"));
}

#[test]
fn long_unknown_commands_are_cut_off() {
    let error = parse(&["x".repeat(300), "y".repeat(300), "z".into()].join(" "));
    let shown = error.expect_err("there is no such command").to_string();
    let expected = "x".repeat(128);
    assert!(shown.starts_with(&alloc::format!("ERR unknown command '{expected}', with")));
    assert!(shown.ends_with(&alloc::format!(": '{}' ", "y".repeat(128))));
    let empty = Command::parse(&[]).expect_err("there is no name").to_string();
    assert_eq!(empty, "ERR unknown command '', with args beginning with: ");
}

#[test]
fn the_table_says_which_commands_write() {
    for spec in Command::specs() {
        let count = usize::try_from(spec.arity.abs() - 1).expect("a small arity");
        let numbers = core::iter::repeat_n("1", count);
        let line: Vec<&str> = core::iter::once(spec.name).chain(numbers).collect();
        if let Ok(command) = parse(&line.join(" ")) {
            assert_eq!(command.is_read_only(), spec.access == Access::Read, "{}", spec.name);
        }
    }
}

#[test]
fn connection_and_blocking_commands_are_unknown() {
    for name in ["PING", "MULTI", "BLPOP", "SUBSCRIBE", "EVAL"] {
        assert!(matches!(parse(name), Err(CommandError::Unknown { .. })), "{name}");
    }
}
