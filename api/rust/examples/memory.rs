//! Three processes increment counters in the memory of a fourth, which does nothing for it, and
//! note the highest value that they have seen. The parent starts itself once more for each.
//!
//! `cargo run -p onepipe --example memory`

use std::error::Error;
use std::process::Command;
use std::time::Duration;

use onepipe::memory::{Operation, Outcome, RegionId, Rights};
use onepipe::{Pipe, ProcessId};

const OWNER: ProcessId = ProcessId(0);
const CLIENTS: u32 = 3;
const EACH: u64 = 50;
const TIMEOUT: Duration = Duration::from_secs(30);

const COUNTERS: RegionId = RegionId(1);
/// Offsets of the words of the region.
const TOTAL: u64 = 0;
const HIGHEST: u64 = 8;
const FINISHED: u64 = 16;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next(), arguments.next()) {
        (Some(fabric), Some(process)) => client(&fabric, process.parse()?),
        _ => owner(&format!("memory-{}", std::process::id())),
    }
}

fn owner(fabric: &str) -> Result<(), Box<dyn Error>> {
    let mut pipe = Pipe::builder().fabric(fabric).process(OWNER.0).join()?;
    pipe.register(COUNTERS, vec![0; 24], Rights::all())?;
    let start = |process: u32| {
        Command::new(std::env::current_exe()?).arg(fabric).arg(process.to_string()).spawn()
    };
    let children: Vec<_> = (1..=CLIENTS).map(start).collect::<Result<_, _>>()?;
    for mut child in children {
        if !child.wait()?.success() {
            return Err("a client has failed".into());
        }
    }
    let words = pipe.with_region(COUNTERS, |bytes| {
        bytes
            .chunks_exact(8)
            .map(|word| word.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)))
            .collect::<Vec<u64>>()
    })?;
    println!("{} increments, the highest seen is {}, {} clients", words[0], words[1], words[2]);
    Ok(())
}

fn client(fabric: &str, process: u32) -> Result<(), Box<dyn Error>> {
    let mut pipe = Pipe::builder().fabric(fabric).process(process).join()?;
    if !pipe.wait_for_peers(1, TIMEOUT) {
        return Err("the owner is not there".into());
    }
    let mut counters = pipe.remote(OWNER, COUNTERS);
    for _ in 0..EACH {
        let total = counters.fetch_add(TOTAL, 1)? + 1;
        // Replace the highest value if ours is higher.
        let mut highest = 0;
        while highest < total {
            match counters.compare_and_swap(HIGHEST, highest, total)? {
                before if before == highest => break,
                before => highest = before,
            }
        }
    }
    // Two operations in one message.
    let batch = [
        Operation::FetchAdd { region: COUNTERS, offset: FINISHED, addend: 1 },
        Operation::Read { region: COUNTERS, offset: HIGHEST, len: 8 },
    ];
    for (owner, answer) in pipe.execute(&[(OWNER, &batch)])? {
        let executed = answer?;
        if let [Outcome::Added { previous }, Outcome::Read(_)] = &executed.outcomes[..] {
            println!("process {process} is number {} at process {}", previous + 1, owner.0);
        }
    }
    pipe.leave()?;
    Ok(())
}
