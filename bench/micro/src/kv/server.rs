//! Servers as child processes: each side of a benchmark.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::cpu_time;
use crate::children::Children;
use crate::rival_process::rival_command;

/// How long a server may take to answer, and to end.
const LIMIT: Duration = Duration::from_secs(30);
/// Time between two looks at a server that starts.
const INTERVAL: Duration = Duration::from_millis(10);

/// A running server, or several that serve together. They end, and their files are removed, when
/// it is dropped.
pub(crate) struct Server {
    children: Children,
    ports: Vec<u16>,
    /// What `onepipe kv serve` prints at its end goes here: without a reader it would fail.
    output: Option<ChildStdout>,
    folder: Folder,
}

impl Server {
    /// Returns a server without processes, whose files are to be in memory if `is_in_memory`, and
    /// otherwise in the folder for temporary files.
    pub(crate) fn new(is_in_memory: bool) -> Result<Self> {
        let folder = Folder::create(is_in_memory)?;
        Ok(Self { children: Children::default(), ports: Vec::new(), output: None, folder })
    }

    /// Starts `onepipe kv serve` with three shards.
    pub(super) fn onepipe(program: &Path, replicas: u16, is_durable: bool) -> Result<Self> {
        let mut server = Self::new(false)?;
        let fabric = new_fabric();
        let program = program.to_str().context("the path of this program is not UTF-8")?;
        let replicas = replicas.to_string();
        let mut command = vec![program, "kv", "serve", "--resp", "127.0.0.1:0", "--shards", "3"];
        command.extend(["--replicas", &replicas, "--fabric", &fabric]);
        let data = server.folder.path_of("data")?;
        if is_durable {
            command.extend(["--data", &data, "--fsync", "always"]);
        }
        let command: Vec<String> = command.into_iter().map(str::to_owned).collect();
        let mut command = rival_command(&command)?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let child = server.children.spawn(&mut command)?;
        let mut output = child.stdout.take().context("its output is piped")?;
        // The second line ends in the port.
        let line = BufReader::new(&mut output).lines().nth(1);
        let line = line.context("onepipe kv serve ended at its start")??;
        server.output = Some(output);
        let port = line.rsplit(' ').next().and_then(|port| port.parse().ok());
        server.ports.push(port.with_context(|| format!("no port in {line:?}"))?);
        Ok(server)
    }

    /// Starts `redis-server`, also on a Unix socket.
    pub(super) fn redis(is_durable: bool) -> Result<Self> {
        let mut server = Self::new(false)?;
        let append = if is_durable { "yes" } else { "no" };
        let socket = server.folder.path_of("socket")?;
        server.start_redis(
            free_ports(1)?[0],
            &["--appendonly", append, "--appendfsync", "always", "--unixsocket", &socket],
        )?;
        server.wait_for_redis()?;
        Ok(server)
    }

    /// Starts one more `redis-server`, with further settings.
    pub(super) fn start_redis(&mut self, port: u16, settings: &[&str]) -> Result<()> {
        let directory = self.folder.path_of(&port.to_string())?;
        std::fs::create_dir(&directory).with_context(|| format!("creating {directory}"))?;
        let number = port.to_string();
        let mut command = vec!["redis-server", "--port", &number, "--bind", "127.0.0.1"];
        command.extend(["--save", "", "--dir", &directory, "--logfile", "log"]);
        command.extend(settings);
        self.start(&command, port)
    }

    /// Starts etcd as a cluster of one.
    #[cfg(feature = "etcd")]
    pub(super) fn etcd(is_in_memory: bool) -> Result<Self> {
        let mut server = Self::new(is_in_memory)?;
        let [clients, peers] = free_ports(2)?[..] else { bail!("two ports were asked for") };
        let url = |port| format!("http://127.0.0.1:{port}");
        let data = server.folder.path_of("data")?;
        let command = [
            "etcd",
            "--name=bench",
            &format!("--data-dir={data}"),
            &format!("--listen-client-urls={}", url(clients)),
            &format!("--advertise-client-urls={}", url(clients)),
            &format!("--listen-peer-urls={}", url(peers)),
            &format!("--initial-advertise-peer-urls={}", url(peers)),
            &format!("--initial-cluster=bench={}", url(peers)),
            "--logger=zap",
            &format!("--log-outputs={data}.log"),
        ];
        server.start(&command, clients)?;
        server.wait_for("etcd serves clients", |server| {
            let mut reply = String::new();
            let mut stream = TcpStream::connect(("127.0.0.1", server.port())).ok()?;
            stream.write_all(b"GET /health HTTP/1.0\r\n\r\n").ok()?;
            stream.read_to_string(&mut reply).ok()?;
            reply.contains("true").then_some(())
        })?;
        Ok(server)
    }

    /// Starts a process that listens at `port`.
    pub(crate) fn start(&mut self, command: &[&str], port: u16) -> Result<()> {
        let words: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        let mut command = rival_command(&words)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.children.spawn(&mut command)?;
        self.ports.push(port);
        Ok(())
    }

    /// Returns the path of a file of the server.
    pub(crate) fn path_of(&self, name: &str) -> Result<String> {
        self.folder.path_of(name)
    }

    /// Returns the port of the first process.
    pub(crate) fn port(&self) -> u16 {
        self.ports[0]
    }

    /// Returns the ports of all processes.
    pub(super) fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// Returns the path of the Unix socket of a Redis server.
    pub(super) fn socket(&self) -> PathBuf {
        self.folder.0.join("socket")
    }

    /// Returns the CPU time that the processes have used, in s.
    pub(crate) fn cpu_seconds(&self) -> Result<f64> {
        cpu_time::seconds_of(&self.children.pids())
    }

    /// Waits until all Redis servers answer.
    pub(super) fn wait_for_redis(&mut self) -> Result<()> {
        self.wait_for("all Redis servers answer", |server| {
            let answers = |port: &u16| {
                let mut reply = [0; 7];
                let mut stream = TcpStream::connect(("127.0.0.1", *port)).ok()?;
                stream.write_all(b"PING\r\n").ok()?;
                stream.read_exact(&mut reply).ok()?;
                (&reply == b"+PONG\r\n").then_some(())
            };
            server.ports.iter().try_for_each(answers)
        })
    }

    /// Waits until a condition holds.
    pub(crate) fn wait_for<T>(
        &mut self,
        condition: &str,
        mut holds: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T> {
        let began = Instant::now();
        loop {
            if let Some(value) = holds(self) {
                return Ok(value);
            }
            if let Some(status) = self.children.ended()? {
                bail!("a server ended before {condition}: {status}{}", self.folder.last_logs());
            }
            let is_late = began.elapsed() > LIMIT;
            ensure!(!is_late, "{condition} not within {LIMIT:?}{}", self.folder.last_logs());
            std::thread::sleep(INTERVAL);
        }
    }

    /// Ends the processes in order, and removes their files.
    pub(crate) fn stop(self) -> Result<()> {
        self.children.terminate(LIMIT)
    }
}

/// Runs a program to its end, and returns its output. The program dies with this process.
pub(crate) fn output_of(command: &[&str]) -> Result<String> {
    let words: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
    let mut started = rival_command(&words)?;
    started.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut children = Children::default();
    let child = children.spawn(&mut started)?;
    let mut output = String::new();
    let mut stdout = child.stdout.take().context("its output is piped")?;
    stdout.read_to_string(&mut output).context("reading what it prints")?;
    let status = child.wait()?;
    ensure!(status.success(), "{} failed: {status}\n{output}", command.join(" "));
    Ok(output)
}

/// Returns the name of a fabric that no other store on this machine has.
pub(crate) fn new_fabric() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("kv-bench-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Returns whether a program can be run.
pub(crate) fn is_installed(program: &str) -> bool {
    let version = Command::new(program).arg("--version").stdin(Stdio::null()).output();
    version.is_ok_and(|output| output.status.success())
}

/// Returns TCP ports of this machine that are free now.
pub(crate) fn free_ports(count: usize) -> Result<Vec<u16>> {
    // All sockets are open until the last port is known, so that no port comes twice.
    let sockets: Vec<TcpListener> = (0..count)
        .map(|_| TcpListener::bind("127.0.0.1:0").context("looking for a free port"))
        .collect::<Result<_>>()?;
    sockets.iter().map(|socket| Ok(socket.local_addr()?.port())).collect()
}

/// Folder for the files of a server; removed on drop.
pub(crate) struct Folder(PathBuf);

static FOLDERS: AtomicU64 = AtomicU64::new(0);

impl Folder {
    pub(crate) fn create(is_in_memory: bool) -> Result<Self> {
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let [on_disk, in_memory] = parents();
        let parent = if is_in_memory { in_memory } else { on_disk };
        let path = parent.join(number.to_string());
        std::fs::create_dir_all(&path).with_context(|| format!("creating {}", path.display()))?;
        Ok(Self(path))
    }

    pub(crate) fn path_of(&self, name: &str) -> Result<String> {
        let path = self.0.join(name);
        Ok(path.to_str().context("the folder for temporary files is not UTF-8")?.to_owned())
    }

    /// Returns the last lines of the servers' logs, for an error.
    fn last_logs(&self) -> String {
        let logs = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
        let logs = logs.map(|entry| entry.path()).map(|path| match path.is_dir() {
            true => path.join("log"),
            false => path,
        });
        let texts = logs.filter_map(|path| std::fs::read_to_string(path).ok());
        let last = |text: String| {
            let lines: Vec<&str> = text.lines().rev().take(3).collect();
            lines.into_iter().rev().map(|line| format!("\n{line}")).collect::<String>()
        };
        texts.map(last).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the cleanup, or with the temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
        // Fails while other folders are in use.
        parents().iter().for_each(|parent| drop(std::fs::remove_dir(parent)));
    }
}

/// Returns the folders of all servers of this process: on disk, and in memory.
fn parents() -> [PathBuf; 2] {
    let name = format!("onepipe-kv-bench-{}", std::process::id());
    [std::env::temp_dir().join(&name), Path::new("/dev/shm").join(name)]
}

/// Removes the files that a benchmark leaves when it is interrupted; its processes have ended.
pub fn cleanup_kv() {
    for parent in parents() {
        // Fails if there is none.
        let _ = std::fs::remove_dir_all(parent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_distinct() {
        let mut ports = free_ports(16).expect("loopback has free ports");
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 16);
    }

    #[test]
    fn folders_are_removed_and_show_logs() {
        for is_in_memory in [false, true] {
            let folder = Folder::create(is_in_memory).expect("temporary folders are there");
            std::fs::write(folder.0.join("data.log"), "1\n2\n3\nlast").expect("it was created");
            assert_eq!(folder.last_logs(), "\n2\n3\nlast");
            let path = folder.0.clone();
            drop(folder);
            assert!(!path.exists());
        }
    }
}
