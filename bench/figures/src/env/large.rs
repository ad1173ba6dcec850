//! One large payload in the total order, beside small messages.

use anyhow::{Result, ensure};
use onepipe_endpoint::Service;
use onepipe_sim_large::{Probes, Report, Scattering, Setup, SimEnv};
use onepipe_sim_network::LinkConfig;
use onepipe_topology::Shape;
use serde::{Deserialize, Serialize};

use crate::Calibration;
use crate::values::Values;

/// Start of the small messages, in ns: all processes have joined by then.
const PROBES_NS: u64 = 300_000;
/// Submission of the payload, in ns: all pairs have exchanged small messages by then.
const BEGIN_NS: u64 = 600_000;
/// Interval between small messages of a process, in ns.
const EVERY_NS: u64 = 4_000;
/// Limit on the time from the submission of the payload, in ns, without the time for its bytes.
const LIMIT_NS: u64 = 400_000;
/// Limit on the time per byte of the payload, in ns, for up to [`GROUP_RECEIVERS`] receivers; as a
/// message it is sent to each receiver separately.
const LIMIT_NS_PER_BYTE: u64 = 6;
const GROUP_RECEIVERS: u32 = 7;
/// Largest message that an endpoint accepts.
const MESSAGE_LEN_MAX: usize = 16 << 20;
/// Number of processes: all hosts except the controller's.
const PROCESSES: u32 = 31;

/// Parameters of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Large {
    /// Size of the payload in bytes.
    pub bytes: u64,
    /// Number of receivers.
    pub receivers: u32,
    /// Whether the payload uses bulk multicast; otherwise it is sent as a message.
    pub is_bulk: bool,
    /// Whether the payload and the small messages are reliable.
    pub is_reliable: bool,
    /// Whether switches prioritize messages over frames of bulk multicast.
    pub has_classes: bool,
    /// Whether small messages are sent beside the payload.
    pub has_small_messages: bool,
}

impl Large {
    /// Runs the transfer. Returns `took_us`, the time from the submission until the last receiver
    /// has delivered the payload; and, for small messages submitted meanwhile, `beside_us` and
    /// `beside_max_us`, their mean and maximum latency, and `more_us`, the increase of the mean
    /// over a run without the payload.
    ///
    /// # Errors
    /// If a receiver has not delivered the payload.
    pub fn run(&self) -> Result<Values> {
        let report = self.report(true);
        let delivered = report.delivered.iter().flatten();
        let payloads = delivered.filter(|delivery| delivery.scattering.is_some());
        let took: Vec<u64> = payloads.map(|delivery| delivery.after_ns).collect();
        ensure!(took.len() == self.receivers as usize, "{} have delivered the payload", took.len());
        let took_ns = took.into_iter().max().unwrap_or(0);
        if !self.has_small_messages {
            return Ok([("took_us".to_owned(), took_ns as f64 / 1e3)].into());
        }
        let within = BEGIN_NS..BEGIN_NS + took_ns;
        let (shared, alone) =
            (report.probes_ns(within.clone()), self.report(false).probes_ns(within));
        let mean_us = |all: &[u64]| all.iter().sum::<u64>() as f64 / all.len().max(1) as f64 / 1e3;
        let values = [
            ("took_us", took_ns as f64 / 1e3),
            ("beside_us", mean_us(&shared)),
            ("beside_max_us", shared.last().map_or(0.0, |ns| *ns as f64 / 1e3)),
            ("more_us", mean_us(&shared) - mean_us(&alone)),
        ];
        Ok(values.map(|(name, value)| (name.to_owned(), value)).into())
    }

    /// Runs the small messages, with or without the payload.
    fn report(&self, has_payload: bool) -> Report {
        let service = if self.is_reliable { Service::Reliable } else { Service::BestEffort };
        let to = (1..=self.receivers).collect();
        let large = Scattering::new(BEGIN_NS, 0, to, self.bytes as usize);
        let calibration = Calibration::PAPER.network();
        let classes = if self.has_classes { 2 } else { 1 };
        // Not the lossless queues of the calibration: they would grow to the size of the payload.
        let link = LinkConfig { classes, ..LinkConfig::default() };
        let with_delay_of =
            |other: LinkConfig| LinkConfig { propagation_ns: other.propagation_ns, ..link };
        let groups = u64::from(self.receivers.div_ceil(GROUP_RECEIVERS));
        let until_ns = BEGIN_NS + LIMIT_NS + LIMIT_NS_PER_BYTE * self.bytes * groups;
        let probes = Probes { every_ns: EVERY_NS, from_ns: PROBES_NS, until_ns, service };
        let setup = Setup {
            host_link: with_delay_of(calibration.host_link),
            switch_link: with_delay_of(calibration.switch_link),
            large_threshold_bytes: match self.is_bulk {
                true => self.bytes as usize - 1,
                false => MESSAGE_LEN_MAX,
            },
            scatterings: if has_payload { vec![Scattering { service, ..large }] } else { vec![] },
            probes: self.has_small_messages.then_some(probes),
            // No process fails.
            dead_after_ns: 1_000_000_000,
            ..Setup::new(Shape::testbed(), PROCESSES)
        };
        SimEnv::new(setup).run(until_ns)
    }
}
