//! Hosts: network namespaces, each with a pair of devices to the switch in this one.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// Environment variable that makes the test program a node: its id.
pub const NODE: &str = "ONEPIPE_TEST_NODE";

/// Namespaces that are removed in the end.
pub struct Hosts {
    names: Vec<String>,
    folder: std::path::PathBuf,
}

/// Runs a command. Returns its output, or the error output if it fails.
fn run(text: &str) -> Result<String, String> {
    let words: Vec<&str> = text.split(' ').collect();
    let output = Command::new(words[0]).args(&words[1..]).output();
    let output = output.map_err(|error| format!("{text}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{text}: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

fn run_checked(text: &str) {
    run(text).unwrap_or_else(|error| panic!("{error}"));
}

/// Returns the device of the switch that leads to `host`.
pub fn device(host: u32) -> String {
    format!("opx{}h{host}", std::process::id() % 10_000)
}

/// Returns what `ip` says of a device of the switch; `None` if there is no such device.
pub fn describe(device: &str) -> Option<String> {
    run(&format!("ip link show dev {device}")).ok()
}

impl Hosts {
    /// Makes hosts 10.78.H.2, at devices of the switch with the address 10.78.H.1. Prints a reason
    /// and returns `None` where that is not possible.
    pub fn new(count: u32) -> Option<Self> {
        let folder = std::env::temp_dir().join(device(0));
        let mut hosts = Self { names: Vec::new(), folder };
        std::fs::create_dir_all(&hosts.folder).expect("a folder for the object");
        let object = hosts.folder.join("switch.bpf.o");
        std::fs::write(&object, onepipe_dataplane_xdp::OBJECT).expect("the folder is new");
        for host in 0..count {
            let (name, device) = (device(host), device(host));
            if let Err(error) = run(&format!("ip netns add {name}")) {
                eprintln!("SKIPPED: network namespaces need root and iproute2 ({error})");
                return None;
            }
            hosts.names.push(name.clone());
            run_checked(&format!("ip link add {device} type veth peer name eth0 netns {name}"));
            run_checked(&format!("ip addr add 10.78.{host}.1/24 dev {device}"));
            run_checked(&format!("ip link set {device} up"));
            run_checked(&format!("ip -n {name} link set lo up"));
            run_checked(&format!("ip -n {name} addr add 10.78.{host}.2/24 dev eth0"));
            run_checked(&format!("ip -n {name} link set eth0 up"));
            // A veth receives redirected frames only while a program or GRO is on.
            run_checked(&format!(
                "ip netns exec {name} ip link set dev eth0 xdpdrv object {} program receive",
                object.display()
            ));
        }
        Some(hosts)
    }

    /// Starts this test program again as node `host` on its host.
    pub fn start(&self, host: u32, test: &str) -> Node {
        let program = std::env::current_exe().expect("the test runs");
        let mut child = Command::new("ip")
            .args(["netns", "exec", &self.names[host as usize]])
            .arg(program)
            .args([test, "--exact", "--nocapture"])
            .env(NODE, host.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .expect("ip was there before");
        let output = child.stdout.take().expect("piped");
        let lines = std::thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            let lines = lines.filter_map(|line| line.strip_prefix("node: ").map(str::to_string));
            lines.collect::<Vec<String>>()
        });
        Node { child, lines }
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = run(&format!("ip netns del {name}"));
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A program on a host.
pub struct Node {
    child: Child,
    lines: std::thread::JoinHandle<Vec<String>>,
}

impl Node {
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for its end. Returns what it has printed as a node.
    pub fn lines(mut self) -> Vec<String> {
        let status = self.child.wait().expect("it was started");
        let lines = self.lines.join().expect("it prints text");
        assert!(status.success(), "{status}: {lines:?}");
        lines
    }
}
