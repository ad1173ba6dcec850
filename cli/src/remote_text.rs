//! Text that came from another machine: a terminal must not interpret it.

use std::path::Path;

use anyhow::{Result, ensure};

/// Maximum length of a file name, in bytes, as most file systems have it.
const NAME_LEN_MAX: usize = 255;

/// Whether a terminal would interpret this character: controls, and those that change the direction
/// of the text around them, so that a name is shown as another one.
fn is_unsafe(character: char) -> bool {
    let is_bidi = matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    character.is_control() || is_bidi
}

/// Replaces characters that a terminal would interpret.
pub fn sanitize(text: &str) -> String {
    let shown = |character: char| match is_unsafe(character) {
        true => char::REPLACEMENT_CHARACTER,
        false => character,
    };
    text.chars().map(shown).collect()
}

/// Rejects a name with characters that a terminal would interpret.
///
/// # Errors
/// With the name, escaped.
pub fn check_name(name: &str) -> Result<()> {
    ensure!(
        !name.contains(is_unsafe),
        "{name:?} is not a valid name: it contains control characters"
    );
    Ok(())
}

/// As [`check_name`], for a name that becomes the name of a file in a folder: one component, not
/// hidden, and not too long.
///
/// # Errors
/// With the name, escaped, and what is wrong.
pub fn check_file_name(name: &str) -> Result<()> {
    check_name(name)?;
    let is_component = Path::new(name).file_name().is_some_and(|last_part| last_part == name);
    ensure!(is_component, "{name:?} is not a valid file name");
    ensure!(!name.starts_with('.'), "{name:?} is not a valid file name: it begins with a dot");
    ensure!(
        name.len() <= NAME_LEN_MAX,
        "{name:?} is not a valid file name: it is longer than {NAME_LEN_MAX} bytes"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_names_that_terminals_interpret() {
        for name in ["\x1b[2J", "a\nb", "a\u{9b}2J", "\u{7f}", "a\u{202e}gnp.exe", "\u{2066}x"] {
            assert!(check_name(name).is_err(), "{name:?}");
            assert!(!sanitize(name).contains(is_unsafe), "{name:?}");
        }
        check_name("Straße 1 – été.tar").expect("valid name");
    }

    #[test]
    fn rejects_names_outside_the_folder_and_hidden_ones() {
        check_file_name("a b.tar").expect("valid name");
        let long = "x".repeat(256);
        let names = ["", ".", "..", "../x", "/x", "x/y", "x/", "x\ny", "\x1b[2J", ".bashrc", &long];
        for name in names {
            assert!(check_file_name(name).is_err(), "{name:?}");
        }
    }
}
