//! `HELLO` and `AUTH`: the version of the protocol, and the password.

use onepipe_kv::Value;

use super::client::set_name;
use super::commands::{bulk, error};
use super::info::REDIS_VERSION;
use super::peer::Peer;
use super::reply::Protocol;
use super::request::parse_integer;

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";

/// Executes `AUTH [user] password`. The only user is `default`.
pub(super) fn auth(peer: &mut Peer, arguments: &[Vec<u8>]) -> Value {
    let accepted = match arguments {
        [_, _] if peer.service.password.is_none() => {
            return error(
                "ERR AUTH <password> called without any password configured for the default user. \
                 Are you sure your configuration is correct?",
            );
        }
        [_, password] => authenticate(peer, b"default", password),
        [_, user, password] => authenticate(peer, user, password),
        _ => return error("ERR syntax error"),
    };
    accepted.err().unwrap_or(Value::Ok)
}

fn authenticate(peer: &mut Peer, user: &[u8], password: &[u8]) -> Result<(), Value> {
    let expected = peer.service.password;
    let is_right = expected.is_none_or(|expected| expected == blake3::hash(password));
    match is_right && user == b"default" {
        true => {
            peer.is_authenticated = true;
            Ok(())
        }
        false => Err(error(WRONG_PASSWORD)),
    }
}

/// Executes `HELLO [version [AUTH user password] [SETNAME name]]`.
pub(super) fn hello(peer: &mut Peer, arguments: &[Vec<u8>]) -> Value {
    match negotiate(peer, &arguments[1..]) {
        Ok(()) => properties(peer),
        Err(error) => error,
    }
}

fn negotiate(peer: &mut Peer, arguments: &[Vec<u8>]) -> Result<(), Value> {
    let (protocol, mut options) = match arguments.split_first() {
        None => (peer.protocol, arguments),
        Some((version, options)) => (protocol(version)?, options),
    };
    let mut name = None;
    while let Some((option, rest)) = options.split_first() {
        options = match rest {
            [user, password, rest @ ..] if option.eq_ignore_ascii_case(b"AUTH") => {
                authenticate(peer, user, password)?;
                rest
            }
            [given, rest @ ..] if option.eq_ignore_ascii_case(b"SETNAME") => {
                name = Some(given);
                rest
            }
            _ => {
                let option = String::from_utf8_lossy(&option[..option.len().min(128)]);
                return Err(error(format!("ERR Syntax error in HELLO option '{option}'")));
            }
        };
    }
    if !peer.is_authenticated {
        return Err(error(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
             select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = name {
        set_name(peer, name)?;
    }
    peer.set_protocol(protocol);
    Ok(())
}

fn protocol(version: &[u8]) -> Result<Protocol, Value> {
    match parse_integer(version) {
        Some(2) => Ok(Protocol::Resp2),
        Some(3) => Ok(Protocol::Resp3),
        Some(_) => Err(error("NOPROTO unsupported protocol version")),
        None => Err(error("ERR Protocol version is not an integer or out of range")),
    }
}

fn properties(peer: &Peer) -> Value {
    let id = i64::try_from(peer.client.id).unwrap_or(i64::MAX);
    Value::Map(vec![
        (bulk("server"), bulk("redis")),
        (bulk("version"), bulk(REDIS_VERSION)),
        (bulk("proto"), Value::Integer(peer.protocol.version())),
        (bulk("id"), Value::Integer(id)),
        (bulk("mode"), bulk("standalone")),
        (bulk("role"), bulk("master")),
        (bulk("modules"), Value::Array(Vec::new())),
    ])
}
