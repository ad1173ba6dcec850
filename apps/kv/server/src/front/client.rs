//! `CLIENT`: what connections say of themselves.

use onepipe_kv::Value;

use super::commands::{bulk, error, wrong_subcommand};
use super::peer::Peer;
use super::request::parse_integer;

/// The longest name of a client or a library, in bytes.
const NAME_MAX: usize = 1 << 10;

const SUBCOMMANDS: &[&str] =
    &["id", "getname", "setname", "setinfo", "info", "list", "no-evict", "no-touch", "reply"];

/// Executes `CLIENT`.
pub(super) fn client(peer: &mut Peer, arguments: &[Vec<u8>]) -> Value {
    let subcommand = arguments[1].to_ascii_uppercase();
    match (subcommand.as_slice(), &arguments[2..]) {
        (b"ID", []) => Value::Integer(i64::try_from(peer.client.id).unwrap_or(i64::MAX)),
        (b"GETNAME", []) => match peer.client.labels().name.as_slice() {
            b"" => Value::Null,
            name => bulk(name),
        },
        (b"SETNAME", [name]) => set_name(peer, name).err().unwrap_or(Value::Ok),
        (b"SETINFO", [attribute, value]) => set_info(peer, attribute, value),
        (b"INFO", []) => bulk(peer.client.line()),
        (b"LIST", rest) => list(peer, rest),
        (b"NO-EVICT" | b"NO-TOUCH", [switch]) => match switch.to_ascii_uppercase().as_slice() {
            b"ON" | b"OFF" => Value::Ok,
            _ => error("ERR syntax error"),
        },
        (b"REPLY", [_]) => error("ERR CLIENT REPLY is not supported: every command has a reply"),
        _ => wrong_subcommand("client", SUBCOMMANDS, arguments),
    }
}

/// Sets the name of the client. A name has no spaces, so that `CLIENT LIST` can be parsed.
pub(super) fn set_name(peer: &Peer, name: &[u8]) -> Result<(), Value> {
    check_label(name, "Client names")?;
    peer.client.labels().name = name.to_vec();
    Ok(())
}

fn set_info(peer: &Peer, attribute: &[u8], value: &[u8]) -> Value {
    let mut labels = peer.client.labels();
    let (label, what) = match attribute.to_ascii_uppercase().as_slice() {
        b"LIB-NAME" => (&mut labels.library_name, "lib-name"),
        b"LIB-VER" => (&mut labels.library_version, "lib-ver"),
        other => {
            let other = String::from_utf8_lossy(&other[..other.len().min(128)]);
            return error(format!("ERR Unrecognized option '{other}'"));
        }
    };
    match check_label(value, what) {
        Ok(()) => {
            *label = value.to_vec();
            Value::Ok
        }
        Err(error) => error,
    }
}

fn check_label(label: &[u8], what: &str) -> Result<(), Value> {
    if label.len() > NAME_MAX {
        return Err(error(format!("ERR {what} cannot be longer than {NAME_MAX} bytes")));
    }
    match label.iter().all(u8::is_ascii_graphic) {
        true => Ok(()),
        false => {
            Err(error(format!("ERR {what} cannot contain spaces, newlines or special characters.")))
        }
    }
}

fn list(peer: &Peer, arguments: &[Vec<u8>]) -> Value {
    let ids: Option<Vec<u64>> = match arguments {
        [] => None,
        [option, ids @ ..] if option.eq_ignore_ascii_case(b"ID") && !ids.is_empty() => {
            let ids = ids.iter().map(|id| parse_integer(id)?.try_into().ok());
            match ids.collect() {
                Some(ids) => Some(ids),
                None => return error("ERR Invalid client ID"),
            }
        }
        [option, kind] if option.eq_ignore_ascii_case(b"TYPE") => {
            match kind.to_ascii_uppercase().as_slice() {
                b"NORMAL" => None,
                // There are no replicas and no subscribers among the clients.
                b"MASTER" | b"REPLICA" | b"SLAVE" | b"PUBSUB" => Some(Vec::new()),
                _ => return error("ERR Unknown client type"),
            }
        }
        _ => return error("ERR syntax error"),
    };
    let clients = peer.service.clients.list(ids.as_deref());
    bulk(clients.iter().map(|client| client.line()).collect::<String>())
}
