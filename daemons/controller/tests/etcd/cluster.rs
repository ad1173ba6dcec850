//! A real etcd of three members on this machine, for one test.

use std::fs::{File, OpenOptions};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use etcd_client::Client;
use onepipe_daemon_controller::{EtcdConfig, EtcdStore};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::conformance::TIMEOUT;

const MEMBERS: usize = 3;

/// One cluster at a time: three of them on two cores would keep electing leaders.
static CLUSTER_LOCK: Mutex<()> = Mutex::new(());

/// Three members in a folder. They are killed when this is dropped, also in a panic, and when the
/// thread that started them ends in any other way.
pub struct Cluster {
    members: Vec<Member>,
    runtime: Runtime,
    folder: TempDir,
    _lock: MutexGuard<'static, ()>,
}

struct Member {
    name: String,
    client_url: String,
    peer_url: String,
    process: Option<Child>,
}

impl Cluster {
    /// Starts a cluster and waits until it has a leader.
    pub fn start() -> Self {
        let lock = CLUSTER_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let ports = free_ports();
        let members = (0..MEMBERS).map(|at| Member {
            name: format!("member{at}"),
            client_url: format!("http://127.0.0.1:{}", ports[2 * at]),
            peer_url: format!("http://127.0.0.1:{}", ports[2 * at + 1]),
            process: None,
        });
        let mut cluster = Self {
            members: members.collect(),
            runtime: runtime.expect("a runtime"),
            folder: tempfile::tempdir().expect("a folder"),
            _lock: lock,
        };
        (0..MEMBERS).for_each(|at| cluster.start_member(at));
        cluster.leader();
        cluster
    }

    /// Starts a member with the data that it has on disk.
    pub fn start_member(&mut self, at: usize) {
        let all: Vec<String> = self
            .members
            .iter()
            .map(|member| format!("{}={}", member.name, member.peer_url))
            .collect();
        let member = &mut self.members[at];
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.path().join(format!("{}.log", member.name)));
        let log: File = log.expect("a log");
        // A member must not outlive its parent, however that ends.
        let mut etcd = Command::new("setpriv");
        etcd.args(["--pdeathsig", "KILL", "etcd", "--initial-cluster-state", "new"])
            .args(["--name", &member.name, "--initial-cluster", &all.join(",")])
            .arg("--data-dir")
            .arg(self.folder.path().join(&member.name))
            .args(["--listen-client-urls", &member.client_url])
            .args(["--advertise-client-urls", &member.client_url])
            .args(["--listen-peer-urls", &member.peer_url])
            .args(["--initial-advertise-peer-urls", &member.peer_url])
            .env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log);
        member.process = Some(etcd.spawn().expect("`cargo xtask test` installs etcd-server"));
    }

    /// Kills a member (SIGKILL).
    pub fn kill(&mut self, at: usize) {
        let mut process = self.members[at].process.take().expect("it runs");
        process.kill().expect("it is ours");
        process.wait().expect("it is ours");
    }

    /// Returns the leader, once there is one.
    pub fn leader(&self) -> usize {
        let began = Instant::now();
        loop {
            for at in (0..MEMBERS).filter(|at| self.members[*at].process.is_some()) {
                if self.is_leader(at) {
                    return at;
                }
            }
            assert!(began.elapsed() < TIMEOUT, "no leader:\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn is_leader(&self, at: usize) -> bool {
        let url = &self.members[at].client_url;
        let ask = async {
            let mut status = Client::connect([url], None).await.ok()?.status().await.ok()?;
            Some(status.take_header()?.member_id() == status.leader())
        };
        let ask = async { tokio::time::timeout(Duration::from_secs(1), ask).await };
        self.runtime.block_on(ask).ok().flatten() == Some(true)
    }

    /// Compacts everything up to now, except the last value of each key.
    pub fn compact(&self) {
        let url = &self.members[self.leader()].client_url;
        let compact = async {
            let mut client = Client::connect([url], None).await?;
            let now = client.get("any", None).await?.header().map_or(0, |header| header.revision());
            client.compact(now, None).await
        };
        self.runtime.block_on(compact).expect("there is a quorum");
    }

    /// Returns the configuration of a replica. Every test has a new cluster: one prefix is
    /// sufficient.
    pub fn config(&self) -> EtcdConfig {
        let urls = self.members.iter().map(|member| member.client_url.clone());
        EtcdConfig::new(urls)
    }

    pub fn replica(&self) -> EtcdStore {
        EtcdStore::new(&self.config()).expect("the endpoints are addresses")
    }

    /// Returns the last log lines of each member.
    fn logs(&self) -> String {
        let last = |member: &Member| {
            let path = self.folder.path().join(format!("{}.log", member.name));
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let lines: Vec<&str> = text.lines().rev().take(8).collect();
            format!("{}:\n{}\n", member.name, lines.join("\n"))
        };
        self.members.iter().map(last).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for process in self.members.iter_mut().filter_map(|member| member.process.as_mut()) {
            // It may have ended before.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Returns ports that are free at the moment.
fn free_ports() -> Vec<u16> {
    let listen = |_| TcpListener::bind("127.0.0.1:0").expect("a port");
    let listeners: Vec<TcpListener> = (0..2 * MEMBERS).map(listen).collect();
    let port = |listener: &TcpListener| listener.local_addr().expect("bound").port();
    listeners.iter().map(port).collect()
}
