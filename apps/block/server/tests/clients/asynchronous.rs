//! A device that completes requests later, on another thread, and in another order.

use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onepipe_block::{BlockSizes, Command, Outcome, Range};
use onepipe_block_server::{Blocks, Completion, ServerOptions};

use crate::harness::{Fixture, MIB, RawClient, header, wait_until};

/// Passes commands to the test.
struct Deferred(Mutex<Sender<(Command, Completion)>>);

impl Blocks for Deferred {
    fn size(&self) -> u64 {
        MIB
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn is_flush_shared(&self) -> bool {
        false
    }

    fn knows_allocation(&self) -> bool {
        false
    }

    fn block_sizes(&self) -> BlockSizes {
        BlockSizes::default()
    }

    fn begin(&self, command: Command, completion: Completion) {
        let commands = self.0.lock().expect("no panic");
        // The test may have ended.
        let _ = commands.send((command, completion));
    }
}

fn deferred(options: ServerOptions) -> (Fixture, Receiver<(Command, Completion)>) {
    let (sender, commands) = channel();
    let dir = tempfile::tempdir().expect("a temporary folder");
    (Fixture::serve(Arc::new(Deferred(Mutex::new(sender))), options, dir), commands)
}

#[test]
fn completes_in_another_order() {
    let (device, commands) = deferred(ServerOptions::default());
    let mut client = RawClient::open(device.connect());
    for cookie in 0..64 {
        client.send(&header(0, cookie, cookie * 512, 512));
    }
    let mut begun: Vec<_> = commands.iter().take(64).collect();
    begun.reverse();
    for (command, completion) in begun {
        let Command::Read(Range { offset, length }) = command else { panic!("{command:?}") };
        completion.complete(Ok(Outcome::Data(vec![(offset / 512) as u8; length as usize])));
    }
    for cookie in (0..64).rev() {
        assert_eq!(client.reply(), (0, cookie));
        assert_eq!(client.take(512), [cookie as u8; 512]);
    }
}

#[test]
fn a_dropped_request_has_failed() {
    let (device, commands) = deferred(ServerOptions::default());
    let mut client = RawClient::open(device.connect());
    client.send(&header(3, 5, 0, 0));
    drop(commands.recv());
    let io_error = 5;
    assert_eq!(client.reply(), (io_error, 5));
}

#[test]
fn a_stop_waits_for_requests_in_flight() {
    let (device, commands) = deferred(ServerOptions::default());
    let mut client = RawClient::open(device.connect());
    client.send(&header(3, 5, 0, 0));
    let (_, completion) = commands.recv().expect("it has begun");
    let Fixture { server, dir: _dir } = device;
    let stopped = std::thread::spawn(move || server.stop());
    // No new client is accepted from here on: the stop has begun.
    let address = client.0.peer_addr().expect("it is connected");
    let path = address.as_pathname().expect("it has a path");
    wait_until("the stop", || UnixStream::connect(path).is_err());
    completion.complete(Ok(Outcome::Done));
    assert_eq!(client.reply(), (0, 5));
    assert!(client.is_closed());
    stopped.join().expect("no panic");
}

#[test]
fn a_stop_does_not_wait_for_ever() {
    let stop_timeout = Duration::from_millis(50);
    let (device, commands) = deferred(ServerOptions { stop_timeout, ..ServerOptions::default() });
    let mut client = RawClient::open(device.connect());
    client.send(&header(3, 5, 0, 0));
    let _never_completed = commands.recv().expect("it has begun");
    device.server.stop();
    assert!(client.is_closed());
}
