//! `MPI_Bcast` of two libraries, from Debian's packages.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use onepipe_transport_bulk::Carrier;

use super::nodes::{AGENT, Nodes};
use crate::cleanup::{self, Resource};

const PROGRAM: &str = include_str!("broadcast.c");
/// The packages, each with a file whose presence shows that it is installed.
const PACKAGES: [(&str, &str); 4] = [
    ("openmpi-bin", "/usr/bin/mpirun.openmpi"),
    ("libopenmpi-dev", "/usr/bin/mpicc.openmpi"),
    ("mpich", "/usr/bin/mpirun.mpich"),
    ("libmpich-dev", "/usr/bin/mpicc.mpich"),
];
/// Time limit of a run.
const LIMIT_SECONDS: &str = "120";

/// A library with the choice of its broadcast algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rival {
    /// The library's own choice.
    OpenMpi,
    /// A segmented pipeline, the best of its algorithms on links of equal speed.
    OpenMpiPipeline,
    /// The library's own choice, with waits that yield.
    Mpich,
}

impl Rival {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::OpenMpi => "openmpi",
            Self::OpenMpiPipeline => "openmpi-pipeline",
            Self::Mpich => "mpich",
        }
    }

    const fn library(self) -> &'static str {
        match self {
            Self::OpenMpi | Self::OpenMpiPipeline => "openmpi",
            Self::Mpich => "mpich",
        }
    }
}

/// The benchmark program, compiled for both libraries.
#[derive(Debug)]
pub(super) struct Mpi {
    folder: PathBuf,
}

impl Mpi {
    /// Installs missing packages, reporting them, and compiles the program.
    pub(super) fn prepare() -> Result<Self> {
        let missing: Vec<&str> = (PACKAGES.iter())
            .filter(|(_, file)| !Path::new(file).exists())
            .map(|(package, _)| *package)
            .collect();
        if !missing.is_empty() {
            eprintln!("installing {}", missing.join(" "));
            let mut install = Command::new("apt-get");
            install.args(["install", "-y", "--no-install-recommends"]).args(&missing);
            let status = install.stdout(Stdio::null()).status().context("starting apt-get")?;
            ensure!(status.success(), "apt-get could not install {}", missing.join(" "));
        }
        let folder = std::env::temp_dir().join(format!("onepipe-bulk-{}", std::process::id()));
        cleanup::register(Resource::Folder(folder.clone()));
        std::fs::create_dir_all(&folder)?;
        let mpi = Self { folder };
        let source = mpi.folder.join("broadcast.c");
        std::fs::write(&source, PROGRAM)?;
        for library in ["openmpi", "mpich"] {
            let compiler = format!("mpicc.{library}");
            let status = Command::new(&compiler)
                .arg("-O2")
                .arg("-o")
                .arg(mpi.program(library))
                .arg(&source)
                .status()
                .with_context(|| format!("starting {compiler}"))?;
            ensure!(status.success(), "{compiler} failed");
        }
        Ok(mpi)
    }

    fn program(&self, library: &str) -> PathBuf {
        self.folder.join(library)
    }

    /// Returns the median time of a broadcast, in us; the first tenth of the rounds is warm-up.
    pub(super) fn broadcast_us(
        &self,
        (rival, carrier): (Rival, Carrier),
        nodes: Option<&Nodes>,
        (processes, bytes, rounds): (u32, usize, u32),
    ) -> Result<f64> {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", LIMIT_SECONDS]);
        if let Some(nodes) = nodes {
            command.args(nodes.enter(0));
        }
        // The same priority as our own processes.
        command.args(["nice", "-n", if nodes.is_some() { "19" } else { "0" }]);
        command.arg(format!("mpirun.{}", rival.library()));
        let count = processes.to_string();
        match rival {
            Rival::OpenMpi | Rival::OpenMpiPipeline => {
                command.args(["--allow-run-as-root", "--oversubscribe", "-np", &count]);
                command.args(["--mca", "mpi_yield_when_idle", "1"]);
                if carrier != Carrier::Shm {
                    command.args(["--mca", "btl", "tcp,self"]);
                }
                command.args(["--mca", "btl_base_warn_component_unused", "0"]);
                if let Some(nodes) = nodes {
                    command.args(["--mca", "plm_rsh_agent"]).arg(nodes.file(AGENT));
                    command.args(["--host", &nodes.hosts(processes)]);
                    command.args(["--mca", "btl_tcp_if_include", &nodes.network()]);
                    command.args(["--mca", "oob_tcp_if_include", &nodes.network()]);
                }
                if rival == Rival::OpenMpiPipeline {
                    command.args(["--mca", "coll_tuned_use_dynamic_rules", "1"]);
                    command.args(["--mca", "coll_tuned_bcast_algorithm", "3"]);
                    command.args(["--mca", "coll_tuned_bcast_algorithm_segmentsize", "131072"]);
                }
            }
            Rival::Mpich => {
                command.args(["-np", &count]);
                if carrier != Carrier::Shm {
                    command.env("MPIR_CVAR_NOLOCAL", "1");
                }
                if let Some(nodes) = nodes {
                    // Otherwise UCX, MPICH's transport, finds paths between namespaces of one
                    // machine that bypass the links.
                    command.env("UCX_TLS", "tcp").env("UCX_NET_DEVICES", Nodes::DEVICE);
                    command.args(["-launcher", "ssh", "-launcher-exec"]).arg(nodes.file(AGENT));
                    command.args(["-iface", Nodes::DEVICE, "-hosts", &nodes.hosts(processes)]);
                }
            }
        }
        command.arg(self.program(rival.library()));
        command.args([bytes.to_string(), rounds.to_string()]);
        if rival == Rival::Mpich {
            command.arg("yield");
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = {
            let mut all = cleanup::lock();
            let child = command.spawn().context("starting mpirun")?;
            all.push(Resource::Process(child.id()));
            child
        };
        let mpirun = Resource::Process(child.id());
        let output = child.wait_with_output();
        cleanup::unregister(&mpirun);
        let output = output.context("waiting for mpirun")?;
        let output_text = String::from_utf8_lossy(&output.stdout);
        let times: Vec<f64> =
            output_text.lines().filter_map(|line| line.trim().parse::<f64>().ok()).collect();
        // The exit status does not matter: the program prints a round only after it has compared
        // the data.
        ensure!(
            times.len() == rounds as usize,
            "{} printed {} of {rounds} rounds: {}",
            rival.name(),
            times.len(),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(super::median_us(&times))
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        let folder = Resource::Folder(self.folder.clone());
        cleanup::release(&folder);
        cleanup::unregister(&folder);
    }
}
