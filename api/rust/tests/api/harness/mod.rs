//! The harness shared by several tests.
#![allow(dead_code)]

pub mod switch;

use std::time::Duration;

use onepipe::{Builder, Event, Message, Pipe, ProcessId, Received};

/// This bound only fails hanging tests.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Returns the name of the fabric `test`, which no other program uses. It is unique among the tests
/// of this program.
pub fn fabric(test: &str) -> String {
    format!("test-{}-{test}", std::process::id())
}

/// Returns settings of a process of a small fabric. Live processes are waited for, however busy
/// this machine is: no message may be lost.
pub fn process(fabric: &str, process: u32) -> Builder {
    const LONG_NS: u64 = 60_000_000_000;
    Pipe::builder()
        .fabric(fabric)
        .process(process)
        .processes(8)
        .link_timeout(Duration::from_nanos(LONG_NS))
        .tune_shared_memory(|config| config.hold_ns = LONG_NS)
        .tune(|config| config.probes_max = 100_000)
}

/// Joins pipes for processes 0 to `count`, which all know each other.
pub fn meet(fabric: &str, count: u32) -> Vec<Pipe> {
    let pipes: Vec<Pipe> =
        (0..count).map(|id| process(fabric, id).join().expect("the id is free")).collect();
    for pipe in &pipes {
        assert!(pipe.wait_for_peers(count as usize - 1, DEADLINE));
    }
    pipes
}

/// Makes one message.
pub fn to(process: u32, payload: &[u8]) -> Message<'_> {
    Message { to: ProcessId(process), payload }
}

/// Receives the next message; any other event is a failure.
pub fn message(pipe: &mut Pipe) -> Received {
    match pipe.recv_timeout(DEADLINE) {
        Some(Event::Message(message)) => message,
        other => panic!("process {:?} got {other:?}", pipe.process()),
    }
}

/// Returns the number that a payload begins with.
pub fn number(received: &Received) -> u64 {
    u64::from_be_bytes(
        received.payload[..8].try_into().expect("the payload begins with eight bytes"),
    )
}
