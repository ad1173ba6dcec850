//! One root and three receivers, each a process of its own: a file and a large object are delivered
//! to all receivers, and the root knows that they are.
//!
//! `cargo run -p onepipe --example group`

use std::error::Error;
use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use onepipe::{Group, GroupOptions};

const OBJECT_LEN: usize = 20_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [] => send(),
        [own, members @ ..] => {
            let members: Result<Vec<SocketAddr>, _> =
                members.iter().map(|address| address.parse()).collect();
            receive(own.parse()?, &members?)
        }
    }
}

/// Runs the root: starts the receivers, and sends.
fn send() -> Result<(), Box<dyn Error>> {
    // Free ports. With a machine per member any fixed port will do.
    let free = || std::net::TcpListener::bind("127.0.0.1:0")?.local_addr();
    let members = [free()?, free()?, free()?, free()?];
    let mut receivers = Vec::new();
    for own in 1..members.len() {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(own.to_string()).args(members.map(|address| address.to_string()));
        receivers.push(command.stdin(Stdio::null()).spawn()?);
    }
    let mut file = std::env::temp_dir();
    file.push(format!("onepipe-group-{}", std::process::id()));
    std::fs::File::create(&file)?.write_all(&[b'.'; 1_000_000])?;

    let mut group = Group::create(&members, 0, GroupOptions::default())?;
    let report = group.send_file(&file)?;
    group.send(vec![7; OBJECT_LEN])?;
    group.close()?;
    std::fs::remove_file(&file)?;
    for mut receiver in receivers {
        assert!(receiver.wait()?.success(), "a receiver has failed");
    }
    println!("3 members have a file of {} bytes and an object of {OBJECT_LEN}", report.bytes);
    Ok(())
}

/// Runs a receiver.
fn receive(own: u32, members: &[SocketAddr]) -> Result<(), Box<dyn Error>> {
    let mut group = Group::create(members, own, GroupOptions::default())?;
    // Receive the object into this buffer instead of a newly allocated one.
    group.offer_buffer(Vec::with_capacity(OBJECT_LEN));
    let mut file = std::env::temp_dir();
    file.push(format!("onepipe-group-{}", std::process::id()));
    let report = group.recv_file(&file)?;
    std::fs::remove_file(&file)?;
    let object = group.recv()?.ok_or("the root has closed too early")?;
    assert!(object.bytes.iter().all(|byte| *byte == 7));
    println!("member {own}: BLAKE3 {} and {} bytes", report.digest_hex(), object.bytes.len());
    group.close()?;
    Ok(())
}
