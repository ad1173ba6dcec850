//! One run of a rival: its processes, their start and what they report.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;

use super::PeersOptions;
use super::job::{Job, Outcome, check};
use super::project::Project;
use crate::children::Children;
use crate::light::{merged, monotonic_ns};
use crate::rival_process::rival_command;

/// A rival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// JGroups: total order by a sequencer, over UDP multicast.
    JGroups,
    /// Aeron over UDP: reliable, without order between senders.
    AeronUdp,
    /// Aeron on one machine: all members append to one log in shared memory.
    AeronIpc,
}

impl Peer {
    pub(super) const ALL: [Self; 3] = [Self::JGroups, Self::AeronUdp, Self::AeronIpc];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::JGroups => "jgroups-sequencer",
            Self::AeronUdp => "aeron-udp",
            Self::AeronIpc => "aeron-ipc",
        }
    }

    /// Returns the role of a member.
    const fn role(self) -> &'static str {
        match self {
            Self::JGroups => "jgroups",
            Self::AeronUdp => "aeron-udp",
            Self::AeronIpc => "aeron-ipc",
        }
    }

    pub(super) const fn is_udp(self) -> bool {
        !matches!(self, Self::AeronIpc)
    }

    /// Returns whether all members deliver the same order.
    const fn is_ordered(self) -> bool {
        !matches!(self, Self::AeronUdp)
    }
}

/// Result of one run.
pub(super) struct PeerRun {
    pub latencies: Histogram<u64>,
    /// CPU time of all processes per second.
    pub cores: f64,
    /// Messages that did not arrive, over all receivers.
    pub lost: i64,
}

impl PeerRun {
    /// Runs all processes of a rival once.
    pub(super) fn of(options: &PeersOptions, project: &Project, peer: Peer) -> Result<Self> {
        let folder = RunFolder::create()?;
        let ports = free_ports(options.processes)?;
        let begin_ns = monotonic_ns() + (options.warm_up_seconds * 1e9) as u64;
        let job = |role, process| Job {
            role,
            process,
            processes: options.processes,
            rate: options.rate,
            bytes: options.bytes,
            window_ns: [begin_ns, begin_ns + (options.seconds * 1e9) as u64],
            ports: &ports,
            folder: &folder.0,
        };
        let mut jobs: Vec<Job<'_>> =
            (0..options.processes).map(|process| job(peer.role(), process)).collect();
        if peer == Peer::AeronIpc {
            jobs.push(job("aeron-driver", 0));
        }
        let outcomes = start(project, &jobs).with_context(|| format!("running {}", peer.name()))?;
        let members = &outcomes[..options.processes as usize];
        check(members, peer.is_ordered()).with_context(|| peer.name())?;
        let cores = |outcome: &Outcome| outcome.cpu_seconds / outcome.seconds.max(1e-9);
        Ok(Self {
            latencies: merged(members.iter().map(|member| &member.latencies))?,
            cores: outcomes.iter().map(cores).sum(),
            lost: members.iter().map(|member| member.lost).sum(),
        })
    }
}

/// Runs a process for each job.
fn start(project: &Project, jobs: &[Job<'_>]) -> Result<Vec<Outcome>> {
    let mut children = Children::default();
    for job in jobs {
        children.start(&mut rival_command(&project.command(&job.arguments()?))?)?;
    }
    children.outcomes(0)
}

/// Returns local UDP ports that are free now.
fn free_ports(count: u32) -> Result<Vec<u16>> {
    // All sockets are open until the last port is known, so that no port comes twice.
    let sockets: Vec<std::net::UdpSocket> = (0..count)
        .map(|_| std::net::UdpSocket::bind("127.0.0.1:0").context("looking for a free port"))
        .collect::<Result<_>>()?;
    sockets.iter().map(|socket| Ok(socket.local_addr()?.port())).collect()
}

/// Folder for the files of one run, in shared memory where there is any; removed on drop.
struct RunFolder(PathBuf);

impl RunFolder {
    fn path() -> PathBuf {
        let shared_memory = Path::new("/dev/shm");
        let parent = match shared_memory.is_dir() {
            true => shared_memory.to_path_buf(),
            false => std::env::temp_dir(),
        };
        parent.join(format!("onepipe-peers-{}", std::process::id()))
    }

    fn create() -> Result<Self> {
        let path = Self::path();
        std::fs::create_dir_all(&path).with_context(|| format!("creating {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        cleanup_peers();
    }
}

/// Removes the files that `bench peers` leaves when it is interrupted; its processes die with it.
pub fn cleanup_peers() {
    let _ = std::fs::remove_dir_all(RunFolder::path());
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
    fn files_of_a_run_are_removed() {
        let folder = RunFolder::create().expect("shared memory or a temporary folder");
        let path = folder.0.clone();
        std::fs::write(path.join("founded"), "").expect("it was created");
        drop(folder);
        assert!(!path.exists());
    }
}
