//! Hosts: network namespaces on a bridge, which lies in a namespace of its own.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// Network of the hosts: host N has the address `10.78.0.N+1`.
const NETWORK: &str = "10.78.0";

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
    /// Creates `count` hosts. Needs root, `ip` and `nft`.
    pub fn new(count: usize) -> Result<Self> {
        let prefix = format!("soak-{}", std::process::id());
        let bridge = format!("{prefix}-bridge");
        let create = format!("ip netns add {bridge}");
        run(&create).context("cannot create network namespaces: run as root")?;
        let mut hosts = Self { bridge: bridge.clone(), names: Vec::new() };
        run(&format!("ip -n {bridge} link add br0 type bridge"))?;
        run(&format!("ip -n {bridge} link set br0 up"))?;
        for host in 0..count {
            let name = format!("{prefix}-{host}");
            run(&format!("ip netns add {name}"))?;
            hosts.names.push(name.clone());
            run(&format!("ip -n {name} link set lo up"))?;
            let peer = format!("type veth peer port{host} netns {bridge}");
            run(&format!("ip -n {name} link add eth0 {peer}"))?;
            run(&format!("ip -n {name} addr add {}/24 dev eth0", address(host)))?;
            run(&format!("ip -n {name} link set eth0 up"))?;
            run(&format!("ip -n {bridge} link set port{host} master br0 up"))?;
            run(&format!("ip netns exec {name} nft add table inet soak"))?;
            let chain = "input { type filter hook input priority 0 ; }";
            run(&format!("ip netns exec {name} nft add chain inet soak {chain}"))?;
        }
        Ok(hosts)
    }

    /// Returns the command that starts `program` on a host.
    pub fn command(&self, host: usize, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[host], program]);
        command
    }

    /// Separates a host from all others, or connects it again. An interface that is down would
    /// forget the addresses of the others, and ask for them once a second only.
    pub fn set_connected(&self, host: usize, is_connected: bool) -> Result<()> {
        for (other, name) in self.names.iter().enumerate() {
            let nft = format!("ip netns exec {name} nft");
            run(&format!("{nft} flush chain inet soak input"))?;
            if !is_connected {
                let what = match other == host {
                    true => "iif eth0".to_owned(),
                    false => format!("ip saddr {}", address(host)),
                };
                run(&format!("{nft} add rule inet soak input {what} drop"))?;
            }
        }
        Ok(())
    }

    /// Lets a host lose this share of the datagrams that it receives, in percent.
    pub fn set_loss(&self, host: usize, percent: u32) -> Result<()> {
        let nft = format!("ip netns exec {} nft", self.names[host]);
        run(&format!("{nft} flush chain inet soak input"))?;
        if percent > 0 {
            let rule = format!("meta l4proto udp numgen random mod 100 < {percent} drop");
            run(&format!("{nft} add rule inet soak input {rule}"))?;
        }
        Ok(())
    }
}

/// Returns the address of a host.
pub fn address(host: usize) -> String {
    format!("{NETWORK}.{}", host + 1)
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
