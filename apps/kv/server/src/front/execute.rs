//! The commands of connections that change nothing but the peer.

use onepipe_kv::Value;

use super::commands::{ConnectionSpec, Name, error, wrong_arity};
use super::peer::Peer;
use super::request::parse_integer;
use super::{catalog, client, config, hello, info};

/// Executes a command of the connection.
pub(super) fn execute(peer: &mut Peer, spec: &ConnectionSpec, arguments: &[Vec<u8>]) -> Value {
    match spec.command {
        Name::Auth => hello::auth(peer, arguments),
        Name::Hello => hello::hello(peer, arguments),
        Name::Client => client::client(peer, arguments),
        Name::Cluster => error("ERR This instance has cluster support disabled"),
        Name::Command => catalog::command(arguments),
        Name::Config => config::config(&peer.service.options, arguments),
        Name::Info => info::info(&peer.service, arguments),
        Name::Repeat => Value::Bulk(arguments[1].clone()),
        Name::Ping => match arguments {
            [_] => Value::Simple("PONG".into()),
            [_, text] => Value::Bulk(text.clone()),
            _ => wrong_arity("ping"),
        },
        Name::Select => match parse_integer(&arguments[1]) {
            Some(0) => Value::Ok,
            Some(_) => error("ERR DB index is out of range"),
            None => error("ERR value is not an integer or out of range"),
        },
        Name::Unwatch => Value::Ok,
        Name::Wait => wait(peer.service.options.replicas, arguments),
        Name::Watch => error(
            "ERR WATCH is not supported: transactions take place in one order, and none is \
             aborted because a key has changed; write what depends on a value as one command \
             (SET with NX, XX or GET, INCRBY, HSETNX, GETDEL), alone or between MULTI and EXEC",
        ),
        // The connection has handled these before, because they change more than the peer.
        Name::Multi | Name::Exec | Name::Discard | Name::Quit | Name::Reset => {
            error("ERR Command not allowed here")
        }
    }
}

/// A reply to a write is sent when all replicas have the write, so there is nothing to wait for.
fn wait(replicas: u32, arguments: &[Vec<u8>]) -> Value {
    let numbers: Vec<_> = arguments[1..].iter().map(|number| parse_integer(number)).collect();
    match numbers[..] {
        [Some(_), Some(0..)] => Value::Integer(i64::from(replicas)),
        [Some(_), Some(_)] => error("ERR timeout is negative"),
        [Some(_), None] => error("ERR timeout is not an integer or out of range"),
        _ => error("ERR value is not an integer or out of range"),
    }
}
