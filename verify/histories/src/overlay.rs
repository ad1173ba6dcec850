//! Runs of the overlay form: endpoints under a tree of aggregators, over links that lose, duplicate
//! and reorder frames.

// This is the network of the overlay's own tests, which use more of it.
#[allow(dead_code)]
#[path = "../../../protocol/node/tests/node/overlay/network.rs"]
mod network;

use crate::Case;
use crate::digest::Digest;
use network::TestNet;

const SEEDS: u64 = 6;
/// Duration of the phase in which processes send.
const SEND_NS: u64 = 4_000_000;
/// Duration of the phase in which they deliver what is in flight.
const DRAIN_NS: u64 = 12_000_000;

/// Returns one case for each seed.
pub fn cases() -> Vec<Case> {
    (0..SEEDS).map(|seed| Case::new(format!("overlay {seed}"), move || run(seed))).collect()
}

fn run(seed: u64) -> u64 {
    let mut network = TestNet::new(seed, false);
    network.run(SEND_NS, true);
    network.run(SEND_NS + DRAIN_NS, false);
    let mut digest = Digest::default();
    digest.add(network.overtaken as u64);
    for (process, log) in &network.logs {
        digest.add((*process).into());
        for message in log {
            let (timestamp, from, index) = message.key;
            digest.add(message.service as u64);
            digest.add(timestamp);
            digest.add(from.into());
            digest.add(index.into());
            digest.add(message.number.into());
        }
    }
    digest.finish()
}
