//! Clients that are wrong, slow or gone.

use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use onepipe_block_server::{
    Address, Blocks, FileBlocks, FileError, FileOptions, ServeError, ServerOptions, serve,
};

use crate::harness::{Fixture, MIB, RawClient, connect_tcp, header, serve_tcp, wait_until};

/// Shows that the server serves.
fn check_served(device: &Fixture) {
    let mut client = RawClient::open(device.connect());
    client.send(&[header(1, 8, 512, 3), b"xyz".to_vec()].concat());
    assert_eq!(client.reply(), (0, 8));
    client.send(&header(0, 9, 512, 3));
    assert_eq!((client.reply(), client.take(3)), ((0, 9), b"xyz".to_vec()));
}

#[test]
fn refuses_what_is_out_of_bounds_and_goes_on() {
    let (server, _dir) = serve_tcp(MIB);
    let mut client = RawClient::open(connect_tcp(&server));
    let (no_space, invalid) = (28, 22);
    client.send(&header(0, 1, MIB, 1));
    assert_eq!(client.reply(), (invalid, 1));
    client.send(&[header(1, 2, MIB - 1, 2), vec![0; 2]].concat());
    assert_eq!(client.reply(), (no_space, 2));
    client.send(&header(0, 3, 0, (32 << 20) + 1));
    assert_eq!(client.reply(), (invalid, 3));
    // An oversize payload is skipped.
    client.send(&header(1, 4, 0, (32 << 20) + 1));
    client.send(&vec![1; (32 << 20) + 1]);
    assert_eq!(client.reply(), (invalid, 4));
    client.send(&header(99, 5, 0, 0));
    assert_eq!(client.reply(), (invalid, 5));
    client.send(&header(0, 6, 0, 4));
    assert_eq!((client.reply(), client.take(4)), ((0, 6), vec![0; 4]));
}

#[test]
fn disconnects_clients_of_another_protocol() {
    let device = Fixture::new(MIB);
    let mut client = RawClient(device.connect());
    client.send(b"GET / HTTP/1.1\r\nHost: example\r\n\r\n");
    client.take(18);
    assert!(client.is_closed());
    let mut client = RawClient::open(device.connect());
    client.send(&[b'?'; 100]);
    assert!(client.is_closed());
    check_served(&device);
}

#[test]
fn a_half_request_changes_nothing() {
    let device = Fixture::new(MIB);
    let mut client = RawClient::open(device.connect());
    client.send(&[header(1, 1, 0, 100_000), vec![7; 99_999]].concat());
    client.0.shutdown(Shutdown::Write).expect("it is connected");
    assert!(client.is_closed());
    assert!(device.content().iter().all(|byte| *byte == 0));
    check_served(&device);
}

#[test]
fn completes_requests_of_a_client_that_only_reads_on() {
    let device = Fixture::new(MIB);
    let mut client = RawClient::open(device.connect());
    client.send(&(0..200).flat_map(|cookie| header(0, cookie, 0, 4_096)).collect::<Vec<u8>>());
    client.0.shutdown(Shutdown::Write).expect("it is connected");
    let mut cookies: Vec<u64> = (0..200)
        .map(|_| {
            let (error, cookie) = client.reply();
            assert_eq!((error, client.take(4_096).len()), (0, 4_096));
            cookie
        })
        .collect();
    cookies.sort_unstable();
    assert!(cookies.into_iter().eq(0..200));
    assert!(client.is_closed());
}

#[test]
fn a_client_that_reads_nothing_waits_alone() {
    let device = Fixture::new(32 * MIB);
    let mut client = RawClient::open(device.connect());
    client.0.set_nonblocking(true).expect("it is a socket");
    // 16 MiB each: the limit of 64 MiB is reached long before the socket is full of requests.
    let read = header(0, 1, 0, 16 << 20);
    let mut refused = false;
    for _ in 0..1_000_000 {
        if client.0.write(&read).is_err() {
            refused = true;
            break;
        }
    }
    assert!(refused, "the server reads requests without a bound");
    check_served(&device);
    // The thread that reads waits for free memory when its client vanishes.
    drop(client);
    wait_until("no connection", || device.server.connections() == 0);
}

#[test]
fn limits_connections_and_the_time_of_a_handshake() {
    let handshake_timeout = Duration::from_millis(50);
    let options =
        ServerOptions { connections_max: 2, handshake_timeout, ..ServerOptions::default() };
    let device = Fixture::with(MIB, options);
    let _first = RawClient::open(device.connect());
    let mut idle = RawClient(device.connect());
    idle.take(18);
    let mut third = RawClient(device.connect());
    assert!(third.is_closed(), "there are two already");
    assert!(idle.is_closed(), "the handshake has taken too long");
    wait_until("one connection", || device.server.connections() == 1);
    check_served(&device);
}

#[test]
fn a_file_has_one_size_and_one_server() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("device");
    let open = |size, is_read_only| {
        FileBlocks::open(&path, FileOptions { size, is_read_only, ..FileOptions::default() })
    };
    assert!(matches!(open(None, false), Err(FileError::NoSize(_))));
    assert!(matches!(open(Some(MIB), true), Err(FileError::NoSize(_))));
    let first = open(Some(MIB), false).expect("a new file");
    assert!(matches!(open(None, false), Err(FileError::InUse(_))));
    assert!(matches!(open(None, true), Err(FileError::InUse(_))));
    drop(first);
    let resized = open(Some(2 * MIB), false).err().expect("the size differs").to_string();
    assert!(resized.contains("has 1048576 bytes, not 2097152: a device cannot be resized"));
    drop(open(Some(MIB), false).expect("the size is the same"));
    let _readers = [(); 2].map(|()| open(None, true).expect("readers share the file"));
    assert!(matches!(open(None, false), Err(FileError::InUse(_))));
    let folder = FileBlocks::open(dir.path(), FileOptions::default());
    assert!(matches!(folder, Err(FileError::NotAFile(_))));
}

#[test]
fn replaces_the_socket_of_a_killed_server() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("socket");
    // A server that is killed leaves its socket behind.
    drop(UnixListener::bind(&path).expect("the folder is writable"));
    let options = FileOptions { size: Some(MIB), ..FileOptions::default() };
    let blocks = FileBlocks::open(&dir.path().join("device"), options).expect("a new file");
    let blocks: Arc<dyn Blocks> = Arc::new(blocks);
    let address = Address::Unix(path.clone());
    let first = serve(&address, Arc::clone(&blocks), ServerOptions::default());
    let first = first.expect("the socket is replaced");
    let second = serve(&address, Arc::clone(&blocks), ServerOptions::default());
    assert!(matches!(second, Err(ServeError::Listen { .. })), "the first server listens");
    RawClient::open(UnixStream::connect(&path).expect("the first server listens"));
    first.stop();
    assert!(!path.exists(), "the socket is removed");
    // Another kind of file is left alone.
    std::fs::write(&path, "text").expect("the folder is writable");
    assert!(serve(&address, blocks, ServerOptions::default()).is_err());
    assert!(path.exists());
}
