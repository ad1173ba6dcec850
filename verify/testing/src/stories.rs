//! Stories in text: inputs of a machine, each followed by what the machine does.

use std::fs;
use std::path::Path;

/// Replays each story of a folder. A line that begins with `@` is an input, the indented lines
/// after it are its outputs, and any other line but a comment (`#`) sets a machine up.
///
/// # Panics
/// The folder has fewer than `stories_min` stories, or the outputs of one differ; the message has
/// the story as it goes now.
pub fn check_stories<S>(
    folder: &Path,
    stories_min: usize,
    set_up: impl Fn(&str) -> S,
    run: impl Fn(&mut S, &str) -> String,
) {
    let mut paths: Vec<_> = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{folder:?}: {error}"))
        .map(|entry| entry.expect("the folder can be read").path())
        .collect();
    paths.sort();
    assert!(paths.len() >= stories_min, "{folder:?} has only {} stories", paths.len());
    for path in paths {
        let story = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let output = replay(&story, &set_up, &run);
        assert!(output == story, "{} goes differently:\n{output}", path.display());
    }
}

fn replay<S>(
    story: &str,
    set_up: impl Fn(&str) -> S,
    run: impl Fn(&mut S, &str) -> String,
) -> String {
    let (mut state, mut output) = (None, String::new());
    for line in story.lines().filter(|line| !line.starts_with("    ")) {
        output.push_str(line);
        output.push('\n');
        if line.starts_with('@') {
            output.push_str(&run(state.as_mut().expect("a story sets a machine up first"), line));
        } else if !line.is_empty() && !line.starts_with('#') {
            state = Some(set_up(line));
        }
    }
    output
}

/// Formats a number like `12_345`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('_');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    /// Checks one story of a counter, which each input increases.
    fn check(story: &str) -> std::thread::Result<()> {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("story"), story).expect("it is writable");
        catch_unwind(|| {
            let set_up = |line: &str| line.len() as u64;
            check_stories(folder.path(), 1, set_up, |count, _| {
                *count += 1;
                format!("    {count}\n")
            });
        })
    }

    #[test]
    fn stories_that_go_differently_are_errors() {
        check("# a counter\nab\n\n@ input\n    3\n@ input\n    4\n").expect("as it goes");
        check("ab\n@ input\n    4\n").expect_err("another output");
        check("ab\n@ input\n").expect_err("a missing output");
        check("@ input\n    1\n").expect_err("no machine");
    }

    #[test]
    fn missing_stories_are_errors() {
        let folder = tempfile::tempdir().expect("a folder");
        let check = || check_stories(folder.path(), 1, |_| (), |(), _| String::new());
        catch_unwind(check).expect_err("the folder is empty");
    }

    #[test]
    fn digits_are_grouped_by_three() {
        let numbers = [0, 999, 1_000, 12_345_678];
        assert_eq!(numbers.map(grouped), ["0", "999", "1_000", "12_345_678"]);
    }
}
