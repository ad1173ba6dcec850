//! What a run is about.

use onepipe_bulk::{Algorithm, Delivery, Plain};
use onepipe_sim_network::LinkConfig;
use onepipe_topology::Shape;

/// A fabric, a group, and what its root sends.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The fabric.
    pub shape: Shape,
    /// Links of hosts.
    pub host_link: LinkConfig,
    /// Links between switches.
    pub switch_link: LinkConfig,
    /// Hosts that are members, the root first.
    pub members: Vec<u32>,
    /// How blocks travel.
    pub algorithm: Algorithm,
    /// Bytes of each object that the root sends, one behind the other.
    pub objects: Vec<usize>,
    /// Bytes of a block.
    pub block_len: u32,
    /// Bytes of a piece; a frame has 116 more.
    pub piece_len: u32,
    /// When objects are delivered.
    pub delivery: Delivery,
    /// Everything that is drawn.
    pub seed: u64,
}

impl Setup {
    /// The first `members` hosts of a fabric in a pipeline, with blocks of 64 KiB in jumbo frames
    /// (9,000 bytes with IPv4 and UDP).
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
