//! Emulated nodes: network namespaces on one bridge, each behind a link of limited rate.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::Result;

use crate::cleanup::{self, Resource, run};

/// Script with which MPI starts a command on another node: `agent HOST COMMAND…`.
pub(super) const AGENT: &str = "agent";
/// Burst of a link's token bucket: a smaller one would measure the emulator.
const BURST: &str = "128kb";
/// Queue before a link: 20 ms at 500 Mbit/s.
const QUEUE: &str = "1250kb";

/// Network namespaces, removed on drop.
#[derive(Debug)]
pub(super) struct Nodes {
    count: u32,
    prefix: String,
    subnet: u8,
    folder: PathBuf,
}

impl Nodes {
    /// Name of a node's interface in its namespace.
    pub(super) const DEVICE: &str = "e0";

    /// Creates `count` nodes with links of `mbit` Mbit/s. `has_slow_link` halves the rate between
    /// the two nodes in the middle, in both directions.
    pub(super) fn new(count: u32, mbit: u32, has_slow_link: bool) -> Result<Self> {
        let pid = std::process::id();
        let prefix = format!("ob{}", pid % 10_000);
        let folder = std::env::temp_dir().join(format!("onepipe-nodes-{pid}"));
        let nodes = Self { count, prefix, subnet: (pid % 200) as u8 + 20, folder };
        nodes.resources().for_each(cleanup::register);
        std::fs::create_dir_all(&nodes.folder)?;
        nodes.build(mbit)?;
        if has_slow_link {
            let (one, other) = (count / 2 - 1, count / 2);
            // The pipeline joins only nodes whose numbers differ in one bit.
            let one = if one % 2 == 0 { one } else { other };
            let other = one ^ 1;
            nodes.slow(one, other, mbit)?;
            nodes.slow(other, one, mbit)?;
        }
        Ok(nodes)
    }

    fn build(&self, mbit: u32) -> Result<()> {
        let bridge = self.namespace(self.count);
        ip(&["netns", "add", &bridge])?;
        ip(&["-n", &bridge, "link", "add", "br0", "type", "bridge"])?;
        ip(&["-n", &bridge, "link", "set", "br0", "up"])?;
        for at in 0..self.count {
            let (name, port) = (self.namespace(at), format!("p{at}"));
            ip(&["netns", "add", &name])?;
            ip(&["-n", &name, "link", "set", "lo", "up"])?;
            let peer = ["peer", "name", &port, "netns", &bridge];
            ip(&[&["-n", &name, "link", "add", Self::DEVICE, "type", "veth"][..], &peer].concat())?;
            let address = format!("{}/24", self.ip(at));
            ip(&["-n", &name, "address", "add", &address, "dev", Self::DEVICE])?;
            ip(&["-n", &name, "link", "set", Self::DEVICE, "up"])?;
            ip(&["-n", &bridge, "link", "set", &port, "master", "br0", "up"])?;
            for (namespace, device) in [(&name, Self::DEVICE), (&bridge, &port[..])] {
                let rate = format!("{mbit}mbit");
                let limit = ["tbf", "rate", &rate, "burst", BURST, "limit", QUEUE];
                let of = ["-n", namespace, "qdisc", "add", "dev", device, "root"];
                run("tc", &[&of[..], &limit].concat())?;
            }
        }
        let script = format!(
            "#!/bin/sh\nwhile [ \"${{1#-}}\" != \"$1\" ]; do shift; done\nhost=${{1##*.}}; shift\n\
             export TMPDIR={}/$host; mkdir -p $TMPDIR\n\
             exec ip netns exec {}$((host - 1)) sh -c \"$*\"\n",
            self.folder.display(),
            self.prefix
        );
        let path = self.file(AGENT);
        std::fs::write(&path, script)?;
        run("chmod", &["+x", &path.display().to_string()])
    }

    /// Returns all external resources of the nodes.
    fn resources(&self) -> impl Iterator<Item = Resource> {
        let namespaces = (0..=self.count).map(|at| Resource::Namespace(self.namespace(at)));
        [Resource::Folder(self.folder.clone())].into_iter().chain(namespaces)
    }

    /// Halves the rate from one node to another, within the full rate of the sender.
    fn slow(&self, from: u32, to: u32, mbit: u32) -> Result<()> {
        let namespace = self.namespace(from);
        let tc = |arguments: &[&str]| run("tc", &[&["-n", &namespace][..], arguments].concat());
        let of = |kind| [kind, "add", "dev", Self::DEVICE];
        tc(&["qdisc", "delete", "dev", Self::DEVICE, "root"])?;
        tc(&[&of("qdisc")[..], &["root", "handle", "1:", "htb", "default", "10"]].concat())?;
        let (whole, half) = (format!("{mbit}mbit"), format!("{}mbit", mbit / 2));
        for (parent, class, ceil) in
            [("1:", "1:1", &whole), ("1:1", "1:10", &whole), ("1:1", "1:20", &half)]
        {
            let class = ["parent", parent, "classid", class, "htb"];
            let rate = if parent == "1:" { &whole } else { &half };
            let rate = ["rate", rate, "ceil", ceil, "burst", BURST, "cburst", BURST];
            tc(&[&of("class")[..], &class, &rate].concat())?;
        }
        for class in ["1:10", "1:20"] {
            tc(&[&of("qdisc")[..], &["parent", class, "bfifo", "limit", QUEUE]].concat())?;
        }
        let address = format!("{}/32", self.ip(to));
        let what = ["parent", "1:", "protocol", "ip", "u32", "match", "ip", "dst", &address];
        tc(&[&of("filter")[..], &what, &["flowid", "1:20"]].concat())
    }

    /// Returns the name of the namespace of node `at`; the bridge follows the last node.
    fn namespace(&self, at: u32) -> String {
        format!("{}{at}", self.prefix)
    }

    fn ip(&self, at: u32) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, self.subnet, at as u8 + 1)
    }

    /// Returns the address on which the member on node `at` listens.
    pub(super) fn member(&self, at: u32) -> SocketAddr {
        (self.ip(at), 4420).into()
    }

    /// Returns the command prefix that runs a command on node `at`.
    pub(super) fn enter(&self, at: u32) -> [String; 4] {
        ["ip", "netns", "exec", &self.namespace(at)].map(str::to_owned)
    }

    pub(super) fn network(&self) -> String {
        format!("10.77.{}.0/24", self.subnet)
    }

    /// Returns the first nodes, with one process on each, in the syntax of `mpirun`.
    pub(super) fn hosts(&self, count: u32) -> String {
        (0..count).map(|at| format!("{}:1", self.ip(at))).collect::<Vec<_>>().join(",")
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for resource in self.resources() {
            cleanup::release(&resource);
            cleanup::unregister(&resource);
        }
    }
}

fn ip(arguments: &[&str]) -> Result<()> {
    run("ip", arguments)
}
