//! Setup of a simulation.

use onepipe_bulk::{Algorithm, Delivery, Plain};
use onepipe_sim_network::LinkConfig;
use onepipe_topology::Shape;

/// Fabric, group and objects.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The fabric.
    pub shape: Shape,
    /// Links of hosts.
    pub host_link: LinkConfig,
    /// Links between switches.
    pub switch_link: LinkConfig,
    /// Hosts of the members, the root first.
    pub members: Vec<u32>,
    /// Algorithm of the schedule.
    pub algorithm: Algorithm,
    /// Length in bytes of each object that the root sends.
    pub objects: Vec<usize>,
    /// Length of a block in bytes.
    pub block_len: u32,
    /// Length of a piece in bytes; a frame is 102 bytes longer.
    pub piece_len: u32,
    /// When objects are delivered.
    pub delivery: Delivery,
    /// Seed of all random draws.
    pub seed: u64,
}

impl Setup {
    /// Returns a setup of a pipeline among the first `members` hosts, with blocks of 64 KiB in
    /// jumbo frames (9,000 bytes with IPv4 and UDP).
    pub fn new(shape: Shape, members: u32) -> Self {
        Self {
            shape,
            host_link: LinkConfig::default(),
            switch_link: LinkConfig::default(),
            members: (0..members).collect(),
            algorithm: Algorithm::Plain(Plain::Pipeline),
            objects: vec![],
            block_len: 1 << 16,
            piece_len: 8_192,
            delivery: Delivery::AtOnce,
            seed: 1,
        }
    }
}
