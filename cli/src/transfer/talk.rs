//! What both ends say to each other: each word is an object, a line of JSON and bytes behind it.

use anyhow::{Context, Result, anyhow, ensure};
use serde::{Deserialize, Serialize};

/// What is spoken here; both ends must speak the same.
pub const VERSION: u32 = 1;
/// The line is never longer.
const LINE_LEN_MAX: usize = 1 << 16;

/// A word, and which file it is about: the sender has chosen its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// What is spoken.
    pub version: u32,
    /// The number of the file, by which its words are told from those of others.
    pub file: u64,
    /// The word.
    pub word: Word,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Word {
    /// Of a sender: a file of this name is coming; its bytes, if they are known.
    Begin { name: String, bytes: Option<u64> },
    /// Of a receiver: let it come.
    Ready,
    /// Of a sender: bytes of it, from there on.
    Chunk { offset: u64 },
    /// Of a receiver: so much of it is where it belongs.
    Written { bytes: u64 },
    /// Of a sender: that was all of it.
    End { bytes: u64, digest: String },
    /// Of a receiver: it has it.
    Done,
    /// Of a sender that has nothing else to say.
    Here,
    /// Nothing comes of it.
    Failed { why: String },
}

/// An object that says this.
pub fn write(file: u64, word: Word, bytes: &[u8]) -> Vec<u8> {
    let line = Line { version: VERSION, file, word };
    let mut object = serde_json::to_vec(&line).expect("numbers and text");
    object.reserve_exact(1 + bytes.len());
    object.push(b'\n');
    object.extend_from_slice(bytes);
    object
}

/// What an object says, and where its bytes begin.
pub fn read(object: &[u8]) -> Result<(Line, usize)> {
    let front = &object[..object.len().min(LINE_LEN_MAX)];
    let end = front.iter().position(|byte| *byte == b'\n').context("no line")?;
    let line = serde_json::from_slice(&object[..end]).map_err(|error| plain(&error.to_string()));
    let mut line: Line = line.map_err(|why| anyhow!("what it says makes no sense: {why}"))?;
    if let Word::Failed { why } = &mut line.word {
        *why = plain(why);
    }
    ensure!(line.version == VERSION, "it speaks version {}, this is {VERSION}", line.version);
    Ok((line, end + 1))
}

/// What another process says, for a terminal.
fn plain(text: &str) -> String {
    let shown = |character: char| match character.is_control() {
        true => char::REPLACEMENT_CHARACTER,
        false => character,
    };
    text.chars().map(shown).collect()
}

/// A terminal would obey to a name with control characters.
pub fn check_name(name: &str) -> Result<()> {
    ensure!(!name.contains(char::is_control), "{name:?} is no name: it has control characters");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let word = Word::Chunk { offset: u64::MAX };
        let object = write(u64::MAX - 1, word.clone(), b"1\n2\n");
        let (line, at) = read(&object).expect("it is one");
        assert_eq!((line.file, line.word, &object[at..]), (u64::MAX - 1, word, &b"1\n2\n"[..]));
    }

    #[test]
    fn what_is_no_word_is_refused() {
        let other = write(1, Word::Ready, b"");
        let other =
            String::from_utf8(other).expect("text").replace("\"version\":1", "\"version\":2");
        for object in [&b""[..], b"\n", b"{}\n", b"no line", other.as_bytes()] {
            assert!(read(object).is_err(), "{object:?}");
        }
        assert!(read(&vec![b' '; 1 << 20]).is_err());
    }
    #[test]
    fn nothing_that_is_heard_commands_a_terminal() {
        for name in ["\x1b[2J", "a\nb", "a\u{9b}2J", "\u{7f}"] {
            assert!(check_name(name).is_err(), "{name:?}");
            let object = write(1, Word::Failed { why: name.to_owned() }, b"");
            let (line, _) = read(&object).expect("it is one");
            let Word::Failed { why } = line.word else { panic!("{:?}", line.word) };
            assert!(!why.contains(char::is_control), "{why:?}");
            let object = br#"{"version":1,"file":1,"word":"\u001b[2J"}"#;
            let why = read(&[object, &b"\n"[..]].concat()).expect_err("there is no such word");
            assert!(!format!("{why:#}").contains(char::is_control), "{why:?}");
        }
        check_name("Straße 1 – été.tar").expect("it is a name");
    }
}
