//! The replicated device beside replicated devices of other projects, by fio.
//!
//! All writes are durable on three files of one disk before their reply. fio has an engine for
//! each: NBD for this device and for qemu's `quorum`, RBD for Ceph.

use anyhow::{Context, Result};

use super::{BlockOptions, OURS, ceph, fio};
use crate::Progress;
use crate::kv::KvReport;
use crate::kv::rounds::{Rounds, Trial};
use crate::kv::server::{Server, is_installed, new_fabric};

const ABOUT: &str = "random writes of 4 KiB by fio, durable on three files of one disk before the \
                     reply; CPU time of the servers, without fio";
const QUORUM: &str = "qemu-nbd with quorum, 3 files";
const CEPH: &str = "Ceph, 3 stores";

/// A running device.
struct Device {
    server: Server,
    /// The setting of the environment for fio, and its options that name the device.
    environment: String,
    fio_engine: Vec<String>,
}

/// Returns why fio cannot run here, and what to do about it; `None` if it can.
pub fn block_peers_obstacle() -> Option<String> {
    missing(&["fio"], "fio").or_else(|| {
        let has_nbd = fio::has_engine("nbd");
        (!has_nbd).then(|| "fio has no engine nbd: install the Debian package fio".into())
    })
}

/// Runs the benchmark. A peer that is not installed says so in the report.
///
/// # Errors
/// If an option is out of range, or a side fails.
pub fn block_peers(
    options: &BlockOptions,
    program: &str,
    mut progress: impl FnMut(Progress<'_>),
) -> Result<KvReport> {
    options.check()?;
    type Start<'a> = &'a dyn Fn() -> Result<Device>;
    let size = options.size;
    let onepipe = || start_onepipe(program, size);
    let quorum = || start_quorum(size);
    let ceph = || start_ceph(size);
    let sides: [(&str, Option<String>, Start<'_>); 3] = [
        (OURS, None, &onepipe),
        (QUORUM, missing(&["qemu-nbd"], "qemu-utils"), &quorum),
        (CEPH, missing(&ceph::PROGRAMS, "ceph-mon ceph-osd ceph-common"), &ceph),
    ];
    let mut rounds = Rounds::default();
    let total = options.runs * options.depths.len() * sides.len();
    let mut done = 0;
    for _ in 0..options.runs {
        for (name, obstacle, start) in &sides {
            progress(Progress { case: &format!("{name}: starts"), done, total });
            let device = if obstacle.is_none() { Some(start().context(*name)?) } else { None };
            for depth in &options.depths {
                let load = format!("{depth} in flight");
                progress(Progress { case: &format!("{name}: {load}"), done, total });
                done += 1;
                let outcome = match &device {
                    Some(device) => Ok(measure(device, options, *depth)
                        .with_context(|| format!("{name}: {load}"))?),
                    None => Err(obstacle.clone().unwrap_or_default()),
                };
                rounds.add(&load, (name, (*name == OURS).then_some(CEPH)), outcome);
            }
            device.map_or(Ok(()), |device| device.server.stop())?;
        }
    }
    Ok(rounds.report("block-peers", ABOUT, options.runs))
}

fn measure(device: &Device, options: &BlockOptions, depth: usize) -> Result<Trial> {
    let before = device.server.cpu_seconds()?;
    let engine: Vec<&str> = device.fio_engine.iter().map(String::as_str).collect();
    let figures = fio::write(&device.environment, &engine, (options.size, depth, options.seconds))?;
    let cpu_seconds = device.server.cpu_seconds()? - before;
    Ok(Trial {
        rate: figures.rate,
        p50_us: figures.p50_us,
        p99_us: figures.p99_us,
        cpu_us: cpu_seconds * 1e6 / figures.writes,
    })
}

fn start_onepipe(program: &str, size: u64) -> Result<Device> {
    let mut server = Server::new(false)?;
    let (data, socket) = (server.path_of("data")?, server.path_of("socket")?);
    let (nbd, size, fabric) = (format!("unix:{socket}"), size.to_string(), new_fabric());
    let command = [program, "block", "serve", "--data", &data, "--size", &size, "--nbd", &nbd];
    server.start(&[&command[..], &["--fabric", &fabric]].concat(), 0)?;
    nbd_device(server, &socket)
}

fn start_quorum(size: u64) -> Result<Device> {
    let mut server = Server::new(false)?;
    let mut image = "driver=quorum,vote-threshold=2".to_owned();
    for index in 0..3 {
        let path = server.path_of(&format!("image{index}"))?;
        let file = std::fs::File::create(&path).with_context(|| format!("creating {path}"))?;
        file.set_len(size).with_context(|| format!("sizing {path}"))?;
        image += &format!(
            ",children.{index}.driver=raw,children.{index}.file.driver=file,\
             children.{index}.file.filename={path}"
        );
    }
    let socket = server.path_of("socket")?;
    let command = ["qemu-nbd", "--persistent", "--cache=writethrough", "--image-opts", &image];
    server.start(&[&command[..], &["--socket", &socket]].concat(), 0)?;
    nbd_device(server, &socket)
}

fn nbd_device(mut server: Server, socket: &str) -> Result<Device> {
    server.wait_for("the device is served", |_| {
        std::os::unix::net::UnixStream::connect(socket).ok().map(drop)
    })?;
    let uri = format!("--uri=nbd+unix:///?socket={socket}");
    let fio_engine = vec!["--ioengine=nbd".to_owned(), uri];
    Ok(Device { server, environment: "LC_ALL=C".to_owned(), fio_engine })
}

fn start_ceph(size: u64) -> Result<Device> {
    let (server, environment) = ceph::start(size)?;
    let fio_engine = ceph::FIO_ENGINE.map(str::to_owned).to_vec();
    Ok(Device { server, environment, fio_engine })
}

/// Returns which program is missing, and how to install it.
fn missing(programs: &[&str], packages: &str) -> Option<String> {
    let program = programs.iter().find(|program| !is_installed(program))?;
    let install = "apt-get install --yes --no-install-recommends";
    Some(format!("{program} is not installed: {install} {packages}"))
}
