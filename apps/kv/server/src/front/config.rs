//! `CONFIG GET` of the parameters that clients look at.

use onepipe_kv::Value;

use super::commands::{bulk, error, wrong_subcommand};
use super::options::FrontOptions;
use super::request::BULK_MAX;

/// Executes `CONFIG`.
pub(super) fn config(options: &FrontOptions, arguments: &[Vec<u8>]) -> Value {
    let subcommand = arguments[1].to_ascii_uppercase();
    match (subcommand.as_slice(), &arguments[2..]) {
        (b"GET", patterns @ [_, ..]) => get(options, patterns),
        (b"SET", [_, _, ..]) => error("ERR CONFIG SET is not supported: give options at the start"),
        _ => wrong_subcommand("config", &["get", "set"], arguments),
    }
}

fn get(options: &FrontOptions, patterns: &[Vec<u8>]) -> Value {
    let parameters = [
        ("appendonly", "no".to_string()),
        ("client-query-buffer-limit", options.transaction_bytes_max.to_string()),
        ("cluster-enabled", "no".to_string()),
        ("databases", "1".to_string()),
        ("maxclients", options.clients_max.to_string()),
        ("maxmemory", "0".to_string()),
        ("maxmemory-policy", "noeviction".to_string()),
        ("proto-max-bulk-len", options.value_max.min(BULK_MAX).to_string()),
        ("save", String::new()),
        ("timeout", "0".to_string()),
    ];
    let is_asked = |name: &str| patterns.iter().any(|pattern| matches(pattern, name.as_bytes()));
    let asked = parameters.into_iter().filter(|(name, _)| is_asked(name));
    Value::Map(asked.map(|(name, value)| (bulk(name), bulk(value))).collect())
}

/// Returns whether a name matches a pattern: the name itself, or its first bytes and `*`.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match pattern.split_last() {
        Some((b'*', prefix)) => {
            name.len() >= prefix.len() && name[..prefix.len()].eq_ignore_ascii_case(prefix)
        }
        _ => name.eq_ignore_ascii_case(pattern),
    }
}
