//! The history of a replicated block device over kills of its program, a replacement and a scrub.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use onepipe_history::{Found, Operation, Recorder, linearizability};

use crate::block_replicas::{BLOCK, BLOCKS, Client, Device};
use crate::program::{errors, exclusive, output, wait_until};

/// Number of clients; each has a connection, with one request at a time.
pub const CLIENTS: usize = 4;
/// Number of blocks that they share.
const SHARED: u64 = 3;
/// Number of events between two faults.
const ROUND: usize = 600;

/// What the clients share.
pub struct Load {
    recorder: Recorder,
    /// Number of the next client. A client whose last outcome is unknown is followed by another.
    next: AtomicU32,
    has_ended: AtomicBool,
}

impl Load {
    pub fn new() -> Load {
        let (next, has_ended) = (AtomicU32::new(0), AtomicBool::new(false));
        Load { recorder: Recorder::new(), next, has_ended }
    }

    /// Waits for further events.
    pub fn more(&self, what: &str) {
        let enough = self.recorder.len() + ROUND;
        wait_until(what, || self.recorder.len() >= enough);
    }

    /// Runs clients, one after the other, until the load ends. Each uses the next socket.
    pub fn run<'a>(&self, sockets: impl Iterator<Item = &'a String>) {
        for socket in sockets {
            if self.has_ended.load(Ordering::Relaxed) {
                return;
            }
            if let Ok(mut client) = Client::connect(socket) {
                self.run_client(&mut client, self.next.fetch_add(1, Ordering::Relaxed));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends requests until the connection or the load ends.
    fn run_client(&self, client: &mut Client, number: u32) {
        for count in 1.. {
            if self.has_ended.load(Ordering::Relaxed) {
                return;
            }
            // A read is of another block than the write before it: of what others have written.
            let block = (u64::from(number) + count) % SHARED;
            let key = block as i64;
            // A version is unique, and a block without one is full of zeros.
            let version = u64::from(number) << 32 | count;
            if count % 2 == 0 {
                let write = Operation::write(key, version as i64);
                let request = self.recorder.invoke(number, vec![write.clone()]);
                match client.write(block, version).and_then(|()| client.reply()) {
                    Ok(_) => request.ok(vec![write]),
                    Err(_) => return request.info(),
                }
            } else {
                let request = self.recorder.invoke(number, vec![Operation::read(key)]);
                let Ok(versions) = client.versions(block, 1) else { return request.info() };
                let found = match versions[0] {
                    0 => Found::Nil,
                    version => Found::Value(version as i64),
                };
                request.ok(vec![Operation::Read { key: key.into(), found }]);
            }
        }
    }

    /// Checks that no read went back, and no acknowledged write was lost.
    pub fn check(&self) {
        let history = self.recorder.history().expect("events are recorded in order");
        let verdict = linearizability(&history);
        assert!(verdict.is_valid(), "{verdict}");
    }
}

/// Ends the load when it is dropped, also by a failed assertion.
pub struct End<'a>(pub &'a Load);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.has_ended.store(true, Ordering::Relaxed);
    }
}

/// No read goes back, and no acknowledged write is lost: each block is linearizable.
#[test]
fn history_over_kills_is_linearizable() {
    let _guard = exclusive();
    let directory = tempfile::tempdir().expect("a directory");
    let size = format!("{}", BLOCKS as usize * BLOCK);
    let device = Device::start(directory.path(), Some(&size));
    let (socket, data) = (device.socket.clone(), directory.path().join("data"));
    let data = data.to_str().expect("text");
    let load = Load::new();
    let device = std::thread::scope(|scope| {
        let (mut device, end) = (device, End(&load));
        for _ in 0..CLIENTS {
            scope.spawn(|| load.run(std::iter::repeat(&socket)));
        }
        for round in 0..4 {
            load.more("clients use the device");
            if round == 1 {
                let replaced = output(&["block", "replace", "--data", data, "--replica", "1"]);
                assert!(replaced.status.success(), "{}", errors(&replaced));
                load.more("clients use the device after a replacement");
                let scrubbed = output(&["block", "scrub", "--data", data]);
                assert!(scrubbed.status.success(), "{}", errors(&scrubbed));
            }
            device.kill();
            device = Device::start(directory.path(), None);
        }
        load.more("clients use the device after the last start");
        drop(end);
        device
    });
    device.kill();
    load.check();
}
