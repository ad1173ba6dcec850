//! One payload of some size in the order, beside small messages.

use anyhow::{Result, ensure};
use onepipe_endpoint::Service;
use onepipe_sim_large::{Probes, Scattering, Setup, Story, World};
use onepipe_sim_network::LinkConfig;
use onepipe_topology::Shape;
use serde::{Deserialize, Serialize};

use crate::Calibration;
use crate::experiment::Values;

/// Small messages begin, when everybody has joined; and everybody has talked to everybody when the
/// payload is submitted. In ns.
const PROBES_NS: u64 = 300_000;
const BEGIN_NS: u64 = 600_000;
/// Small messages of each process, so often, in ns.
const EVERY_NS: u64 = 4_000;
/// No payload takes longer: so many ns, and so many more for each byte to [`RECEIVERS`] receivers,
/// and to each further as many: as a message it goes to each of them on its own.
const PATIENCE_NS: (u64, u64) = (400_000, 6);
const RECEIVERS: u32 = 7;
/// As much as an endpoint takes as a message.
const MESSAGE_LEN_MAX: usize = 16 << 20;
/// All but the controller's host.
const PROCESSES: u32 = 31;

/// Everything that a run depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Large {
    /// Bytes of the payload.
    pub bytes: u64,
    /// How many receivers.
    pub receivers: u32,
    /// It goes by bulk multicast; else as any other message.
    pub is_bulk: bool,
    /// It is reliable, and so are the small ones beside it.
    pub is_reliable: bool,
    /// Switches let messages pass frames of bulk multicast.
    pub has_classes: bool,
    /// There are small messages beside it.
    pub has_others: bool,
}

impl Large {
    /// Runs it. Answers `took_us`, from its submission until the last receiver has delivered it;
    /// and of small messages, if any, that were submitted meanwhile `beside_us` and
    /// `beside_max_us`, how long they took, and `more_us`, how much longer than without it.
    ///
    /// # Errors
    /// When somebody has not got it.
    pub fn run(&self) -> Result<Values> {
        let story = self.story(true);
        let took = story.delivered.iter().flatten().filter(|seen| seen.scattering.is_some());
        let took: Vec<u64> = took.map(|seen| seen.after_ns).collect();
        ensure!(took.len() == self.receivers as usize, "{} have it", took.len());
        let took_ns = took.into_iter().max().unwrap_or(0);
        if !self.has_others {
            return Ok([("took_us".to_owned(), took_ns as f64 / 1e3)].into());
        }
        let within = BEGIN_NS..BEGIN_NS + took_ns;
        let (shared, alone) =
            (story.probes_ns(within.clone()), self.story(false).probes_ns(within));
        let mean_us = |all: &[u64]| all.iter().sum::<u64>() as f64 / all.len().max(1) as f64 / 1e3;
        let values = [
            ("took_us", took_ns as f64 / 1e3),
            ("beside_us", mean_us(&shared)),
            ("beside_max_us", shared.last().map_or(0.0, |ns| *ns as f64 / 1e3)),
            ("more_us", mean_us(&shared) - mean_us(&alone)),
        ];
        Ok(values.map(|(name, value)| (name.to_owned(), value)).into())
    }

    fn story(&self, is_there: bool) -> Story {
        let service = if self.is_reliable { Service::Reliable } else { Service::BestEffort };
        let to = (1..=self.receivers).collect();
        let large = Scattering::new(BEGIN_NS, 0, to, self.bytes as usize);
        let calibration = Calibration::PAPER.network();
        let classes = if self.has_classes { 2 } else { 1 };
        // Queues that lose nothing would be as long as all is.
        let link = LinkConfig { classes, ..LinkConfig::default() };
        let propagation_of =
            |of: LinkConfig| LinkConfig { propagation_ns: of.propagation_ns, ..link };
        let copies = u64::from(self.receivers.div_ceil(RECEIVERS));
        let until_ns = BEGIN_NS + PATIENCE_NS.0 + PATIENCE_NS.1 * self.bytes * copies;
        let probes = Probes { every_ns: EVERY_NS, from_ns: PROBES_NS, until_ns, service };
        let setup = Setup {
            host_link: propagation_of(calibration.host_link),
            switch_link: propagation_of(calibration.switch_link),
            large_bytes: match self.is_bulk {
                true => self.bytes as usize - 1,
                false => MESSAGE_LEN_MAX,
            },
            scatterings: if is_there { vec![Scattering { service, ..large }] } else { vec![] },
            probes: self.has_others.then_some(probes),
            // Nobody fails.
            dead_after_ns: 1_000_000_000,
            ..Setup::new(Shape::testbed(), PROCESSES)
        };
        World::new(setup).run(until_ns)
    }
}
