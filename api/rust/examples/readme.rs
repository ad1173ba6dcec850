//! The program of the front page.

use onepipe::{Event, Message, Pipe, ProcessId};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Two processes of one fabric in shared memory. Usually each is a program of its own; through a
    // software switch it says `.udp("10.0.0.1:4410")` instead of `.fabric(…)`.
    let mut alice = Pipe::builder().fabric("readme").process(0).processes(2).join()?;
    let mut bob = Pipe::builder().fabric("readme").process(1).processes(2).join()?;

    // Both messages bear one timestamp. `scatter` never blocks: a full buffer is an error value.
    alice.scatter(&[
        Message { to: ProcessId(0), payload: b"note to self" },
        Message { to: ProcessId(1), payload: b"hello bob" },
    ])?;

    for (name, pipe) in [("alice", &mut alice), ("bob", &mut bob)] {
        if let Event::Message(message) = pipe.recv()? {
            let text = String::from_utf8_lossy(&message.payload);
            println!("{name}: process {} at {}: {text}", message.from.0, message.timestamp.as_ns());
        }
    }
    Ok(())
}
