//! Bulk multicast against `MPI_Bcast`, over loopback or between emulated nodes.

mod copies;
mod member;
mod mpi;
mod nodes;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use onepipe_bulk::Link;
use onepipe_transport_bulk::Carrier;

use crate::children::{Children, WORKER};
use crate::{Better, Detail, Harness, Progress, Report};

pub use member::BulkMemory;
use member::{Job, Measured};
use mpi::{Mpi, Rival};
use nodes::Nodes;

/// The argument after [`WORKER`] that selects a process of this benchmark.
pub(crate) const BULK: &str = "bulk";
/// Bytes sent in about a second: the number of rounds follows from it.
const WORK_BYTES: usize = 512 << 20;
/// Total time on the wire of the objects of a run between nodes, in us.
const NODE_WORK_US: f64 = 2e6;
/// Rate of an emulated node's link, in Mbit/s.
const NODE_MBIT: u32 = 500;
/// Ports of our own side over loopback: below 32,768, where Linux starts its ephemeral ports.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
/// Bytes of a full Ethernet frame.
const ETHERNET_BYTES: f64 = 1_514.0;
/// Payload of such a frame over TCP with timestamps and IPv4.
const TCP_BYTES: f64 = 1_448.0;

/// Options of [`bulk`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BulkOptions {
    /// Transport of our own side. Default: TCP.
    pub carrier: Carrier,
    /// Where objects lie with shared memory. Default [`BulkMemory::Shared`].
    pub memory: BulkMemory,
    /// Group sizes, 2 to 16. Default 2, 4 and 8; between nodes 8.
    pub processes: Vec<u32>,
    /// Sizes of an object in bytes. Default 1, 64 KiB, 16 MiB and 256 MiB; between nodes 16 MiB.
    pub bytes: Vec<usize>,
    /// Bytes of a block. Default 1 MiB; between nodes 32 KiB, the fastest there.
    pub block_len: u32,
    /// Runs between network namespaces, each with a link of limited rate, instead of over loopback.
    /// Needs root.
    pub has_nodes: bool,
    /// Rate of a node's link, in Mbit/s. Default 500.
    pub node_mbit: u32,
    /// Halves the rate between two of the nodes, in both directions.
    pub has_slow_link: bool,
    /// Number of runs of each side. Default 3.
    pub runs: usize,
}

impl BulkOptions {
    /// Returns the defaults over loopback.
    pub fn loopback() -> Self {
        Self {
            carrier: Carrier::Tcp,
            memory: BulkMemory::Shared,
            processes: vec![2, 4, 8],
            bytes: vec![1, 64 << 10, 16 << 20, 256 << 20],
            block_len: 1 << 20,
            has_nodes: false,
            node_mbit: NODE_MBIT,
            has_slow_link: false,
            runs: 3,
        }
    }

    /// Returns the defaults between emulated nodes.
    pub fn nodes() -> Self {
        Self {
            processes: vec![8],
            bytes: vec![16 << 20],
            block_len: 32 << 10,
            has_nodes: true,
            ..Self::loopback()
        }
    }
}

/// Measures the time until the last of the group has all of an object, with every byte compared,
/// alternately with the time of `MPI_Bcast` of OpenMPI and MPICH. Installs their Debian packages if
/// they are missing.
///
/// # Errors
/// Returns an error when a process fails, or receives other data than was sent.
pub fn bulk(options: &BulkOptions, progress: impl FnMut(Progress<'_>)) -> Result<Report> {
    let about = "time until the last process holds the whole object of the first one; cpu \
                 is the CPU time of all processes per object; yardstick: MPI_Bcast";
    let mpi = Mpi::prepare()?;
    let processes_max = options.processes.iter().copied().max().unwrap_or(0);
    ensure!(processes_max <= 16 && !options.processes.contains(&1), "2 to 16 processes");
    let nodes = match options.has_nodes {
        true => Some(
            Nodes::new(processes_max, options.node_mbit, options.has_slow_link)
                .context("emulating nodes (as root)")?,
        ),
        false => None,
    };
    let rivals: &[Rival] = match options.has_nodes {
        true => &[Rival::OpenMpiPipeline, Rival::OpenMpi, Rival::Mpich],
        false => &[Rival::OpenMpi, Rival::Mpich],
    };
    // Bytes on an emulated link per byte of an object.
    let wire_bytes_per_byte = match options.carrier.link() {
        Link::Lossy => ETHERNET_BYTES / f64::from(options.carrier.piece_len()),
        Link::Reliable => ETHERNET_BYTES / TCP_BYTES,
    };
    let mut harness = Harness::new("bulk", about).with_runs(options.runs).with_progress(progress);
    for (processes, bytes) in pairs(options) {
        for rival in rivals {
            let network = if options.has_nodes { "nodes" } else { "loopback" };
            let slow = if options.has_slow_link { " slow-link=1" } else { "" };
            let (transport, name) = (options.carrier.name(), rival.name());
            let memory = match (options.carrier, options.memory) {
                (Carrier::Shm, BulkMemory::Private) => " memory=private",
                (Carrier::Shm, BulkMemory::Mapped) => " memory=mapped",
                _ => "",
            };
            let case = format!(
                "network={network}{slow} transport={transport}{memory} processes={processes} bytes={bytes} rival={name}"
            );
            let line_us = bytes as f64 * 8.0 * wire_bytes_per_byte / f64::from(options.node_mbit);
            let rounds = if options.has_nodes { node_rounds(line_us) } else { rounds(bytes) };
            let size = (processes, bytes, rounds);
            let mut cpu = Vec::new();
            harness.measure(
                &case,
                "us",
                Better::Lower,
                || {
                    let (us, cpu_ms) = ours(options, nodes.as_ref(), size)?;
                    cpu.push(cpu_ms);
                    Ok(us)
                },
                || mpi.broadcast_us((*rival, options.carrier), nodes.as_ref(), size),
            )?;
            let mean = cpu.iter().sum::<f64>() / cpu.len() as f64;
            let mut details =
                vec![Detail { name: "cpu".to_owned(), value: mean, unit: "ms".to_owned() }];
            let (name, value) = match options.has_nodes {
                true => ("line time", line_us),
                false => ("copies only", copies::copy_time_us(options, processes, bytes)),
            };
            details.push(Detail { name: name.to_owned(), value, unit: "us".to_owned() });
            harness.detail(details);
        }
    }
    Ok(harness.finish())
}

fn pairs(options: &BulkOptions) -> impl Iterator<Item = (u32, usize)> {
    let bytes = &options.bytes;
    let processes = options.processes.iter();
    processes.flat_map(move |count| bytes.iter().map(move |bytes| (*count, *bytes)))
}

/// Returns the number of rounds of one run over loopback; enough that the first ones, in which
/// every process touches its memory for the first time, do not matter.
fn rounds(bytes: usize) -> u32 {
    ((WORK_BYTES / bytes.max(1)) as u32).clamp(10, 2_000)
}

/// Returns the number of rounds between nodes, where the slowest side takes several times the time
/// on the wire.
fn node_rounds(line_us: f64) -> u32 {
    ((NODE_WORK_US / line_us) as u32).clamp(3, 20)
}

/// Runs our own side. Returns the median time in us, and the CPU time of all processes per object
/// in ms.
fn ours(
    options: &BulkOptions,
    nodes: Option<&Nodes>,
    (processes, bytes, rounds): (u32, usize, u32),
) -> Result<(f64, f64)> {
    let members: Vec<SocketAddr> = match nodes {
        Some(nodes) => (0..processes).map(|at| nodes.member(at)).collect(),
        None => free_ports(processes)?,
    };
    let program = std::env::current_exe().context("finding this program")?;
    let mut children = Children::default();
    for own in 0..processes {
        let job = Job {
            carrier: options.carrier.name().to_owned(),
            members: members.clone(),
            own,
            bytes,
            rounds,
            block_len: options.block_len,
            has_digests: false,
            memory: options.memory,
        };
        let mut command = Command::new("nice");
        command.args(["-n", if nodes.is_some() { "19" } else { "0" }]);
        if let Some(nodes) = nodes {
            command.args(nodes.enter(own));
        }
        command.arg(&program).args([WORKER, BULK, &std::process::id().to_string()]);
        command.arg(serde_json::to_string(&job)?);
        children.start(&mut command)?;
    }
    let measured: Vec<Measured> = children.outcomes(0)?;
    ensure!(
        measured.iter().all(|measured| measured.at_ns.len() == rounds as usize),
        "rounds are missing"
    );
    let times: Vec<f64> = (0..rounds as usize)
        .map(|round| {
            let last =
                measured[1..].iter().map(|measured| measured.at_ns[round]).max().unwrap_or(0);
            last.saturating_sub(measured[0].at_ns[round]) as f64
        })
        .collect();
    let cpu: f64 = measured.iter().map(|measured| measured.cpu_seconds).sum();
    Ok((median_us(&times), cpu * 1e3 / f64::from(rounds)))
}

/// Returns ports of loopback on which no process listens. Ephemeral ports are excluded, as one
/// could be taken before its member listens there.
fn free_ports(count: u32) -> Result<Vec<SocketAddr>> {
    // Concurrent runs start at different ports.
    let first = std::process::id() as usize * 16;
    let ports = (0..PORTS.len()).map(|at| PORTS.start + ((first + at) % PORTS.len()) as u16);
    // All are bound at once, so that no port is returned twice.
    let free = ports.filter_map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok());
    let free: Vec<TcpListener> = free.take(count as usize).collect();
    ensure!(free.len() == count as usize, "{count} ports below {} are not free", PORTS.end);
    free.iter().map(|socket| socket.local_addr().context("reading the port of a socket")).collect()
}

/// Runs one process of our own side.
pub(crate) fn work(job: &str) -> Result<()> {
    let job: Job = serde_json::from_str(job).with_context(|| format!("reading the job {job}"))?;
    println!("{}", serde_json::to_string(&member::work(&job)?)?);
    Ok(())
}

/// Returns the median of times in ns, without the first tenth of them, in us.
fn median_us(times_ns: &[f64]) -> f64 {
    let mut times = times_ns[times_ns.len().div_ceil(10)..].to_vec();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).map_or(0.0, |median| median / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_skips_warmup_rounds() {
        let times: Vec<f64> = [90_000.0, 80_000.0]
            .into_iter()
            .chain((1..=18).map(|it| f64::from(it) * 1e3))
            .collect();
        assert_eq!(median_us(&times), 10.0);
    }

    #[test]
    fn every_size_has_enough_rounds_for_a_median() {
        for bytes in [0, 1, 1 << 16, 1 << 28, 1 << 34] {
            let least = rounds(bytes).min(node_rounds(bytes as f64));
            assert!(least >= 3 && median_us(&vec![5_000.0; least as usize]) == 5.0, "{bytes}");
        }
    }
}
