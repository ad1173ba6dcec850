//! A real etcd cluster of three members on this machine, queried over its JSON gateway.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::program::wait_until;

/// Number of members.
pub const MEMBERS: usize = 3;

/// Three members in a temporary directory, killed on drop.
pub struct Cluster {
    members: Vec<Member>,
    folder: TempDir,
}

struct Member {
    client_port: u16,
    peer_port: u16,
    process: Option<Child>,
}

impl Cluster {
    /// Starts a cluster and waits for a quorum.
    pub fn start() -> Self {
        let ports = free_ports();
        let member = |at: usize| Member {
            client_port: ports[2 * at],
            peer_port: ports[2 * at + 1],
            process: None,
        };
        let folder = tempfile::tempdir().expect("a folder");
        let mut cluster = Self { members: (0..MEMBERS).map(member).collect(), folder };
        (0..MEMBERS).for_each(|at| cluster.restart(at));
        wait_until("there is a quorum", || cluster.has_quorum());
        cluster
    }

    /// Starts a member with its existing data.
    pub fn restart(&mut self, at: usize) {
        let peers = self.members.iter().enumerate();
        let peers = peers.map(|(at, member)| format!("member{at}={}", url(member.peer_port)));
        let all = peers.collect::<Vec<_>>().join(",");
        let member = &mut self.members[at];
        let (client, peer) = (url(member.client_port), url(member.peer_port));
        let path = self.folder.path().join(format!("{at}.log"));
        let log = OpenOptions::new().create(true).append(true).open(path).expect("a log");
        // A member must not outlive the test, however that ends.
        let mut etcd = Command::new("setpriv");
        etcd.args(["--pdeathsig", "KILL", "etcd", "--initial-cluster-state", "new"])
            .args(["--name", &format!("member{at}"), "--initial-cluster", &all])
            .arg("--data-dir")
            .arg(self.folder.path().join(at.to_string()))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log);
        member.process = Some(etcd.spawn().expect("`cargo xtask test` installs etcd-server"));
    }

    /// Kills a member with SIGKILL.
    pub fn kill(&mut self, at: usize) {
        let mut process = self.members[at].process.take().expect("it is running");
        process.kill().expect("own child");
        process.wait().expect("own child");
    }

    /// Kills all members, has `change` change the folder of their data, and starts them again.
    pub fn change_data(&mut self, change: impl FnOnce(&Path)) {
        (0..MEMBERS).for_each(|at| self.kill(at));
        change(self.folder.path());
        (0..MEMBERS).for_each(|at| self.restart(at));
        wait_until("there is a quorum again", || self.has_quorum());
    }

    /// Returns the URLs of all members, as taken by the controller.
    pub fn urls(&self) -> String {
        let urls = self.members.iter().map(|member| url(member.client_port));
        urls.collect::<Vec<_>>().join(",")
    }

    /// Returns whether a linearizable read succeeds.
    pub fn has_quorum(&self) -> bool {
        self.members.iter().any(|member| reads(member.client_port).unwrap_or(false))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for process in self.members.iter_mut().filter_map(|member| member.process.as_mut()) {
            // Fails when the process has exited already.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

/// Reads the key `a` with a linearizable read.
fn reads(port: u16) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    let body = r#"{"key":"YQ=="}"#;
    write!(
        stream,
        "POST /v3/kv/range HTTP/1.0\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    Ok(response.contains(" 200 "))
}

/// Returns ports that are free at the moment.
fn free_ports() -> Vec<u16> {
    let listen = |_| TcpListener::bind("127.0.0.1:0").expect("a port");
    let listeners: Vec<TcpListener> = (0..2 * MEMBERS).map(listen).collect();
    let port = |listener: &TcpListener| listener.local_addr().expect("bound").port();
    listeners.iter().map(port).collect()
}
