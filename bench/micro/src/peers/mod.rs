//! Widely used systems under the light load of [`crate::light`]: JGroups with its sequencer, and
//! Aeron.

mod job;
mod project;
mod run;

use anyhow::{Context, Result, ensure};

use crate::light::{self, LightOptions, us};
use crate::{Better, Detail, Harness, Progress, Report};
use project::Project;

pub use run::cleanup_peers;
use run::{Peer, PeerRun};

/// Options of [`peers`].
#[derive(Clone, Debug, PartialEq)]
pub struct PeersOptions {
    /// Number of processes, 2 to 16. Default 3.
    pub processes: u32,
    /// Messages per second of each process, each to all processes. Default 1,000.
    pub rate: f64,
    /// Message size in bytes, 8 to 1,024. Default 64.
    pub bytes: usize,
    /// Number of runs of each side. Default 3.
    pub runs: usize,
    /// Length of each measurement, in s. Default 2.
    pub seconds: f64,
    /// Time from the start of a rival's processes to the measurement, in s, 5 to 600: JVMs start,
    /// the members join (about 4 s for JGroups), then they send at the rate. Default 12.
    pub warm_up_seconds: f64,
}

impl Default for PeersOptions {
    fn default() -> Self {
        Self {
            processes: 3,
            rate: 1_000.0,
            bytes: 64,
            runs: 3,
            seconds: 2.0,
            warm_up_seconds: 12.0,
        }
    }
}

impl PeersOptions {
    fn check(&self) -> Result<()> {
        ensure!((2..=16).contains(&self.processes), "2 to 16 processes, not {}", self.processes);
        ensure!((8..=1_024).contains(&self.bytes), "messages have 8 to 1024 bytes");
        ensure!(self.rate >= 1.0 && self.rate <= 1e6, "1 to 1,000,000 messages a second");
        ensure!((5.0..=600.0).contains(&self.warm_up_seconds), "warm up for 5 to 600 s");
        Ok(())
    }

    /// Returns our side of the same load.
    fn ours(&self, is_udp: bool) -> LightOptions {
        LightOptions {
            processes: self.processes,
            is_udp,
            rate: self.rate,
            bytes: self.bytes,
            runs: self.runs,
            seconds: self.seconds,
            ..LightOptions::light()
        }
    }
}

/// Measures each rival under the load of [`crate::light`], with our best-effort order in the same
/// run as the yardstick: latency from the due time of a message to its delivery, and CPU time of
/// all processes. Without Java or Maven the report has no cases, and standard error says why.
///
/// # Errors
/// Returns an error when an option is out of range, the rivals cannot be built, a process fails, or
/// two members of an ordered rival disagree on the order.
pub fn peers(options: &PeersOptions, progress: impl FnMut(Progress<'_>)) -> Result<Report> {
    options.check()?;
    let about = "rivals whose processes send to all at a rate: latency from the due time of a \
                 message to its delivery, CPU time of all processes; yardstick: our best-effort \
                 order under the same load, over UDP through the switch (aeron-ipc: shared memory)";
    let mut harness = Harness::new("peers", about).with_runs(options.runs).with_progress(progress);
    if let Some(project) = Project::prepare()? {
        for peer in Peer::ALL {
            measure(&mut harness, options, &project, peer)?;
        }
    }
    Ok(harness.finish())
}

fn measure(
    harness: &mut Harness<'_>,
    options: &PeersOptions,
    project: &Project,
    peer: Peer,
) -> Result<()> {
    let PeersOptions { processes, rate, bytes, .. } = options;
    let case = format!("rival={} processes={processes} rate={rate} bytes={bytes}", peer.name());
    let our_options = options.ours(peer.is_udp());
    let (mut rival, mut ours) = (Vec::new(), Vec::new());
    harness.measure(
        &format!("{case} p50"),
        "us",
        Better::Lower,
        || {
            rival.push(PeerRun::of(options, project, peer)?);
            Ok(us(&rival[rival.len() - 1].latencies, 0.5))
        },
        || {
            ours.push(light::Run::of(&our_options, false)?);
            Ok(us(&ours[ours.len() - 1].latencies, 0.5))
        },
    )?;
    let lost = rival.iter().map(|run| run.lost as f64).sum::<f64>() / rival.len() as f64;
    let our_lost = ours.iter().map(|run| run.lost as f64).sum::<f64>() / ours.len() as f64;
    let detail =
        |name: &str, value| Detail { name: name.into(), value, unit: "messages".to_string() };
    harness.detail(vec![detail("lost", lost), detail("lost by ours", our_lost)]);
    harness.measure(
        &format!("{case} p99"),
        "us",
        Better::Lower,
        next_of(&rival, |run| us(&run.latencies, 0.99)),
        next_of(&ours, |run| us(&run.latencies, 0.99)),
    )?;
    harness.measure(
        &format!("{case} cpu"),
        "cores",
        Better::Lower,
        next_of(&rival, |run| run.cores),
        next_of(&ours, |run| run.cores),
    )?;
    Ok(())
}

/// Returns a function that returns a number of each of the runs in turn.
fn next_of<R>(runs: &[R], number: impl Fn(&R) -> f64) -> impl FnMut() -> Result<f64> {
    let mut numbers = runs.iter().map(number).collect::<Vec<_>>().into_iter();
    move || numbers.next().context("measured above")
}
