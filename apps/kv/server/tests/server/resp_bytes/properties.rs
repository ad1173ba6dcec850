//! Properties of a connection that receives any bytes. Shared with `verify/fuzz`.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use onepipe_kv::{Command, Value};
use onepipe_kv_server::front::{Connection, FrontOptions, Service};
use onepipe_kv_server::{Backend, BackendError, Replies};

/// A backend that executes nothing.
struct Unused;

impl Backend for Unused {
    fn begin(&self, _commands: Vec<Command>, on_replies: Box<dyn FnOnce(Replies) + Send>) {
        on_replies(Err(BackendError::Busy(0)));
    }

    fn shards(&self) -> u16 {
        3
    }

    fn info(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// Bit of the mode with which no transaction fails.
const NEVER_FAILS: u8 = 8;
/// Bit of the mode with which a connection is soon closed if its client does not read.
const CLOSES: u8 = 4;

fn options(mode: u8) -> FrontOptions {
    FrontOptions {
        password: (mode & 1 != 0).then(|| "x".to_string()),
        value_max: 64,
        transaction_bytes_max: 512,
        transaction_commands_max: 4,
        batch_commands_max: 3,
        batch_bytes_max: 256,
        input_max: 128,
        output_pause: if mode & 2 != 0 { 64 } else { 1 << 20 },
        output_max: if mode & CLOSES != 0 { 4_096 } else { 1 << 20 },
        ..FrontOptions::default()
    }
}

/// Returns the replies to a transaction. Some fail, unless the mode excludes that.
fn replies(mode: u8, count: usize) -> Replies {
    match count % 4 {
        3 if mode & NEVER_FAILS == 0 => Err(BackendError::Busy(count)),
        _ => Ok((0..count).map(|_| Value::Map(vec![(Value::Ok, Value::NullArray)])).collect()),
    }
}

/// Passes bytes to a connection in chunks, as a driver does. Returns what the connection sent.
///
/// Each step makes progress: the connection reads, begins a transaction, sends, or has ended.
fn drive(mode: u8, bytes: &[u8], chunk: usize) -> Vec<u8> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let service = Service::new(Arc::new(Unused), options(mode), address);
    let mut connection = Connection::open(&service, address).expect("it is the first client");
    let mut sent = Vec::new();
    for bytes in bytes.chunks(chunk) {
        advance(mode, &mut connection, &mut sent);
        let can_proceed = connection.is_closed() || connection.wants_input();
        assert!(can_proceed, "the connection neither reads nor ends");
        connection.handle_input(bytes);
    }
    advance(mode, &mut connection, &mut sent);
    sent
}

/// Executes and sends until the connection needs input.
fn advance(mode: u8, connection: &mut Connection, sent: &mut Vec<u8>) {
    loop {
        if let Some(commands) = connection.poll_transaction() {
            assert!(connection.is_in_flight() && !commands.is_empty());
            assert!(commands.len() <= 4, "a transaction is limited");
            assert!(connection.poll_transaction().is_none(), "one transaction is in flight");
            connection.handle_replies(replies(mode, commands.len()));
        } else if connection.output().is_empty() {
            return;
        }
        let output = connection.output();
        sent.extend_from_slice(output);
        let count = output.len();
        connection.handle_sent(count);
    }
}

/// Checks a connection that receives `bytes`, of which the first chooses the options: it never
/// panics, it always reads or ends, its replies are lines, and they do not depend on how the bytes
/// are divided.
pub fn check_connection(bytes: &[u8]) {
    let Some((mode, bytes)) = bytes.split_first() else { return };
    let outputs = [1, 7, 100].map(|chunk| drive(*mode, bytes, chunk));
    for sent in &outputs {
        assert!(sent.is_empty() || sent.ends_with(b"\r\n"), "{}", sent.escape_ascii());
        if let Some(first) = sent.first() {
            assert!(b"+-:$*_%~,".contains(first), "{}", sent.escape_ascii());
        }
    }
    // INFO has counters, and CLIENT has times.
    let upper = bytes.to_ascii_uppercase();
    let has = |word: &[u8]| upper.windows(word.len()).any(|window| window == word);
    if mode & (CLOSES | NEVER_FAILS) == NEVER_FAILS && !has(b"INFO") && !has(b"CLIENT") {
        let [first, others @ ..] = &outputs;
        for other in others {
            assert_eq!(first.escape_ascii().to_string(), other.escape_ascii().to_string());
        }
    }
}
