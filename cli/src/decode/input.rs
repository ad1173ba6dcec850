//! Bytes of a frame from the command line, from a file or from standard input.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Longest input: the text of the longest frame with comments.
const INPUT_LEN_MAX: u64 = 4 << 20;

/// Reads a file of text if it is one, and the bytes themselves otherwise.
pub(super) fn file(path: &Path) -> Result<Vec<u8>> {
    let at = || format!("cannot read {}", path.display());
    let open = std::fs::File::open(path).with_context(at)?;
    let mut bytes = Vec::new();
    open.take(INPUT_LEN_MAX).read_to_end(&mut bytes).with_context(at)?;
    match std::str::from_utf8(&bytes).ok().filter(|text| !text.contains('\0')) {
        Some(text) => parse(text).with_context(at),
        None => Ok(bytes),
    }
}

/// Parses the arguments, or standard input if they are one hyphen.
pub(super) fn bytes(arguments: &[String]) -> Result<Vec<u8>> {
    if arguments == ["-"] {
        let mut text = String::new();
        let read = std::io::stdin().take(INPUT_LEN_MAX).read_to_string(&mut text);
        read.context("cannot read standard input")?;
        return parse(&text);
    }
    parse(&arguments.join(" "))
}

/// Parses bytes in hexadecimal, with or without spaces between them. On each line `#` begins a
/// comment, and a label ends with `:`; a line that begins with `@` is no part of the frame.
fn parse(text: &str) -> Result<Vec<u8>> {
    let mut digits = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("");
        if line.starts_with('@') {
            continue;
        }
        let bytes = line.rsplit(':').next().unwrap_or("");
        for digit in bytes.chars().filter(|digit| !digit.is_whitespace()) {
            let Some(value) = digit.to_digit(16) else {
                bail!("line {}: {digit:?} is no hexadecimal digit", number + 1)
            };
            digits.push(value as u8);
        }
    }
    if !digits.len().is_multiple_of(2) {
        bail!("{} hexadecimal digits: a byte has two", digits.len());
    }
    Ok(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_bytes_in_all_forms() {
        for text in ["0d fe", "0dfe", "@ near = 5\nlabel:  0d # 13\n\nfe", "0D\nFE"] {
            assert_eq!(parse(text).expect("bytes"), [0x0d, 0xfe], "{text:?}");
        }
    }

    #[test]
    fn refuses_what_is_no_byte() {
        for (text, refusal) in
            [("0d\nxy", "line 2: 'x' is no"), ("0d f", "3 hexadecimal digits: a byte has two")]
        {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(refusal), "{error}");
        }
    }
}
