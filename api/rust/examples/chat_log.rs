//! A chat of four processes. All of them send concurrently to all others, and answer what they
//! read; yet all four logs are the same, byte by byte, without a leader or a server.
//!
//! `cargo run -p onepipe --example chat_log`

use std::error::Error;
use std::fmt::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use onepipe::{Event, Message, Pipe, ProcessId};

const PEOPLE: [&str; 4] = ["Ada", "Bob", "Cyd", "Dan"];
/// Number of remarks that each person makes before saying goodbye.
const REMARKS: u32 = 50;
const GOODBYE: &str = "goodbye";
const TIMEOUT: Duration = Duration::from_secs(30);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [] => watch(),
        [fabric, process] => talk(fabric, process.parse()?),
        _ => Err("no arguments, please".into()),
    }
}

/// Starts all processes and compares their logs.
fn watch() -> Result<(), Box<dyn Error>> {
    let fabric = format!("chat-{}", std::process::id());
    let start = |process: usize| {
        Command::new(std::env::current_exe()?)
            .args([&fabric, &process.to_string()])
            .stdout(Stdio::piped())
            .spawn()
    };
    let people: Vec<_> = (0..PEOPLE.len()).map(start).collect::<Result<_, _>>()?;
    let mut logs = Vec::new();
    for person in people {
        let output = person.wait_with_output()?;
        if !output.status.success() {
            return Err("a process failed".into());
        }
        logs.push(String::from_utf8(output.stdout)?);
    }
    print!("{}", logs[0]);
    if logs.iter().any(|log| *log != logs[0]) {
        return Err("the logs differ".into());
    }
    println!("{} logs of {} lines, all the same", logs.len(), logs[0].lines().count());
    Ok(())
}

/// Runs one of the four processes.
fn talk(fabric: &str, process: u32) -> Result<(), Box<dyn Error>> {
    let others = PEOPLE.len() - 1;
    let mut pipe = Pipe::builder().fabric(fabric).process(process).join()?;
    if !pipe.wait_for_peers(others, TIMEOUT) {
        return Err("not all processes joined".into());
    }
    let (mut log, mut remarks, mut goodbyes) = (String::new(), 0, 0);
    send(&mut pipe, &format!("remark {remarks}"))?;
    while goodbyes < PEOPLE.len() {
        let event = pipe.recv_timeout(TIMEOUT).ok_or("no message arrived in time")?;
        let Event::Message(message) = event else {
            return Err(format!("{event:?}").into());
        };
        let text = String::from_utf8(message.payload)?;
        let from = PEOPLE[message.from.index()];
        writeln!(log, "{:>5} {from}: {text}", log.lines().count())?;
        goodbyes += usize::from(text == GOODBYE);
        // Continue after seeing the own remark, and answer some remarks of others.
        if message.from.0 == process && text != GOODBYE && !text.starts_with('@') {
            remarks += 1;
            match remarks {
                REMARKS => send(&mut pipe, GOODBYE)?,
                _ => send(&mut pipe, &format!("remark {remarks}"))?,
            }
        } else if remarks < REMARKS && text.ends_with('7') && !text.starts_with('@') {
            send(&mut pipe, &format!("@{from} I have read {text}"))?;
        }
    }
    // The goodbyes end the log of every process at the same position.
    pipe.leave()?;
    print!("{log}");
    Ok(())
}

/// Sends a text to all processes, including this one.
fn send(pipe: &mut Pipe, text: &str) -> Result<(), Box<dyn Error>> {
    let to_all: Vec<Message<'_>> = (0..PEOPLE.len() as u32)
        .map(|process| Message { to: ProcessId(process), payload: text.as_bytes() })
        .collect();
    pipe.scatter_wait(&to_all, TIMEOUT)?;
    Ok(())
}
