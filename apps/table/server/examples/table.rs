//! A table of two shards with two replicas each: four processes that only register memory, and a
//! client. The parent is the client, and starts itself once more for each of the others.
//!
//! `cargo run -p onepipe-table-server --example table`

use std::error::Error;
use std::process::{Child, Command};
use std::time::Duration;

use onepipe::{Pipe, ProcessId};
use onepipe_table_server::{Layout, Table, serve};

const LAYOUT: Layout = Layout { shards: 2, buckets: 1_024, nodes: 4_096, value_len: 8 };
const REPLICAS: u32 = 2;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next(), arguments.next()) {
        (Some(fabric), Some(process)) => replica(&fabric, process.parse()?),
        _ => client(&format!("table-{}", std::process::id())),
    }
}

/// Processes 0 and 1 have shard 0, processes 2 and 3 shard 1.
fn replica(fabric: &str, process: u32) -> Result<(), Box<dyn Error>> {
    let mut pipe = Pipe::builder().fabric(fabric).process(process).join()?;
    serve(&mut pipe, LAYOUT, (process / REPLICAS) as u16)?;
    // The thread of the pipe does the rest, until the client kills this process.
    loop {
        std::thread::park();
    }
}

fn client(fabric: &str) -> Result<(), Box<dyn Error>> {
    let start = |process: u32| {
        Command::new(std::env::current_exe()?).arg(fabric).arg(process.to_string()).spawn()
    };
    let count = REPLICAS * u32::from(LAYOUT.shards);
    let mut children: Vec<Child> = (0..count).map(start).collect::<Result<_, _>>()?;
    let done = fill(fabric, count);
    for child in &mut children {
        child.kill()?;
        child.wait()?;
    }
    println!("{} of 100 keys are in the table", done?);
    Ok(())
}

fn fill(fabric: &str, count: u32) -> Result<usize, Box<dyn Error>> {
    let pipe = Pipe::builder().fabric(fabric).process(count).join()?;
    if !pipe.wait_for_peers(count as usize, Duration::from_secs(30)) {
        return Err("a replica is not there".into());
    }
    let replicas = vec![vec![ProcessId(0), ProcessId(1)], vec![ProcessId(2), ProcessId(3)]];
    let mut table = Table::new(pipe, LAYOUT, replicas);
    // A replica that has just joined may have registered nothing yet.
    while table.look_up(0).is_err() || table.look_up(1).is_err() {
        std::thread::sleep(Duration::from_millis(1));
    }
    for key in 0..100_u64 {
        assert!(table.insert(key, &key.to_le_bytes())?, "no other client inserts");
    }
    for key in (0..100).step_by(4) {
        table.remove(key)?;
    }
    let mut found = 0;
    for key in 0..100 {
        found += usize::from(table.look_up(key)?.is_some());
    }
    Ok(found)
}
