//! Errors of commands, in the words of Redis.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Number of bytes shown of an unknown name, and of its arguments together, as in Redis.
const SHOWN_MAX: usize = 128;

/// A command that cannot be executed. It is displayed as the error reply of Redis.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// The store has no such command.
    #[error("ERR unknown command '{name}', with args beginning with: {arguments}")]
    Unknown {
        /// Name as the client wrote it.
        name: String,
        /// First arguments, each in quotes.
        arguments: String,
    },
    /// The command has another number of arguments.
    #[error("ERR wrong number of arguments for '{0}' command")]
    Arity(&'static str),
    /// An option is unknown, or excludes another.
    #[error("ERR syntax error")]
    Syntax,
    /// An argument is not an integer.
    #[error("ERR value is not an integer or out of range")]
    NotInteger,
    /// An argument is not a number.
    #[error("ERR value is not a valid float")]
    NotFloat,
    /// An expiry is zero, negative or too far ahead.
    #[error("ERR invalid expire time in '{0}' command")]
    InvalidExpiry(&'static str),
    /// An expiry command has an unknown option.
    #[error("ERR Unsupported option {0}")]
    UnsupportedOption(String),
    /// Another error.
    #[error("ERR {0}")]
    Other(&'static str),
}

impl CommandError {
    pub(super) fn unknown(arguments: &[Vec<u8>]) -> Self {
        let name = arguments.first().map(Vec::as_slice).unwrap_or_default();
        let mut shown = String::new();
        for argument in arguments.iter().skip(1) {
            if shown.len() >= SHOWN_MAX {
                break;
            }
            let text = printable(argument, SHOWN_MAX - shown.len());
            shown.push_str(&format!("'{text}' "));
        }
        Self::Unknown { name: printable(name, SHOWN_MAX), arguments: shown }
    }

    pub(super) fn unsupported_option(option: &[u8]) -> Self {
        Self::UnsupportedOption(printable(option, SHOWN_MAX))
    }
}

/// Returns at most `max` bytes as text. An error reply is one line.
fn printable(bytes: &[u8], max: usize) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(max)]).to_string();
    text.replace(['\r', '\n'], " ")
}
