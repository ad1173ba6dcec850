//! Two processes of one machine exchange messages. The parent starts itself once more as the child.
//!
//! `cargo run -p onepipe --example hello`

use std::error::Error;
use std::process::Command;
use std::time::Duration;

use onepipe::{Event, Message, Pipe, ProcessId};

const PARENT: ProcessId = ProcessId(0);
const CHILD: ProcessId = ProcessId(1);
const TIMEOUT: Duration = Duration::from_secs(30);

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1) {
        None => parent(&format!("hello-{}", std::process::id())),
        Some(fabric) => child(&fabric),
    }
}

fn parent(fabric: &str) -> Result<(), Box<dyn Error>> {
    let mut pipe = Pipe::builder().fabric(fabric).process(PARENT.0).join()?;
    let mut child = Command::new(std::env::current_exe()?).arg(fabric).spawn()?;
    if !pipe.wait_for_peers(1, TIMEOUT) {
        return Err("the child did not join".into());
    }
    // Two messages, one timestamp.
    pipe.scatter(&[
        Message { to: CHILD, payload: b"hello, child" },
        Message { to: PARENT, payload: b"note to myself" },
    ])?;
    // The child's reply is ordered after the message that it replies to, at all receivers.
    for _ in 0..2 {
        println!("parent: {}", next(&mut pipe)?);
    }
    pipe.leave()?;
    match child.wait()?.success() {
        true => Ok(()),
        false => Err("the child failed".into()),
    }
}

fn child(fabric: &str) -> Result<(), Box<dyn Error>> {
    let mut pipe = Pipe::builder().fabric(fabric).process(CHILD.0).join()?;
    println!("child: {}", next(&mut pipe)?);
    pipe.scatter(&[Message { to: PARENT, payload: b"hello, parent" }])?;
    pipe.leave()?;
    Ok(())
}

fn next(pipe: &mut Pipe) -> Result<String, Box<dyn Error>> {
    match pipe.recv_timeout(TIMEOUT) {
        Some(Event::Message(message)) => {
            let text = String::from_utf8_lossy(&message.payload);
            Ok(format!("process {} says {text:?}", message.from.0))
        }
        other => Err(format!("expected a message, got {other:?}").into()),
    }
}
