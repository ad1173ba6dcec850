use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use super::*;
use crate::backend::Backend;
use crate::front::FrontOptions;

/// A backend that executes nothing: the tests make the replies.
struct Unused;

impl Backend for Unused {
    fn begin(&self, _commands: Vec<Command>, _on_replies: Box<dyn FnOnce(Replies) + Send>) {
        unreachable!("a connection begins no transaction by itself");
    }

    fn shards(&self) -> u16 {
        3
    }

    fn info(&self) -> Vec<(&'static str, String)> {
        vec![("barrier", "17".into())]
    }
}

const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 6_379);

fn connection_with(options: FrontOptions) -> Connection {
    let service = Service::new(Arc::new(Unused), options, ADDRESS);
    Connection::open(&service, ADDRESS).expect("it is the first client")
}

fn connection() -> Connection {
    connection_with(FrontOptions::default())
}

fn names(commands: &[Command]) -> Vec<&'static str> {
    commands.iter().map(Command::name).collect()
}

/// Sends lines. Returns the names of the commands of each transaction, whose replies are OK, and
/// the output.
fn exchange(connection: &mut Connection, lines: &str) -> (Vec<Vec<&'static str>>, String) {
    connection.handle_input(lines.replace('\n', "\r\n").as_bytes());
    let mut transactions = Vec::new();
    while let Some(commands) = connection.poll_transaction() {
        assert!(connection.poll_transaction().is_none(), "one transaction is in flight");
        transactions.push(names(&commands));
        connection.handle_replies(Ok(vec![Value::Ok; commands.len()]));
    }
    (transactions, take_output(connection))
}

fn take_output(connection: &mut Connection) -> String {
    let output = String::from_utf8_lossy(connection.output()).replace("\r\n", "\n");
    connection.handle_sent(connection.output().len());
    output
}

/// Sends lines that need no transaction. Returns the output.
fn replies(connection: &mut Connection, lines: &str) -> String {
    let (transactions, output) = exchange(connection, lines);
    assert_eq!(transactions, [[""; 0]; 0]);
    output
}

#[test]
fn pipelined_commands_are_one_transaction() {
    let mut connection = connection();
    let (transactions, output) = exchange(&mut connection, "set a 1\nget a\nincr b\n");
    assert_eq!(transactions, [["set", "get", "incr"]]);
    assert_eq!(output, "+OK\n+OK\n+OK\n");
    assert_eq!(connection.peer.client.labels().last_command, "incr");
}

#[test]
fn other_commands_wait_for_the_replies_before_them() {
    let mut connection = connection();
    connection.handle_input(b"set a 1\r\nping\r\nget\r\nget a\r\nquit\r\nget b\r\n");
    assert_eq!(connection.poll_transaction().map(|c| names(&c)), Some(vec!["set"]));
    assert_eq!(take_output(&mut connection), "");
    connection.handle_replies(Ok(vec![Value::Ok]));
    assert_eq!(connection.poll_transaction().map(|c| names(&c)), Some(vec!["get"]));
    let arity = "-ERR wrong number of arguments for 'get' command";
    assert_eq!(take_output(&mut connection), format!("+OK\n+PONG\n{arity}\n"));
    connection.handle_replies(Ok(vec![Value::Null]));
    assert!(connection.poll_transaction().is_none());
    assert_eq!(take_output(&mut connection), "$-1\n+OK\n");
    assert!(connection.is_closed() && !connection.wants_input());
}

#[test]
fn batches_are_limited() {
    let options = FrontOptions { batch_commands_max: 2, ..FrontOptions::default() };
    let (transactions, _) = exchange(&mut connection_with(options), &"get a\n".repeat(5));
    assert_eq!(transactions.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 1]);
    // An argument counts 32 bytes besides its own.
    let options =
        FrontOptions { batch_bytes_max: 2 * (3 + 32 + 1 + 32), ..FrontOptions::default() };
    let (transactions, _) = exchange(&mut connection_with(options), &"get a\n".repeat(5));
    assert_eq!(transactions.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 1]);
    let options = FrontOptions { batch_bytes_max: 1, ..FrontOptions::default() };
    let (transactions, _) = exchange(&mut connection_with(options), &"get a\n".repeat(2));
    assert_eq!(transactions.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn blocks_are_one_transaction_with_one_reply() {
    let mut connection = connection();
    let lines = "multi\nset a 1\nping\nset a b c\nget a\nexec\n";
    let (transactions, output) = exchange(&mut connection, lines);
    assert_eq!(transactions, [["set", "get"]]);
    let queued = "+QUEUED\n".repeat(4);
    assert_eq!(output, format!("+OK\n{queued}*4\n+OK\n+PONG\n-ERR syntax error\n+OK\n"));
    assert_eq!(replies(&mut connection, "multi\nexec\n"), "+OK\n*0\n");
    assert_eq!(replies(&mut connection, "multi\necho a\nexec\n"), "+OK\n+QUEUED\n*1\n$1\na\n");
}

#[test]
fn blocks_follow_the_rules_of_redis() {
    let mut connection = connection();
    let abort = "-EXECABORT Transaction discarded because of previous errors.\n";
    let lines = "multi\nset a 1\nget\nset b 1\nexec\n";
    let arity = "-ERR wrong number of arguments for 'get' command\n";
    let output = replies(&mut connection, lines);
    assert_eq!(output, format!("+OK\n+QUEUED\n{arity}+QUEUED\n{abort}"));
    let output = replies(&mut connection, "multi\nnothing\nexec\n");
    assert!(output.starts_with("+OK\n-ERR unknown command 'nothing'"), "{output}");
    assert!(output.ends_with(abort), "{output}");
    let nested = "-ERR MULTI calls can not be nested\n";
    let output = replies(&mut connection, "multi\nmulti\nexec\n");
    assert_eq!(output, format!("+OK\n{nested}*0\n"));
    assert_eq!(replies(&mut connection, "exec\n"), "-ERR EXEC without MULTI\n");
    assert_eq!(replies(&mut connection, "discard\n"), "-ERR DISCARD without MULTI\n");
    assert_eq!(replies(&mut connection, "multi\nset a 1\ndiscard\n"), "+OK\n+QUEUED\n+OK\n");
    let output = replies(&mut connection, "watch a\nunwatch\nmulti\nwatch a\ndiscard\n");
    assert!(output.starts_with("-ERR WATCH is not supported"), "{output}");
    assert!(
        output.ends_with("\n+OK\n+OK\n-ERR WATCH inside MULTI is not allowed\n+OK\n"),
        "{output}"
    );
    assert_eq!(replies(&mut connection, "multi\nset a 1\nreset\n"), "+OK\n+QUEUED\n+RESET\n");
}

#[test]
fn blocks_are_limited() {
    let options = FrontOptions {
        transaction_commands_max: 2,
        transaction_bytes_max: 300,
        value_max: 100,
        ..FrontOptions::default()
    };
    let mut connection = connection_with(options);
    let output = replies(&mut connection, "multi\nget a\nget a\nget a\nexec\n");
    assert!(output.contains("exceeds the limit of 2 commands"), "{output}");
    assert!(output.contains("EXECABORT"), "{output}");
    let value = "v".repeat(100);
    let output = replies(&mut connection, &format!("multi\nset a {value}\nset a {value}\nexec\n"));
    assert!(output.contains("exceeds the limit of 300 bytes"), "{output}");
    assert!(output.contains("EXECABORT"), "{output}");
    let output = replies(&mut connection, &format!("multi\nset a {value}v\nexec\n"));
    assert!(output.contains("101 bytes exceeds the limit of 100 bytes (value_max)"), "{output}");
    assert!(output.contains("EXECABORT"), "{output}");
}

#[test]
fn errors_of_the_backend_are_errors_of_each_command() {
    for (failure, class) in [
        (BackendError::Unavailable(2), "-CLUSTERDOWN no replica of shard 2 is up"),
        (BackendError::Busy(9), "-TRYAGAIN 9 transactions are unfinished"),
        (BackendError::Ended("it was\r\nstopped".into()), "-ERR this node has ended: it was  stop"),
        (BackendError::Results("odd".into()), "-ERR the results of the shards cannot be used: odd"),
    ] {
        let mut connection = connection();
        connection.handle_input(b"get a\r\nget b\r\n");
        assert!(connection.poll_transaction().is_some());
        connection.handle_replies(Err(failure.clone()));
        let output = take_output(&mut connection);
        assert_eq!(output.matches(class).count(), 2, "{output}");
        connection.handle_input(b"multi\r\nget a\r\nget b\r\nexec\r\n");
        assert!(connection.poll_transaction().is_some());
        connection.handle_replies(Err(failure));
        let output = take_output(&mut connection);
        assert_eq!(output.matches(class).count(), 1, "{output}");
    }
    let mut connection = connection();
    connection.handle_input(b"get a\r\nget b\r\n");
    assert!(connection.poll_transaction().is_some());
    connection.handle_replies(Ok(vec![Value::Ok]));
    assert_eq!(take_output(&mut connection).matches("of 2 commands has 1 replies").count(), 2);
}

#[test]
fn passwords_are_required() {
    let password = Some("secret".to_string());
    let mut connection = connection_with(FrontOptions { password, ..FrontOptions::default() });
    let no_auth = "-NOAUTH Authentication required.\n";
    assert_eq!(replies(&mut connection, "get a\nping\nmulti\n"), no_auth.repeat(3));
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\n";
    let output = replies(&mut connection, "auth no\nauth other secret\nhello 3 auth default no\n");
    assert_eq!(output, wrong.repeat(3));
    assert!(replies(&mut connection, "hello 3\n").starts_with("-NOAUTH HELLO must be called"));
    assert_eq!(replies(&mut connection, "auth secret\nping\n"), "+OK\n+PONG\n");
    assert_eq!(replies(&mut connection, "reset\nping\n"), format!("+RESET\n{no_auth}"));
    let output =
        replies(&mut connection, "hello 3 auth default secret setname me\nclient getname\n");
    assert!(output.starts_with("%7\n$6\nserver\n"), "{output}");
    assert!(output.ends_with("$2\nme\n"), "{output}");
}

#[test]
fn hello_chooses_the_protocol() {
    let mut connection = connection();
    assert!(replies(&mut connection, "hello\n").contains("$5\nproto\n:2\n"));
    assert_eq!(replies(&mut connection, "hello 4\n"), "-NOPROTO unsupported protocol version\n");
    let version = "-ERR Protocol version is not an integer or out of range\n";
    assert_eq!(replies(&mut connection, "hello x\n"), version);
    let output = replies(&mut connection, "hello 3 setname\n");
    assert_eq!(output, "-ERR Syntax error in HELLO option 'setname'\n");
    assert!(replies(&mut connection, "hello 3\n").contains("$5\nproto\n:3\n"));
    assert_eq!(replies(&mut connection, "client getname\n"), "_\n");
    assert!(
        replies(&mut connection, "auth x\n").starts_with("-ERR AUTH <password> called without")
    );
    assert_eq!(replies(&mut connection, "auth default x\n"), "+OK\n");
}

#[test]
fn connections_have_the_commands_that_clients_send() {
    let mut connection = connection_with(FrontOptions { replicas: 2, ..FrontOptions::default() });
    for (line, reply) in [
        ("ping a", "$1\na\n"),
        ("ping a b", "-ERR wrong number of arguments for 'ping' command\n"),
        ("select 0", "+OK\n"),
        ("select 1", "-ERR DB index is out of range\n"),
        ("select x", "-ERR value is not an integer or out of range\n"),
        ("wait 1 0", ":2\n"),
        ("wait x 0", "-ERR value is not an integer or out of range\n"),
        ("wait 1 -1", "-ERR timeout is negative\n"),
        ("client id", ":1\n"),
        (
            "client setname 'a b'",
            "-ERR Client names cannot contain spaces, newlines or special characters.\n",
        ),
        ("client setinfo lib-name x", "+OK\n"),
        ("client setinfo other x", "-ERR Unrecognized option 'OTHER'\n"),
        ("client no-evict on", "+OK\n"),
        ("client nothing", "-ERR unknown subcommand 'nothing'. Try CLIENT HELP.\n"),
        ("client no-evict", "-ERR wrong number of arguments for 'client|no-evict' command\n"),
        ("config get", "-ERR wrong number of arguments for 'config|get' command\n"),
        ("client list id 2", "$0\n\n"),
        ("config get save", "*2\n$4\nsave\n$0\n\n"),
        ("config get nothing", "*0\n"),
        (
            "config get MAXMEMORY*",
            "*4\n$9\nmaxmemory\n$1\n0\n$16\nmaxmemory-policy\n$10\nnoeviction\n",
        ),
        ("command docs get", "*0\n"),
        ("command info nothing", "*1\n$-1\n"),
        ("cluster info", "-ERR This instance has cluster support disabled\n"),
    ] {
        assert_eq!(replies(&mut connection, &format!("{line}\n")), reply, "{line}");
    }
    for (line, part) in [
        ("client list", "id=1 addr=127.0.0.1:6379"),
        ("client info", "cmd=client user=default lib-name=x"),
        ("info", "# Onepipe\nshards:3\nbarrier:17\n"),
        ("info clients", "# Clients\nconnected_clients:1\n"),
        ("command info get", "*1\n*10\n$3\nget\n:2\n*1\n+readonly\n:1\n:1\n:1\n"),
        ("subscribe a", "-ERR unknown command 'subscribe', with args beginning with: 'a' "),
    ] {
        let output = replies(&mut connection, &format!("{line}\n"));
        assert!(output.contains(part), "{line}: {output}");
    }
    let output = replies(&mut connection, "command count\ncommand\n");
    let (count, list) = output.split_once('\n').expect("two replies");
    assert!(list.starts_with(&count.replace(':', "*")), "{output}");
}

#[test]
fn names_of_commands_are_unique() {
    let specs = Command::specs().map(|spec| spec.name);
    let mut counts = BTreeMap::new();
    for name in specs.chain(commands::COMMANDS.iter().map(|spec| spec.name)) {
        *counts.entry(name).or_insert(0) += 1;
    }
    assert!(counts.values().all(|count| *count == 1), "{counts:?}");
}

#[test]
fn protocol_errors_close_after_the_replies_before_them() {
    let mut connection = connection();
    let (transactions, output) = exchange(&mut connection, "get a\n*1\nx\nget b\n");
    assert_eq!(transactions, [["get"]]);
    assert_eq!(output, "+OK\n-ERR Protocol error: expected '$', got 'x'\n");
    assert!(connection.is_closed());
    assert_eq!(replies(&mut connection, "ping\n"), "");
}

#[test]
fn clients_that_do_not_read_are_paused() {
    const COUNT: usize = 20_000;
    let options = FrontOptions { output_pause: 20, input_max: 0, ..FrontOptions::default() };
    let mut connection = connection_with(options);
    connection.handle_input(&b"ping\r\n".repeat(COUNT));
    assert!(connection.poll_transaction().is_none());
    assert_eq!(connection.output(), b"+PONG\r\n".repeat(3));
    assert!(!connection.wants_input());
    let mut output = take_output(&mut connection);
    while connection.poll_transaction().is_none() && !connection.output().is_empty() {
        output += &take_output(&mut connection);
    }
    assert_eq!(output, "+PONG\n".repeat(COUNT));
    assert!(connection.wants_input());
}

#[test]
fn clients_with_too_much_unread_are_closed() {
    let mut connection =
        connection_with(FrontOptions { output_max: 100, ..FrontOptions::default() });
    connection.handle_input(b"get a\r\nget a\r\n");
    assert!(connection.poll_transaction().is_some());
    connection.handle_replies(Ok(vec![Value::Bulk(vec![b'x'; 90]); 2]));
    assert!(connection.is_closed());
    assert_eq!(connection.output(), b"");
    assert_eq!(connection.peer.service.counters.closed_at_output_max.get(), 1);
}

#[test]
fn clients_are_limited() {
    let options = FrontOptions { clients_max: 1, ..FrontOptions::default() };
    let service = Service::new(Arc::new(Unused), options, ADDRESS);
    let first = Connection::open(&service, ADDRESS);
    assert!(first.is_some() && Connection::open(&service, ADDRESS).is_none());
    drop(first);
    assert!(Connection::open(&service, ADDRESS).is_some());
}
