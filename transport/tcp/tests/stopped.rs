//! A process that is stopped while it waits for others, and goes on.
//!
//! Alone in its program: a process that is being started holds the sockets of all tests beside it
//! for a moment, and some of those look whether theirs are closed.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use onepipe_transport_tcp::{Listener, Rendezvous, connect_members};

const TEST: &str = "a_root_that_is_stopped_while_it_waits_goes_on";
/// Set in the process that is the root: where the other member is.
const OTHER: &str = "ONEPIPE_TEST_OTHER";
/// What takes this long never comes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// What member 1 of group 1 and its root say to each other: what for, who, to whom.
fn handshake(role: u8, from: u8, to: u8) -> [u8; 24] {
    let mut handshake = [0; 24];
    handshake[..5].copy_from_slice(&[b'1', b'p', b'b', 1, role]);
    (handshake[15], handshake[19], handshake[23]) = (1, from, to);
    handshake
}

fn recv(mut stream: &TcpStream) -> [u8; 24] {
    let mut handshake = [0; 24];
    // Of a root that has given up nothing more comes.
    let _ = stream.read_exact(&mut handshake);
    handshake
}

/// The kernel tells whoever goes on that its wait was interrupted: that is no failure.
#[test]
fn stopped_root_resumes_the_rendezvous() {
    if let Ok(other) = std::env::var(OTHER) {
        let listener = Listener::bind("127.0.0.1:0".parse().expect("an address")).expect("a door");
        let members = [listener.address(), other.parse().expect("the parent has set it")];
        let rendezvous = Rendezvous { group: 1, members: &members, own: 0, timeout: TIMEOUT };
        connect_members(&rendezvous, &listener).expect("the other is here");
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("it is bound");
    let root = Command::new(std::env::current_exe().expect("this test has a path"))
        .args(["--exact", TEST])
        .env(OTHER, at.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test can start itself");
    let (stream, _) = listener.accept().expect("the root connects");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a time");
    assert_eq!(recv(&stream), handshake(1, 0, 1), "to be a member's link to another one");
    for signal in ["-STOP", "-CONT"].repeat(20) {
        let kill = Command::new("kill").args([signal, &root.id().to_string()]).status();
        assert!(kill.is_ok_and(|status| status.success()), "it is our child");
        std::thread::sleep(Duration::from_millis(5));
    }
    // Ready. It may have gone.
    let _ = (&stream).write_all(&handshake(3, 1, 0));
    let received = recv(&stream);
    let output = root.wait_with_output().expect("it is ours");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(received, handshake(5, 0, 1), "the group begins");
}
