//! A process that is stopped while it waits for the others, and continued.
//!
//! In a program of its own: a process being started briefly inherits the sockets of concurrent
//! tests, some of which check that theirs are closed.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use onepipe_transport_tcp::{Listener, Rendezvous, connect_members};

const TEST: &str = "stopped_root_resumes_the_rendezvous";
/// The address of the other member; set in the process that plays the root.
const OTHER: &str = "ONEPIPE_TEST_OTHER";
/// This bound only fails a hanging test.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A handshake message between member 1 of group 1 and its root.
fn handshake(role: u8, from: u8, to: u8) -> [u8; 24] {
    let mut handshake = [0; 24];
    handshake[..5].copy_from_slice(&[b'1', b'p', b'b', 1, role]);
    (handshake[15], handshake[19], handshake[23]) = (1, from, to);
    handshake
}

fn recv(mut stream: &TcpStream) -> [u8; 24] {
    let mut handshake = [0; 24];
    // A root that has given up sends nothing more.
    let _ = stream.read_exact(&mut handshake);
    handshake
}

/// A continued process finds its system call interrupted: that is no failure.
#[test]
fn stopped_root_resumes_the_rendezvous() {
    if let Ok(other) = std::env::var(OTHER) {
        let listener = Listener::bind("127.0.0.1:0".parse().expect("a valid address"))
            .expect("the listener binds");
        let members = [listener.address(), other.parse().expect("the parent has set it")];
        let rendezvous = Rendezvous { group: 1, members: &members, own: 0, timeout: TIMEOUT };
        connect_members(&rendezvous, &listener).expect("the other member connects");
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let at = listener.local_addr().expect("the socket is bound");
    let root = Command::new(std::env::current_exe().expect("this test has a path"))
        .args(["--exact", TEST])
        .env(OTHER, at.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test can start itself");
    let (stream, _) = listener.accept().expect("the root connects");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout can be set");
    assert_eq!(recv(&stream), handshake(1, 0, 1), "to be a member's link to another one");
    for signal in ["-STOP", "-CONT"].repeat(20) {
        let kill = Command::new("kill").args([signal, &root.id().to_string()]).status();
        assert!(kill.is_ok_and(|status| status.success()), "the process is a child");
        std::thread::sleep(Duration::from_millis(5));
    }
    // Ready. The root may have ended.
    let _ = (&stream).write_all(&handshake(3, 1, 0));
    let received = recv(&stream);
    let output = root.wait_with_output().expect("the process is a child");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(received, handshake(5, 0, 1), "the group starts");
}
