//! `onepipe decode`: prints the fields of frames.

mod body;
mod header;
mod input;

use std::io::{Write, stdout};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use onepipe_base::Timestamp;
use onepipe_wire::Frame;
use serde::Serialize;

const EXAMPLES: &str = "\
Examples:
  onepipe decode 12345678 03e8...        the bytes of one frame
  onepipe decode --file frame.hex        bytes as text, # begins a comment, labels end with :
  onepipe decode --file frame.bin        bytes as they are
  tcpdump -x ... | onepipe decode -      bytes as text from standard input

docs/wire-format.md describes the fields. Exit status: 0 when the frame is valid, 1 when it is not:
the fields that can be read are printed in both cases.";

/// Print the fields of a frame
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Bytes of the frame in hexadecimal; - reads them from standard input
    #[arg(required_unless_present = "file", conflicts_with = "file")]
    bytes: Vec<String>,
    /// File with the bytes, as text or as they are
    #[arg(long, value_name = "PATH")]
    file: Option<std::path::PathBuf>,
    /// Time near which 48-bit timestamps are expanded, in ns since 1970
    #[arg(long, value_name = "NS", default_value_t = 0)]
    near: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// A field with its value as text.
#[derive(Debug, Serialize)]
struct Field {
    name: &'static str,
    value: String,
}

impl Field {
    fn new(name: &'static str, value: impl ToString) -> Self {
        Self { name, value: value.to_string() }
    }

    fn debug(name: &'static str, value: impl std::fmt::Debug) -> Self {
        Self::new(name, format!("{value:?}"))
    }
}

/// What is printed about a frame.
#[derive(Debug, Serialize)]
struct Decoded {
    is_valid: bool,
    /// Why the frame, or its payload, is not valid.
    error: Option<String>,
    header: Vec<Field>,
    payload: Vec<Field>,
}

/// Decodes one frame and prints it.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let bytes = match &arguments.file {
        Some(path) => input::file(path)?,
        None => input::bytes(&arguments.bytes)?,
    };
    let decoded = decode(&bytes, Timestamp::from_ns(arguments.near));
    let text = match arguments.json {
        true => serde_json::to_string(&decoded)? + "\n",
        false => table(&decoded),
    };
    stdout().write_all(text.as_bytes())?;
    Ok(if decoded.is_valid { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn decode(bytes: &[u8], near: Timestamp) -> Decoded {
    let header = header::fields(bytes, near);
    // The payload of a frame with a wrong check may still explain what has happened to it.
    let (frame, mut error) = match Frame::parse(bytes) {
        Ok(frame) => (Some(frame), None),
        Err(refusal) => (Frame::parse_unsummed(bytes).ok(), Some(refusal.to_string())),
    };
    let mut payload = Vec::new();
    if let Some(frame) = frame
        && let Err(refusal) = body::fields(&frame, near, &mut payload)
    {
        error.get_or_insert_with(|| format!("payload: {refusal}"));
    }
    Decoded { is_valid: error.is_none(), error, header, payload }
}

fn table(decoded: &Decoded) -> String {
    let mut lines = String::new();
    for (part, fields) in [("header", &decoded.header), ("payload", &decoded.payload)] {
        if fields.is_empty() {
            continue;
        }
        lines.push_str(part);
        lines.push('\n');
        let width = fields.iter().map(|field| field.name.len()).max().unwrap_or(0);
        for Field { name, value } in fields {
            lines.push_str(&format!("  {name:width$}  {value}\n"));
        }
    }
    match &decoded.error {
        None => lines.push_str("valid\n"),
        Some(error) => lines.push_str(&format!("not valid: {error}\n")),
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn golden() -> Vec<(String, Vec<u8>)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../protocol/wire/testdata");
        let entries = std::fs::read_dir(folder).expect("golden frames");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        let hex = paths.filter(|path| path.extension().is_some_and(|end| end == "hex"));
        let read = |path: std::path::PathBuf| {
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            (name, input::file(&path).expect("bytes"))
        };
        hex.map(read).collect()
    }

    #[test]
    fn decodes_every_golden_frame() {
        let golden = golden();
        assert!(golden.len() > 80, "{} golden frames", golden.len());
        for (name, bytes) in golden {
            let decoded = decode(&bytes, Timestamp::from_ns(1_145_915_905_146_880));
            assert_eq!(decoded.error, None, "{name}");
            assert!(decoded.header.len() >= 9, "{name}");
            let length = decoded.header.iter().find(|field| field.name == "length");
            let is_empty = length.is_some_and(|field| field.value == "0");
            let has_no_content = is_empty || ["join-not-admitted", "leave-ack"].contains(&&*name);
            assert_eq!(decoded.payload.is_empty(), has_no_content, "{name}");
        }
    }

    #[test]
    fn explains_damaged_frames_without_a_panic() {
        for (name, bytes) in golden() {
            for at in 0..bytes.len().min(200) {
                let mut damaged = bytes.clone();
                damaged[at] ^= 0xff;
                let decoded = decode(&damaged, Timestamp::from_ns(0));
                let text = table(&decoded);
                assert_eq!(text.contains("not valid: "), !decoded.is_valid, "{name}");
                let _ = decode(&bytes[..at], Timestamp::from_ns(0));
            }
        }
    }
}
