//! One run of bulk multicast, as in RDMC's experiments.

use anyhow::{Result, ensure};
use onepipe_bulk::{Algorithm, Plain};
use onepipe_sim_bulk::{Flow, Hop, Mesh, Setup, SimEnv};
use onepipe_sim_network::LinkConfig;
use onepipe_topology::Shape;
use serde::{Deserialize, Serialize};

use crate::values::Values;

/// Fractus: "16 RDMA-enabled nodes", "a 100 Gb/s Mellanox IB switch" (RDMC section 5.1).
const FRACTUS_BITS_PER_S: u64 = 100_000_000_000;
/// Stampede: "unicast speeds of up to 40 Gb/s"; Sierra: "a 40 Gb/s line rate" (section 5.1).
const STAMPEDE_BITS_PER_S: u64 = 40_000_000_000;
/// CPU time for a small message: 1Pipe section 7.2, 5 M messages/s. RDMC's text has no such number.
const FRAME_NS: u64 = 200;
/// Number of one-byte objects per sender (the paper: 100,000).
const RATE_OBJECTS: u32 = 200;
/// Sierra's two-stage fabric (section 5.1): leaves, spines, hosts per leaf; not oversubscribed.
const SIERRA: (u32, u32, u32) = (16, 32, 32);
/// Number of times at which a pause is tried; the worst one counts.
const STALL_MOMENTS: u64 = 8;
/// Limit on the duration of a run, in ns of virtual time.
const RUN_NS: u64 = 10_000_000_000;

/// Schedule of the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scheme {
    /// The root sends the whole object to each member in turn.
    Sequential,
    /// Each member relays blocks to the next one.
    Chain,
    /// Each member with the whole object relays it.
    Tree,
    /// The binomial pipeline.
    Pipeline,
}

/// Condition of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Condition {
    /// An undisturbed transfer on Fractus.
    Undisturbed,
    /// As `Undisturbed`, in strict steps: no member begins a step before all have ended the last.
    StrictSteps,
    /// An undisturbed transfer on Stampede.
    Breakdown,
    /// A transfer on Stampede with a pause of the first relay about half-way, at the worst of eight
    /// times.
    Stall {
        /// Duration of the pause in us.
        us: u32,
    },
    /// The link between the root and the first relay has half the rate of all others.
    SlowLink,
    /// As `SlowLink`, in strict steps.
    StrictSlowLink,
    /// One-byte objects from several members, each in its own group.
    Rate {
        /// Number of senders.
        senders: u32,
    },
    /// On Sierra: a two-stage fabric with 512 hosts and links of 40 Gbit/s.
    Sierra,
}

/// Parameters of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Multicast {
    /// Condition of the transfer.
    pub condition: Condition,
    /// Schedule of the blocks.
    pub scheme: Scheme,
    /// Number of members, the root included.
    pub members: u32,
    /// Size of the object in bytes.
    pub bytes: u64,
    /// Size of a block in bytes.
    pub block_len: u32,
}

impl Multicast {
    /// Whether the run needs gigabytes.
    pub(crate) fn is_large(&self) -> bool {
        self.bytes * u64::from(self.members) > 1 << 30
    }

    /// Runs the transfer. Returns `ms`, the time until all members have the object, and `gbps`, its
    /// size over that time; in addition
    /// - undisturbed: `slack` of a send in the steady state;
    /// - breakdown: `part_1_us` to `part_4_us`, lines of the paper's table 1;
    /// - stall: `more_us`, the additional time, and `step_us`, the time of a block;
    /// - slow link: `kept_percent`, the share of the bandwidth without it that is left;
    /// - rate: `thousand_per_s`, thousands of objects per second from all senders.
    ///
    /// # Errors
    /// If the fabric is invalid, or a member has not received everything.
    pub fn run(&self) -> Result<Values> {
        let mesh = self.mesh();
        let (last_ns, others) = match self.condition {
            Condition::Undisturbed | Condition::StrictSteps => {
                let flow = mesh.run();
                let step_ns = match self.condition {
                    Condition::StrictSteps => flow.last_ns as f64 / self.steps(),
                    _ => mesh.block_ns(),
                };
                let slack = vec![("slack", flow.slack(step_ns))];
                (flow.last_ns, if self.members > 2 { slack } else { vec![] })
            }
            Condition::Breakdown => {
                let flow = mesh.run();
                (flow.last_ns, breakdown(&flow))
            }
            Condition::Stall { us } => {
                let undisturbed_ns = mesh.run().last_ns;
                let stalled_ns = |moment: u64| {
                    // The eight pauses start a quarter of a step apart.
                    let from_ns = undisturbed_ns / 2 + moment * (mesh.block_ns() / 4.0) as u64;
                    let stall = Some((1, from_ns, u64::from(us) * 1_000));
                    Mesh { stall, ..mesh.clone() }.run().last_ns
                };
                let last_ns = (0..STALL_MOMENTS).map(stalled_ns).max().unwrap_or(undisturbed_ns);
                let more_us = last_ns.saturating_sub(undisturbed_ns) as f64 / 1e3;
                (last_ns, vec![("more_us", more_us), ("step_us", mesh.block_ns() / 1e3)])
            }
            Condition::SlowLink | Condition::StrictSlowLink => {
                let slow = Some((0, 1, mesh.rate_bits_per_s / 2));
                let (undisturbed, slowed) = (mesh.run(), Mesh { slow, ..mesh.clone() }.run());
                let percent = 100.0 * undisturbed.last_ns as f64 / slowed.last_ns as f64;
                (slowed.last_ns, vec![("kept_percent", percent)])
            }
            Condition::Rate { senders } => {
                let last_ns = mesh.run().last_ns;
                let objects = f64::from(senders * RATE_OBJECTS);
                (last_ns, vec![("thousand_per_s", objects * 1e6 / last_ns as f64)])
            }
            Condition::Sierra => (self.on_sierra()?, vec![]),
        };
        let (ms, gbps) = (last_ns as f64 / 1e6, self.bytes as f64 * 8.0 / last_ns as f64);
        let all = [("ms", ms), ("gbps", gbps)].into_iter().chain(others);
        Ok(all.map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// Returns the number of steps of the binomial pipeline.
    fn steps(&self) -> f64 {
        let blocks = self.bytes.div_ceil(u64::from(self.block_len)) as f64;
        blocks + f64::from(self.members.ilog2()) - 1.0
    }

    fn algorithm(&self) -> Algorithm {
        Algorithm::Plain(match self.scheme {
            Scheme::Sequential => Plain::Sequential,
            Scheme::Chain => Plain::Chain,
            Scheme::Tree => Plain::Tree,
            Scheme::Pipeline => Plain::Pipeline,
        })
    }

    fn mesh(&self) -> Mesh {
        let mesh = Mesh {
            algorithm: self.algorithm(),
            rate_bits_per_s: match self.condition {
                Condition::Breakdown | Condition::Stall { .. } => STAMPEDE_BITS_PER_S,
                _ => FRACTUS_BITS_PER_S,
            },
            ..Mesh::new(self.members as usize, self.bytes as usize, self.block_len)
        };
        match self.condition {
            Condition::StrictSteps | Condition::StrictSlowLink => {
                Mesh { has_strict_steps: true, ..mesh }
            }
            Condition::Rate { senders } => Mesh {
                senders: senders as usize,
                objects: RATE_OBJECTS,
                frame_ns: FRAME_NS,
                ..mesh
            },
            _ => mesh,
        }
    }

    fn on_sierra(&self) -> Result<u64> {
        let link = LinkConfig { rate_bits_per_s: STAMPEDE_BITS_PER_S, ..LinkConfig::default() };
        let (leaves, spines, hosts) = SIERRA;
        let shape = Shape::leaf_spine(leaves, spines, hosts)?;
        let setup = Setup {
            host_link: link,
            switch_link: link,
            algorithm: self.algorithm(),
            objects: vec![self.bytes as usize],
            block_len: self.block_len,
            ..Setup::new(shape, self.members)
        };
        let outcome = SimEnv::new(&setup).run(RUN_NS);
        ensure!(outcome.is_clean, "a member has not received everything: {:?}", outcome.ended);
        // A clean end implies that all members have everything.
        Ok(outcome.last_ns().unwrap_or(0))
    }
}

/// Returns four lines of the paper's table 1 for the member that is farthest from the root:
/// 1. the time until its first block is complete (in the paper, the time "taken by the root to send
///    and by the first receiver to relay");
/// 2. the time in which it receives other blocks;
/// 3. the time in which it waits for a block;
/// 4. the total.
///
/// The other lines of the table, setup and copying, are host costs, which the simulator does not
/// model.
fn breakdown(flow: &Flow) -> Vec<(&'static str, f64)> {
    let hops = flow.hops.last().map_or(&[][..], Vec::as_slice);
    let first_ns = hops.iter().map(|hop| hop.complete_ns).min().unwrap_or(0);
    let others = hops.iter().filter(|hop| hop.complete_ns > first_ns);
    let busy_ns: u64 = others.map(|hop: &Hop| hop.busy_ns).sum();
    let waiting_ns = flow.last_ns.saturating_sub(first_ns + busy_ns);
    let us = |ns: u64| ns as f64 / 1e3;
    vec![
        ("part_1_us", us(first_ns)),
        ("part_2_us", us(busy_ns)),
        ("part_3_us", us(waiting_ns)),
        ("part_4_us", us(flow.last_ns)),
    ]
}
