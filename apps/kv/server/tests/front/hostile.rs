//! Clients that send what no client should, or that do not read.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use onepipe_kv_server::front::{Front, FrontOptions};

use crate::memory::{Memory, start, start_with};

const TIMEOUT: Duration = Duration::from_secs(60);

fn connect(front: &Front) -> TcpStream {
    let stream = TcpStream::connect(front.local_addr()).expect("the front accepts");
    stream.set_read_timeout(Some(TIMEOUT)).expect("the time is not zero");
    stream.set_write_timeout(Some(TIMEOUT)).expect("the time is not zero");
    stream
}

/// Sends bytes, ends the input, and returns all replies.
fn exchange(front: &Front, bytes: &[u8]) -> String {
    let mut stream = connect(front);
    stream.write_all(bytes).expect("the front reads");
    stream.shutdown(Shutdown::Write).expect("it is connected");
    let mut replies = Vec::new();
    stream.read_to_end(&mut replies).expect("the front replies and closes");
    String::from_utf8(replies).expect("the replies are text")
}

#[test]
fn half_a_command_has_no_reply() {
    let front = start();
    assert_eq!(exchange(&front, b""), "");
    assert_eq!(exchange(&front, b"*2\r\n$3\r\nGET\r\n$5\r\nab"), "");
    assert_eq!(exchange(&front, b"PING\r\n*2\r\n$3"), "+PONG\r\n");
}

#[test]
fn commands_may_arrive_byte_by_byte() {
    let front = start();
    let mut stream = connect(&front);
    stream.set_nodelay(true).expect("it is connected");
    for byte in b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$2\r\n\r\n\r\nGET a\r\n" {
        stream.write_all(&[*byte]).expect("the front reads");
    }
    let mut replies = [0; 13];
    stream.read_exact(&mut replies).expect("the front replies");
    assert_eq!(&replies, b"+OK\r\n$2\r\n\r\n\r\n");
}

#[test]
fn a_million_commands_are_answered() {
    const COUNT: usize = 1_000_000;
    let front = start();
    let mut stream = connect(&front);
    let mut reader = stream.try_clone().expect("there are file descriptors");
    let writer = std::thread::spawn(move || {
        let chunk = b"*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n".repeat(1_000);
        for _ in 0..COUNT / 1_000 {
            stream.write_all(&chunk).expect("the front reads");
        }
        stream.shutdown(Shutdown::Write).expect("it is connected");
    });
    let mut replies = String::new();
    reader.read_to_string(&mut replies).expect("the front replies and closes");
    writer.join().expect("all was sent");
    let mut expected = 0;
    for reply in replies.lines() {
        expected += 1;
        assert_eq!(reply.strip_prefix(':').and_then(|n| n.parse().ok()), Some(expected));
    }
    assert_eq!(expected, COUNT);
}

#[test]
fn oversize_values_are_refused_and_the_connection_goes_on() {
    let options = FrontOptions { value_max: 1 << 20, ..FrontOptions::default() };
    let front = start_with(Arc::new(Memory::default()), options);
    let mut bytes = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1048577\r\n".to_vec();
    bytes.resize(bytes.len() + (1 << 20) + 1, b'v');
    bytes.extend_from_slice(b"\r\nPING\r\n");
    let limit = "-ERR an argument of 1048577 bytes exceeds the limit of 1048576 bytes (value_max)";
    assert_eq!(exchange(&front, &bytes), format!("{limit}\r\n+PONG\r\n"));
}

#[test]
fn bytes_that_are_not_resp_close_the_connection() {
    let front = start();
    let replies = exchange(&front, b"SET a 1\r\n*1\r\n:1\r\nGET a\r\n");
    assert_eq!(replies, "+OK\r\n-ERR Protocol error: expected '$', got ':'\r\n");
    assert_eq!(exchange(&front, &b"*1\r\n".repeat(100_000))[..28], *"-ERR Protocol error: expecte");
}

#[test]
fn a_client_that_reads_nothing_is_not_read() {
    let options = FrontOptions { output_pause: 1 << 16, ..FrontOptions::default() };
    let memory = Arc::new(Memory::default());
    let front = start_with(memory.clone(), options);
    let mut stream = connect(&front);
    let value = "v".repeat(10_000);
    stream.write_all(format!("SET a {value}\r\n").as_bytes()).expect("the front reads");
    stream.set_write_timeout(Some(Duration::from_millis(500))).expect("the time is not zero");
    let commands = b"GET a\r\n".repeat(1_000);
    // The socket buffers of both sides fill, then writing blocks.
    let blocked = (0..100_000).find_map(|_| stream.write_all(&commands).err());
    let blocked = blocked.expect("the front stops reading").kind();
    assert!(matches!(blocked, ErrorKind::WouldBlock | ErrorKind::TimedOut), "{blocked}");
    let executed = memory.transactions();
    assert_eq!(exchange(&front, b"PING\r\n"), "+PONG\r\n");
    assert_eq!(memory.transactions(), executed);
    // The connection goes on when the client reads.
    let mut replies = vec![0; 10_000_000];
    stream.read_exact(&mut replies).expect("the front replies");
    assert!(memory.transactions() > executed);
}

#[test]
fn a_client_with_too_much_unread_is_closed() {
    let options = FrontOptions { output_max: 1 << 20, ..FrontOptions::default() };
    let front = start_with(Arc::new(Memory::default()), options);
    let value = "v".repeat(600_000);
    let mut stream = connect(&front);
    let bytes = format!("SET a {value}\r\nMGET a a a\r\n");
    // An inline command has at most 64 KiB.
    let bytes = bytes.replace("SET a ", "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$600000\r\n");
    stream.write_all(bytes.as_bytes()).expect("the front reads");
    let mut replies = Vec::new();
    // The system may drop the reply to the first command, too.
    let _ = stream.read_to_end(&mut replies);
    assert!(replies.len() <= "+OK\r\n".len(), "{} bytes", replies.len());
    assert!(exchange(&front, b"INFO stats\r\n").contains("buffer_limit_disconnections:1\r\n"));
}

#[test]
fn a_thousand_connections_are_served() {
    let front = start();
    let mut streams: Vec<TcpStream> = (0..1_000).map(|_| connect(&front)).collect();
    for stream in &mut streams {
        stream.write_all(b"INCR n\r\n").expect("the front reads");
    }
    let mut replies: Vec<u32> = streams.iter_mut().map(read_integer).collect();
    replies.sort_unstable();
    assert!(replies.into_iter().eq(1..=1_000));
    let clients = exchange(&front, b"INFO clients\r\n");
    assert!(clients.contains("connected_clients:1001\r\n"), "{clients}");
}

fn read_integer(stream: &mut TcpStream) -> u32 {
    let (mut reply, mut byte) = (String::new(), [0]);
    while !reply.ends_with("\r\n") {
        stream.read_exact(&mut byte).expect("the front replies");
        reply.push(char::from(byte[0]));
    }
    reply.trim().trim_start_matches(':').parse().expect("an integer")
}

#[test]
fn clients_above_the_limit_are_refused() {
    let options = FrontOptions { clients_max: 2, ..FrontOptions::default() };
    let front = start_with(Arc::new(Memory::default()), options);
    let connected = [connect(&front), connect(&front)];
    for mut stream in &connected {
        stream.write_all(b"INCR n\r\n").expect("the front reads");
        stream.read_exact(&mut [0; 4]).expect("the front replies");
    }
    let mut reply = String::new();
    connect(&front).read_to_string(&mut reply).expect("the front replies and closes");
    assert_eq!(reply, "-ERR max number of clients reached\r\n");
}

#[test]
fn stopping_closes_connections() {
    let front = start();
    let mut stream = connect(&front);
    stream.write_all(b"PING\r\n").expect("the front reads");
    stream.read_exact(&mut [0; 7]).expect("the front replies");
    let address = front.local_addr();
    front.stop();
    assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
    assert!(TcpStream::connect(address).is_err());
}
