//! A Ceph cluster on this machine: one monitor, and three stores (OSDs) with BlueStore.

use anyhow::{Context, Result};

use crate::kv::server::{Server, free_ports, output_of};

/// Programs of a cluster and of its clients.
pub(super) const PROGRAMS: [&str; 5] = ["ceph-mon", "ceph-osd", "monmaptool", "ceph", "rbd"];

/// Options of fio for the image.
pub(super) const FIO_ENGINE: [&str; 4] =
    ["--ioengine=rbd", "--clientname=admin", "--pool=rbd", "--rbdname=bench"];

/// Identity of the cluster. The last digit of a store's identity is its index.
const CLUSTER: &str = "6f6e6570-6970-4500-8000-00000000000c";

/// Starts a cluster that stores each object three times, with an image of `size` bytes. Returns
/// its processes, and the setting of the environment by which clients find it.
pub(super) fn start(size: u64) -> Result<(Server, String)> {
    let mut server = Server::new(false)?;
    let path = server.path_of("ceph.conf")?;
    let port = free_ports(1)?[0];
    std::fs::write(&path, settings(port, &server.path_of("")?))
        .with_context(|| format!("writing {path}"))?;
    let environment = format!("CEPH_CONF={path}");
    let run = |words: &[&str]| output_of(&[&["env", &environment], words].concat());

    let map = server.path_of("monmap")?;
    let address = format!("[v1:127.0.0.1:{port}]");
    run(&["monmaptool", "--create", "--addv", "a", &address, "--fsid", CLUSTER, &map])?;
    run(&["ceph-mon", "--id=a", "--mkfs", "--monmap", &map])?;
    server.start(&["env", &environment, "ceph-mon", "--foreground", "--id=a"], port)?;
    for index in ["0", "1", "2"] {
        let directory = server.path_of(&format!("osd.{index}"))?;
        std::fs::create_dir(&directory).with_context(|| format!("creating {directory}"))?;
        let (store, host) = (format!("osd.{index}"), format!("host=host{index}"));
        let identity = format!("{}{index}", &CLUSTER[..CLUSTER.len() - 1]);
        run(&["ceph", "osd", "new", &identity, index])?;
        run(&["ceph-osd", "--id", index, "--mkfs", "--osd-uuid", &identity])?;
        run(&["ceph", "osd", "crush", "add", &store, "1", "root=default", &host])?;
        server.start(&["env", &environment, "ceph-osd", "--foreground", "--id", index], port)?;
    }
    server.wait_for("three stores of Ceph are up", |_| {
        run(&["ceph", "osd", "stat"]).is_ok_and(|stat| stat.contains("3 up")).then_some(())
    })?;
    run(&["ceph", "osd", "pool", "create", "rbd", "32", "32", "replicated"])?;
    let mebibytes = size.div_ceil(1 << 20).to_string();
    run(&["rbd", "create", "--size", &mebibytes, "--image-feature", "layering", "bench"])?;
    Ok((server, environment))
}

/// Returns the text of the configuration. A store that updates the CRUSH map at its start may send
/// the command before it knows the identity of the cluster, and ends then. A write is durable on
/// all stores before its reply, as without its cache the client sends it at once.
fn settings(port: u16, directory: &str) -> String {
    format!(
        "[global]\nfsid = {CLUSTER}\nmon host = v1:127.0.0.1:{port}\n\
         auth cluster required = none\nauth service required = none\nauth client required = none\n\
         osd pool default size = 3\nosd pool default min size = 2\nosd crush chooseleaf type = 0\n\
         osd class update on start = false\nosd crush update on start = false\n\
         osd objectstore = bluestore\nbluestore block create = true\n\
         bluestore block size = {BLOCK_FILE_LEN}\nosd memory target = {MEMORY_LEN}\n\
         mon data = {directory}/mon.$id\nosd data = {directory}/osd.$id\nrun dir = {directory}\n\
         admin socket = {directory}/$name.asok\npid file = {directory}/$name.pid\n\
         log file = {directory}/$name.log\nms bind msgr2 = false\nrbd cache = false\n"
    )
}

/// Size of the sparse file of a store, in bytes: BlueStore refuses small ones.
const BLOCK_FILE_LEN: u64 = 6 << 30;
/// Memory that a store takes for its caches, in bytes: the least that Ceph accepts is 896 MiB.
const MEMORY_LEN: u64 = 1 << 30;
