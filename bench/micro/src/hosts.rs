//! Emulated hosts: network namespaces, each with a pair of devices to the switch in this one.

use anyhow::{Context, Result};

use crate::cleanup::{self, Resource, run};

/// UDP port of the switch.
const PORT: u16 = 4410;

/// Network namespaces, removed on drop.
#[derive(Debug)]
pub(crate) struct Hosts {
    count: u32,
    prefix: String,
    subnet: u8,
}

impl Hosts {
    /// Creates `count` hosts, at most 64.
    pub(crate) fn new(count: u32) -> Result<Self> {
        let pid = std::process::id();
        let hosts = Self { count, prefix: format!("oph{}", pid % 10_000), subnet: pid as u8 };
        hosts.resources().for_each(cleanup::register);
        for host in 0..count {
            hosts.add(host).context(
                "emulated hosts need root and the programs `ip` and `ethtool` (Debian packages \
                 iproute2 and ethtool)",
            )?;
        }
        Ok(hosts)
    }

    fn add(&self, host: u32) -> Result<()> {
        let (name, device) = (&self.namespace(host), &self.device(host));
        run("ip", &["netns", "add", name])?;
        let pair = ["link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", name];
        run("ip", &pair)?;
        run("ip", &["addr", "add", &format!("{}/30", self.switch_ip(host)), "dev", device])?;
        run("ip", &["link", "set", device, "up"])?;
        run("ip", &["-n", name, "link", "set", "lo", "up"])?;
        let own = format!("10.{}.{host}.2/30", self.subnet);
        run("ip", &["-n", name, "addr", "add", &own, "dev", "eth0"])?;
        run("ip", &["-n", name, "link", "set", "eth0", "up"])?;
        // A veth drops redirected frames otherwise.
        run("ip", &["netns", "exec", name, "ethtool", "-K", "eth0", "gro", "on"])
    }

    fn resources(&self) -> impl Iterator<Item = Resource> {
        let namespaces = (0..self.count).map(|host| Resource::Namespace(self.namespace(host)));
        // The device by which a switch sends through its program: one that is killed leaves it.
        [Resource::Device(format!("op{PORT}"))].into_iter().chain(namespaces)
    }

    /// Returns the name of a host's namespace.
    pub(crate) fn namespace(&self, host: u32) -> String {
        format!("{}h{host}", self.prefix)
    }

    /// Returns the device of the switch that leads to a host.
    pub(crate) fn device(&self, host: u32) -> String {
        format!("{}d{host}", self.prefix)
    }

    fn switch_ip(&self, host: u32) -> String {
        format!("10.{}.{host}.1", self.subnet)
    }

    /// Returns the address of the switch for a host.
    pub(crate) fn switch(&self, host: u32) -> String {
        format!("{}:{PORT}", self.switch_ip(host))
    }

    /// Returns where the switch listens.
    pub(crate) fn listen() -> String {
        format!("0.0.0.0:{PORT}")
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for resource in self.resources() {
            cleanup::release(&resource);
            cleanup::unregister(&resource);
        }
    }
}
