//! Hosts: network namespaces on a bridge, which lies in a namespace of its own.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// Network of the hosts: host N has the address `10.78.0.N+1`.
const NETWORK: &str = "10.78.0";

/// Table and chain of the bridge's filter.
const TABLE: &str = "bridge soak";
const CHAIN: &str = "bridge soak forward";

/// Network namespaces that are connected by a bridge. Dropping removes them.
pub struct Hosts {
    bridge: String,
    names: Vec<String>,
}

/// Runs a command that must succeed.
fn run(text: &str) -> Result<()> {
    let mut words = text.split(' ');
    let program = words.next().unwrap_or_default();
    let output = Command::new(program).args(words).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run `{program}`: is it installed?"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{text}` failed: {}", error.trim());
    Ok(())
}

impl Hosts {
    /// Creates `count` hosts. Needs root, `ip`, `tc`, `nft` and `nsenter`.
    pub fn new(count: usize) -> Result<Self> {
        let prefix = format!("soak-{}", std::process::id());
        let bridge = format!("{prefix}-bridge");
        let create = format!("ip netns add {bridge}");
        run(&create).context("cannot create network namespaces: run as root")?;
        let mut hosts = Self { bridge: bridge.clone(), names: Vec::new() };
        run(&format!("ip -n {bridge} link add br0 type bridge"))?;
        run(&format!("ip -n {bridge} link set br0 up"))?;
        let chain = "forward { type filter hook forward priority 0 ; }";
        hosts
            .filter(&format!("add table {TABLE} ; add chain {TABLE} {chain}"))
            .context("cannot filter datagrams: is `nft` installed?")?;
        for host in 0..count {
            let name = format!("{prefix}-{host}");
            run(&format!("ip netns add {name}"))?;
            hosts.names.push(name.clone());
            run(&format!("ip -n {name} link set lo up"))?;
            let peer = format!("type veth peer port{host} netns {bridge}");
            let hardware = hardware_address(host);
            run(&format!("ip -n {name} link add eth0 address {hardware} {peer}"))?;
            run(&format!("ip -n {name} addr add {}/24 dev eth0", address(host)))?;
            run(&format!("ip -n {name} link set eth0 up"))?;
            run(&format!("ip -n {bridge} link set port{host} master br0 up"))?;
            // A host that does not answer a request for its hardware address is asked again after a
            // second only: no cut could be shorter.
            for other in (0..count).filter(|other| *other != host) {
                let (at, hardware) = (address(other), hardware_address(other));
                run(&format!("ip -n {name} neigh add {at} lladdr {hardware} dev eth0"))?;
            }
        }
        Ok(hosts)
    }

    /// Returns the command that starts `program` on a host.
    pub fn command(&self, host: usize, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.names[host])).arg(program);
        command
    }

    /// Separates a host from all others, or connects it again. A filter would not do, nor `ip -n`:
    /// on a busy machine the kernel takes seconds to change filters and to unmount folders.
    pub fn set_connected(&self, host: usize, is_connected: bool) -> Result<()> {
        // Disabled, or forwarding.
        let state = if is_connected { 3 } else { 0 };
        let port = format!("port{host} type bridge_slave state {state}");
        run(&format!("nsenter --net=/run/netns/{} ip link set {port}", self.bridge))
    }

    /// Lets a host lose this share of the datagrams that it receives, in percent.
    pub fn set_loss(&self, host: usize, percent: u32) -> Result<()> {
        let rule = match percent {
            0 => String::new(),
            percent => format!(
                " ; add rule {CHAIN} oifname port{host} ip protocol udp \
                 numgen random mod 100 < {percent} drop"
            ),
        };
        self.filter(&format!("flush chain {CHAIN}{rule}"))
    }

    /// Limits the bandwidth of the link to a host, in Mbit/s: datagrams beyond it wait for up to
    /// half a second. `None`: no limit.
    pub fn set_rate(&self, host: usize, megabits: Option<u32>) -> Result<()> {
        let queue = format!("nsenter --net=/run/netns/{} tc qdisc", self.bridge);
        match megabits {
            Some(rate) => run(&format!(
                "{queue} replace dev port{host} root tbf rate {rate}mbit burst 16kb latency 500ms"
            )),
            None => run(&format!("{queue} del dev port{host} root")),
        }
    }

    /// Changes what the bridge forwards.
    fn filter(&self, rules: &str) -> Result<()> {
        run(&format!("ip netns exec {} nft {rules}", self.bridge))
    }
}

/// Returns the address of a host.
pub fn address(host: usize) -> String {
    format!("{NETWORK}.{}", host + 1)
}

fn hardware_address(host: usize) -> String {
    format!("02:00:00:00:00:{:02x}", host + 1)
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in self.names.iter().chain([&self.bridge]) {
            if let Err(error) = run(&format!("ip netns del {name}")) {
                eprintln!("soak: {error:#}");
            }
        }
    }
}
