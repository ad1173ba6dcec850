//! The example on the front page.

use onepipe::{Event, Message, Pipe, ProcessId};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Two pipes of one fabric; usually each is in a process of its own, on shared memory or, with
    // `.udp("10.0.0.1:4410")`, through a software switch.
    let mut alice = Pipe::builder().fabric("readme").process(0).processes(2).join()?;
    let mut bob = Pipe::builder().fabric("readme").process(1).processes(2).join()?;

    // One timestamp for both messages. Never blocks: a full buffer is an error value.
    alice.scatter(&[
        Message { to: ProcessId(0), payload: b"note to self" },
        Message { to: ProcessId(1), payload: b"hello bob" },
    ])?;

    if let Event::Message(message) = bob.recv()? {
        println!("{:?} {:?}: {:?}", message.timestamp, message.from, message.payload);
    }
    if let Event::Message(message) = alice.recv()? {
        println!("{:?} {:?}: {:?}", message.timestamp, message.from, message.payload);
    }
    Ok(())
}
