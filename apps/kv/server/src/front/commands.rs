//! The commands of connections: those that no shard executes.

use onepipe_kv::Value;

/// A command of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Auth,
    Client,
    Cluster,
    Command,
    Config,
    Discard,
    Exec,
    Hello,
    Info,
    Multi,
    Ping,
    Quit,
    /// `ECHO`.
    Repeat,
    Reset,
    Select,
    Unwatch,
    Wait,
    Watch,
}

/// A command of a connection as `COMMAND` describes it.
#[derive(Debug)]
pub(super) struct ConnectionSpec {
    pub name: &'static str,
    pub command: Name,
    /// Number of arguments with the name; if negative, the least number.
    pub arity: i64,
}

const fn spec(name: &'static str, command: Name, arity: i64) -> ConnectionSpec {
    ConnectionSpec { name, command, arity }
}

/// All commands of connections.
pub(super) const COMMANDS: &[ConnectionSpec] = &[
    spec("auth", Name::Auth, -2),
    spec("client", Name::Client, -2),
    spec("cluster", Name::Cluster, -2),
    spec("command", Name::Command, -1),
    spec("config", Name::Config, -2),
    spec("discard", Name::Discard, 1),
    spec("echo", Name::Repeat, 2),
    spec("exec", Name::Exec, 1),
    spec("hello", Name::Hello, -1),
    spec("info", Name::Info, -1),
    spec("multi", Name::Multi, 1),
    spec("ping", Name::Ping, -1),
    spec("quit", Name::Quit, -1),
    spec("reset", Name::Reset, 1),
    spec("select", Name::Select, 2),
    spec("unwatch", Name::Unwatch, 1),
    spec("wait", Name::Wait, 3),
    spec("watch", Name::Watch, -2),
];

/// Returns the command of a connection with this name in upper or lower case.
pub(super) fn find(name: &[u8]) -> Option<&'static ConnectionSpec> {
    COMMANDS.iter().find(|spec| name.eq_ignore_ascii_case(spec.name.as_bytes()))
}

/// Returns whether a command may have `count` arguments with its name.
pub(super) fn has_arity(arity: i64, count: usize) -> bool {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    match arity {
        0.. => count == arity,
        _ => count >= -arity,
    }
}

pub(super) fn error(text: impl Into<String>) -> Value {
    Value::Error(text.into())
}

pub(super) fn bulk(text: impl Into<Vec<u8>>) -> Value {
    Value::Bulk(text.into())
}

pub(super) fn count(count: usize) -> Value {
    Value::Integer(i64::try_from(count).unwrap_or(i64::MAX))
}

/// Returns the error about a subcommand that does not exist, or about the number of arguments of
/// one of the `known` subcommands.
pub(super) fn wrong_subcommand(name: &str, known: &[&str], arguments: &[Vec<u8>]) -> Value {
    let given = arguments.get(1).map(Vec::as_slice).unwrap_or_default();
    match known.iter().find(|known| given.eq_ignore_ascii_case(known.as_bytes())) {
        Some(known) => wrong_arity(&format!("{name}|{known}")),
        None => {
            let given = String::from_utf8_lossy(&given[..given.len().min(128)]);
            let name = name.to_ascii_uppercase();
            error(format!("ERR unknown subcommand '{given}'. Try {name} HELP."))
        }
    }
}

/// Returns the error about a number of arguments.
pub(super) fn wrong_arity(name: &str) -> Value {
    error(format!("ERR wrong number of arguments for '{name}' command"))
}
