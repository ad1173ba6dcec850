//! Test hosts: network namespaces on a bridge in its own namespace, with programs in them.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Allows one lab at a time: each keeps all cores busy.
static LAB_LOCK: Mutex<()> = Mutex::new(());

const PROGRAM: &str = env!("CARGO_BIN_EXE_overlay");
/// Limit on every wait.
const WAIT_MAX: Duration = Duration::from_secs(60);

pub struct Lab {
    /// The bridge's namespace, followed by those of the hosts.
    namespaces: Vec<String>,
    programs: Vec<Program>,
    _lock: MutexGuard<'static, ()>,
}

struct Program {
    name: &'static str,
    child: Child,
    lines: Receiver<String>,
    received: Vec<String>,
}

fn run(words: &[&str]) -> std::io::Result<Output> {
    Command::new(words[0]).args(&words[1..]).stdin(Stdio::null()).output()
}

/// Runs a command that must succeed. Returns its standard output.
fn run_checked(text: &str) -> String {
    let words: Vec<&str> = text.split(' ').collect();
    let output = run(&words).unwrap_or_else(|error| panic!("{text}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}: {stderr}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns a unique prefix for the names of a lab's namespaces, since tests run in parallel.
fn prefix() -> String {
    static LABS: AtomicU32 = AtomicU32::new(0);
    format!("onepipe-{}-{}", std::process::id(), LABS.fetch_add(1, Ordering::Relaxed))
}

/// Returns why a lab cannot be created here, if it cannot.
fn unavailable_reason(prefix: &str) -> Option<String> {
    for words in [["ip", "-V"], ["nft", "-v"]] {
        if run(&words).is_err() {
            return Some(format!("`{}` is not installed", words[0]));
        }
    }
    let probe = format!("{prefix}-probe");
    let made = run(&["ip", "netns", "add", &probe]);
    if made.is_ok_and(|made| made.status.success()) {
        run_checked(&format!("ip netns del {probe}"));
        return None;
    }
    Some("creating network namespaces requires root".to_owned())
}

impl Lab {
    /// Creates hosts 10.77.0.1 and following. Prints a reason and returns `None` where that is not
    /// possible.
    pub fn new(hosts: usize) -> Option<Self> {
        let turn = LAB_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        let prefix = prefix();
        if let Some(unavailable_reason) = unavailable_reason(&prefix) {
            eprintln!("SKIPPED: {unavailable_reason}");
            return None;
        }
        let mut lab = Self { namespaces: Vec::new(), programs: Vec::new(), _lock: turn };
        let bridge = lab.add_namespace(format!("{prefix}-bridge"));
        run_checked(&format!("ip -n {bridge} link add br0 type bridge"));
        run_checked(&format!("ip -n {bridge} link set br0 up"));
        for host in 0..hosts {
            let name = lab.add_namespace(format!("{prefix}-{host}"));
            run_checked(&format!("ip -n {name} link set lo up"));
            run_checked(&format!(
                "ip -n {name} link add eth0 type veth peer port{host} netns {bridge}"
            ));
            run_checked(&format!("ip -n {name} addr add 10.77.0.{}/24 dev eth0", host + 1));
            run_checked(&format!("ip -n {name} link set eth0 up"));
            run_checked(&format!("ip -n {bridge} link set port{host} master br0 up"));
        }
        Some(lab)
    }

    fn add_namespace(&mut self, name: String) -> String {
        run_checked(&format!("ip netns add {name}"));
        self.namespaces.push(name.clone());
        name
    }

    /// Lets each host drop this percentage of the datagrams that it receives.
    pub fn drop_percent(&self, percent: u32) {
        for host in &self.namespaces[1..] {
            let nft = |text: &str| run_checked(&format!("ip netns exec {host} nft {text}"));
            nft("add table inet loss");
            nft("add chain inet loss in { type filter hook input priority 0 ; }");
            nft(&format!(
                "add rule inet loss in meta l4proto udp numgen random mod 100 < {percent} \
                 counter drop"
            ));
        }
    }

    /// Takes down the only network card of a host.
    pub fn cut(&self, host: usize) {
        run_checked(&format!("ip -n {} link set eth0 down", self.namespaces[host + 1]));
    }

    /// Returns the number of datagrams dropped by [`Lab::drop_percent`].
    pub fn dropped(&self) -> u64 {
        let count = |host: &String| {
            let rules = run_checked(&format!("ip netns exec {host} nft list table inet loss"));
            let words: Vec<&str> = rules.split_whitespace().collect();
            let at =
                words.iter().position(|word| *word == "packets").expect("the rule has a counter");
            words[at + 1].parse::<u64>().expect("the counter is a number")
        };
        self.namespaces[1..].iter().map(count).sum()
    }

    /// Starts the program on a host.
    pub fn start(&mut self, host: usize, name: &'static str, arguments: &[&str]) {
        let mut child = Command::new("ip")
            .args(["netns", "exec", &self.namespaces[host + 1], PROGRAM])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let out = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            // The receiver is gone once the test is over.
            out.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)).ok();
        });
        self.programs.push(Program { name, child, lines, received: Vec::new() });
    }

    /// Waits for a line of program `name` that starts with `beginning`. Returns all lines so far.
    pub fn wait_for(&mut self, name: &str, beginning: &str) -> Vec<String> {
        let of_name = |program: &&mut Program| program.name == name;
        let program = self.programs.iter_mut().find(of_name).expect("the program was started");
        let began = Instant::now();
        while !program.received.last().is_some_and(|line| line.starts_with(beginning)) {
            let rest = WAIT_MAX.saturating_sub(began.elapsed());
            match program.lines.recv_timeout(rest) {
                Ok(line) => program.received.push(line),
                Err(error) => panic!("{name}, {} lines: {error}", program.received.len()),
            }
        }
        program.received.clone()
    }
}

impl Drop for Lab {
    /// Removes all programs and namespaces, whatever the outcome of the test.
    fn drop(&mut self) {
        for program in &mut self.programs {
            // Ends the program's input, then kills it without waiting for it to exit.
            drop(program.child.stdin.take());
            let _ = program.child.kill();
            let _ = program.child.wait();
        }
        for namespace in &self.namespaces {
            let _ = run(&["ip", "netns", "del", namespace]);
        }
    }
}
