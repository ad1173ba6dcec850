//! `COMMAND`: the commands that the front understands.

use onepipe_kv::{Access, Command, Value};

use super::commands::{COMMANDS, bulk, count, wrong_subcommand};

/// A command as `COMMAND` describes it.
struct Entry {
    name: &'static str,
    arity: i64,
    flags: &'static [&'static str],
    keys: [i64; 3],
}

impl Entry {
    fn all() -> impl Iterator<Item = Self> {
        let data = Command::specs().map(|spec| Self {
            name: spec.name,
            arity: spec.arity,
            flags: match spec.access {
                Access::Read => &["readonly"],
                Access::Write => &["write", "denyoom"],
            },
            keys: [spec.keys.first, spec.keys.last, spec.keys.step],
        });
        let connection = COMMANDS.iter().map(|spec| Self {
            name: spec.name,
            arity: spec.arity,
            flags: &["loading", "stale", "fast"],
            keys: [0; 3],
        });
        data.chain(connection)
    }

    fn describe(&self) -> Value {
        let flags = self.flags.iter().map(|flag| Value::Simple((*flag).into())).collect();
        let [first, last, step] = self.keys.map(Value::Integer);
        let empty = || Value::Array(Vec::new());
        Value::Array(vec![
            bulk(self.name),
            Value::Integer(self.arity),
            Value::Set(flags),
            first,
            last,
            step,
            // Access categories, tips, key specifications and subcommands.
            Value::Set(Vec::new()),
            empty(),
            empty(),
            empty(),
        ])
    }
}

/// Executes `COMMAND`.
pub(super) fn command(arguments: &[Vec<u8>]) -> Value {
    let Some(subcommand) = arguments.get(1) else {
        return Value::Array(Entry::all().map(|entry| entry.describe()).collect());
    };
    match (subcommand.to_ascii_uppercase().as_slice(), &arguments[2..]) {
        (b"COUNT", []) => count(Entry::all().count()),
        (b"DOCS", _) => Value::Map(Vec::new()),
        (b"LIST", []) => Value::Array(Entry::all().map(|entry| bulk(entry.name)).collect()),
        (b"INFO", []) => Value::Array(Entry::all().map(|entry| entry.describe()).collect()),
        (b"INFO", names) => Value::Array(names.iter().map(|name| describe(name)).collect()),
        _ => wrong_subcommand("command", &["count", "list"], arguments),
    }
}

fn describe(name: &[u8]) -> Value {
    let entry = Entry::all().find(|entry| name.eq_ignore_ascii_case(entry.name.as_bytes()));
    entry.map_or(Value::Null, |entry| entry.describe())
}
