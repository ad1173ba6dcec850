//! Lines of text to a group of agreed multicast: a client multicasts the lines of its standard
//! input, and replicas print the lines that they deliver, all in the same order.
//!
//! ```text
//! cargo run -p onepipe --example lines -- replica lab.toml 10.0.0.4:4600
//! cargo run -p onepipe --example lines -- client lab.toml 10.0.0.9:4700
//! ```
//!
//! The members run elsewhere (`onepipe member --groups lab.toml --listen …`).

use std::error::Error;
use std::io::Write;
use std::time::Duration;

use onepipe::{Amcast, AmcastReplica, Directory, WaitError};

/// The group that the client multicasts to.
const GROUP: u16 = 0;
const WAIT: Duration = Duration::from_millis(100);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [role, file, address] = &arguments[..] else {
        return Err("usage: lines client|replica GROUP_FILE ADDRESS".into());
    };
    let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    let directory = Directory::read(&text)?;
    match role.as_str() {
        "client" => multicast(Amcast::open(&directory, address.parse()?)?),
        "replica" => print(AmcastReplica::open(&directory, address.parse()?)?),
        role => Err(format!("{role:?} is neither client nor replica").into()),
    }
}

/// Multicasts each line of standard input; prints the line when it is complete: when a majority of
/// the group has it, so that every replica delivers it.
fn multicast(mut client: Amcast) -> Result<(), Box<dyn Error>> {
    for line in std::io::stdin().lines() {
        let line = line?;
        let id = client.amcast(&[GROUP], line.as_bytes())?;
        // A message in flight is retransmitted as long as the client is driven.
        let completed = loop {
            match client.wait(id, WAIT) {
                Err(WaitError::Timeout) => {}
                result => break result?,
            }
        };
        // Unknown only if the group has discarded the message since.
        let timestamp = completed.timestamp.map_or(0, |timestamp| timestamp.0);
        writeln!(std::io::stdout(), "{timestamp} {line}")?;
    }
    Ok(())
}

/// Prints each line that is delivered, in the order of the group.
fn print(mut replica: AmcastReplica) -> Result<(), Box<dyn Error>> {
    loop {
        let mut result = Ok(());
        replica.wait(WAIT, |message, _, timestamp| {
            let line = String::from_utf8_lossy(message);
            result = writeln!(std::io::stdout(), "{} {line}", timestamp.0);
        })?;
        result?;
    }
}
