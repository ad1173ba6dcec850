//! `onepipe block serve`: a device in a file, as a program.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use crate::program::{Running, errors, onepipe, output};

/// The greeting of an NBD server, and what it answers to the name of the default device.
fn size_of_device(socket: &str) -> u64 {
    let mut stream = UnixStream::connect(socket).expect("the device is served");
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).expect("a greeting");
    assert_eq!(greeting[..16], *b"NBDMAGICIHAVEOPT");
    stream.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0").expect("it reads");
    let mut size = [0; 8];
    stream.read_exact(&mut size).expect("the size");
    u64::from_be_bytes(size)
}

#[test]
fn serves_a_file_until_it_is_interrupted() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name| directory.path().join(name).to_str().expect("text").to_owned();
    let (file, socket) = (path("disk"), path("socket"));
    let nbd = format!("unix:{socket}");
    let serve = ["block", "serve", "--nbd", &nbd, "--file", &file];
    let missing = errors(&output(&serve));
    assert!(missing.contains("does not exist: give the size of a new device"), "{missing}");

    let new = [&serve[..], &["--size", "8MiB", "--json"]].concat();
    let mut running = Running::start(&mut onepipe(&new));
    assert_eq!(running.line(), format!("{file}: 8388608 bytes, a local file, not replicated"));
    assert_eq!(running.line(), format!("nbdinfo 'nbd+unix:///?socket={socket}'"));
    assert_eq!(size_of_device(&socket), 8 << 20);
    let in_use = errors(&output(&serve));
    assert!(in_use.contains("is used by another server: stop that server"), "{in_use}");
    running.signal("-INT");
    let last: serde_json::Value = serde_json::from_str(&running.line()).expect("an object");
    assert_eq!((&last["connections"], &last["failed"]), (&1.into(), &0.into()));
    assert!(running.child.wait().expect("own child").success());
    assert!(!std::fs::exists(&socket).expect("readable"), "the socket is removed");

    let resized = errors(&output(&[&serve[..], &["--size", "9MiB"]].concat()));
    assert!(resized.contains("a device cannot be resized"), "{resized}");
}
