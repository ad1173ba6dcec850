//! `onepipe kv cli`: a client of the protocol of Redis, for a terminal and for scripts.

mod connection;
mod reply;

use std::ffi::OsString;
use std::io::{BufRead, IsTerminal, Write, stdin, stdout};
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{ArgAction, Args};
use onepipe_kv_server::front::split_words;
use redis::Value;

use connection::Connection;
use reply::{Format, error_text};

const EXAMPLES: &str = "\
Examples:
  onepipe kv cli MSET alice 100 bob 50    one transaction over two shards
  onepipe kv cli                          reads commands, one on a line; MULTI and EXEC work
  onepipe kv cli -p 7000 --json MGET a b | jq '.[0]'
  printf 'MULTI\\nINCR a\\nINCR b\\nEXEC\\n' | onepipe kv cli

Replies are written for people on a terminal, and raw otherwise (--no-raw, --json). The exit
status is 1 if a reply is an error.";

/// Send commands to a store, or to any server of the protocol of Redis
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, disable_help_flag = true)]
pub struct Arguments {
    /// Host of the server
    #[arg(short = 'h', long, value_name = "HOST", default_value = "127.0.0.1")]
    host: String,
    /// Port of the server
    #[arg(short, long, value_name = "PORT", default_value_t = 6379)]
    port: u16,
    /// Password of the server [default: none]
    #[arg(long, value_name = "TEXT", env = "ONEPIPE_KV_PASSWORD", hide_env_values = true)]
    password: Option<String>,
    /// Print each reply as JSON on a line; a string that is not UTF-8 has a character for each byte
    #[arg(long)]
    json: bool,
    /// Write replies for people, whatever the output is
    #[arg(long, conflicts_with = "json")]
    no_raw: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
    /// Command and its arguments [default: commands from standard input, one on a line]
    #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Executes the command, or those of standard input.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let is_for_people = arguments.no_raw || stdout().is_terminal();
    let format = match (arguments.json, is_for_people) {
        (true, _) => Format::Json,
        (false, true) => Format::Pretty,
        (false, false) => Format::Raw,
    };
    let mut session = Session::connect(arguments, format)?;
    if arguments.command.is_empty() {
        session.read_commands()?;
    } else {
        let words: Vec<Vec<u8>> =
            arguments.command.iter().map(|word| word.clone().into_vec()).collect();
        session.execute(&words)?;
    }
    Ok(if session.has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// A connection, and what is printed.
struct Session {
    connection: Connection,
    format: Format,
    /// Whether a reply was an error.
    has_failed: bool,
}

impl Session {
    fn connect(arguments: &Arguments, format: Format) -> Result<Self> {
        let mut connection = Connection::open(&arguments.host, arguments.port)?;
        if let Some(password) = &arguments.password {
            connection.authenticate(password)?;
        }
        Ok(Self { connection, format, has_failed: false })
    }

    /// Executes each line of standard input, until it ends or says so.
    fn read_commands(&mut self) -> Result<()> {
        let mut input = stdin().lock();
        let is_asking = input.is_terminal();
        let mut is_queueing = false;
        loop {
            if is_asking {
                let prompt = if is_queueing { "(TX)> " } else { "> " };
                let mut out = stdout();
                write!(out, "{}{prompt}", self.connection.address())
                    .and_then(|()| out.flush())
                    .context("cannot print")?;
            }
            let mut line = Vec::new();
            if input.read_until(b'\n', &mut line).context("cannot read commands")? == 0 {
                return Ok(());
            }
            let Some(words) = split_words(&line) else {
                eprintln!("onepipe: a quote is not closed, or a word follows it without a space");
                self.has_failed = true;
                continue;
            };
            let Some(name) = words.first().map(|name| name.to_ascii_lowercase()) else { continue };
            match name.as_slice() {
                b"exit" | b"quit" => return Ok(()),
                b"multi" => is_queueing = true,
                b"exec" | b"discard" => is_queueing = false,
                _ => {}
            }
            self.execute(&words)?;
        }
    }

    /// Executes a command, and prints its reply.
    fn execute(&mut self, words: &[Vec<u8>]) -> Result<()> {
        let reply = self.connection.request(words)?;
        if let Value::ServerError(error) = &reply {
            self.has_failed = true;
            if error_text(error).starts_with("NOAUTH") {
                eprintln!("onepipe: the server wants a password: --password TEXT");
            }
        }
        let mut out = stdout();
        out.write_all(&self.format.write(&reply)).context("cannot print")
    }
}
