//! A deliberately naive model of a fabric for the controllers: every node recomputes its commit
//! from all it has received, and the checks use the true state of all nodes.
#![allow(dead_code, reason = "each test uses its part")]

mod check;
mod flood;
mod node;
mod run;

use std::collections::{BTreeMap, BTreeSet};

use onepipe_base::{Address, Controllers, Instance, ProcessId, SwitchId};
use onepipe_controller::{Controller, Event, MemoryStore};
use onepipe_wire::{Failure, FloodAck, FloodId, FloodKind, Side};

pub use node::Node;

/// Link timeout, in ns.
pub const LINK_TIMEOUT_NS: u64 = 30_000;
/// Beacon interval, in ns.
pub const BEACON_NS: u64 = 5_000;

/// Frame faults.
#[derive(Clone, Copy, Debug)]
pub struct FrameFaults {
    /// Lost frames per thousand, beacons included.
    pub lost: u64,
    /// Duplicated frames per thousand.
    pub duplicated: u64,
    /// Greatest additional delay of a frame, in ns.
    pub jitter_ns: u64,
}

/// A set of process instances: bit n stands for the nth one that has started.
pub type Sources = u128;

/// A scheduled event.
#[derive(Clone, Debug)]
pub enum Item {
    /// A beacon to a port of a node: the sender, the instance that the sender sees at the other
    /// end, its commit, if any, and the processes whose promises this commit includes.
    Beacon {
        node: usize,
        port: usize,
        from: Instance,
        ack: Option<Instance>,
        commit: Option<u64>,
        sources: Sources,
    },
    /// A flood over one link.
    Flood { node: usize, port: usize, payload: Vec<u8> },
    /// A death notice to a switch over a link: it was declared dead, and restarts.
    DeathNotice { node: usize, port: usize, instance: Instance },
    /// The acknowledgement of a flood.
    FloodAck { node: usize, port: usize, ack: FloodAck },
    /// A frame of a node to a controller.
    ToController { from: usize, replica: usize, bytes: Vec<u8> },
    /// A frame of a controller to a process.
    ToProcess { replica: usize, process: ProcessId, bytes: Vec<u8> },
    /// A frame of a controller over its own link.
    FromController { replica: usize, link: usize, bytes: Vec<u8> },
    /// A frame of a neighbour to a controller.
    OverLink { replica: usize, link: usize, bytes: Vec<u8> },
    /// A tick of a node's timer.
    Tick { node: usize, incarnation: u32 },
    /// A deadline of a controller.
    Wake { replica: usize },
}

/// A controller and its attachment.
pub struct Replica {
    pub machine: Option<Controller>,
    pub process: ProcessId,
    pub incarnation: u32,
    /// The switch and its port; `None` in a mesh.
    pub attached_to: Option<(usize, usize)>,
    pub wake_at: Option<u64>,
}

/// The whole fabric.
pub struct Fabric {
    pub now: u64,
    pub nodes: Vec<Node>,
    /// Cut links; both ends are listed.
    pub cut: BTreeSet<(usize, usize)>,
    pub replicas: Vec<Replica>,
    pub controllers: Controllers,
    pub active: Option<usize>,
    pub store: MemoryStore,
    pub frame_faults: FrameFaults,
    pub events: Vec<Event>,
    /// Failures as recorded in the store.
    pub decided: BTreeMap<Instance, u64>,
    /// Instances whose announcement was ever acknowledged: only they have sent reliable messages.
    pub welcome: BTreeSet<Instance>,
    /// The last promise of each instance that has ended.
    pub last_promise: BTreeMap<Instance, u64>,
    /// The instances of processes, in the order in which they started.
    pub sources: Vec<Instance>,
    /// When each instance started, and when it ended.
    pub started: BTreeMap<Instance, u64>,
    pub ended: BTreeMap<Instance, u64>,
    pub violations: Vec<(Instance, String)>,
    pub flat: bool,
    /// After this time controllers decide without a register, and sever links between nodes that
    /// have no other path to each other.
    pub inexact_after_ns: u64,
    /// Steps of the active controller until it crashes.
    pub crash_after: Option<u64>,
    queue: BTreeMap<(u64, u64), Item>,
    sequence: u64,
    seed: u64,
}

/// A flood in progress at a node.
#[derive(Clone, Debug)]
pub struct FloodInProgress {
    pub id: FloodId,
    pub kind: FloodKind,
    pub parent: usize,
    pub payload: Vec<u8>,
    pub pending: BTreeSet<usize>,
    pub is_broken: bool,
    pub repeat_at: u64,
}

/// What a process knows.
#[derive(Clone, Debug, Default)]
pub struct Known {
    pub failures: Vec<Failure>,
    pub is_welcome: bool,
    pub is_excluded: bool,
    /// The process is a member, but answers no controller.
    pub is_unresponsive: bool,
}

pub fn process(number: u32) -> Address {
    Address::Process(ProcessId(number))
}

pub fn switch(number: u32) -> Address {
    Address::Switch(SwitchId(number))
}

impl Fabric {
    /// Builds leaves with processes below, all linked to all spines; controllers on leaves 0 and 1.
    pub fn leaf_spine(leaves: usize, spines: usize, per_leaf: usize, seed: u64) -> Self {
        let mut nodes: Vec<Node> = Vec::new();
        for leaf in 0..leaves {
            nodes.push(Node::new(switch(leaf as u32)));
        }
        for spine in 0..spines {
            nodes.push(Node::new(switch((leaves + spine) as u32)));
        }
        for entry in 0..leaves * per_leaf {
            nodes.push(Node::new(process(entry as u32)));
            let (leaf, node) = (entry / per_leaf, leaves + spines + entry);
            link(&mut nodes, leaf, node);
        }
        for leaf in 0..leaves {
            for spine in 0..spines {
                link(&mut nodes, leaves + spine, leaf);
            }
        }
        Self::with(nodes, &[Some(0), Some(1.min(leaves - 1))], seed)
    }

    /// Builds a chain of switches, each with processes below and the next switch above.
    pub fn tower(levels: usize, per_leaf: usize, seed: u64) -> Self {
        let mut nodes: Vec<Node> =
            (0..levels).map(|number| Node::new(switch(number as u32))).collect();
        for entry in 0..levels * per_leaf {
            nodes.push(Node::new(process(entry as u32)));
            link(&mut nodes, entry / per_leaf, levels + entry);
        }
        for level in 1..levels {
            link(&mut nodes, level, level - 1);
        }
        Self::with(nodes, &[Some(levels - 1); 2], seed)
    }

    /// Builds a full mesh of processes.
    pub fn mesh(processes: usize, seed: u64) -> Self {
        let mut nodes: Vec<Node> =
            (0..processes).map(|number| Node::new(process(number as u32))).collect();
        for one in 0..processes {
            for other in 0..one {
                let (here, there) = (nodes[one].ports.len(), nodes[other].ports.len());
                nodes[one].add_port(Side::Direct, node::Peer::Node(other, there));
                nodes[other].add_port(Side::Direct, node::Peer::Node(one, here));
            }
        }
        Self::with(nodes, &[None, None], seed)
    }

    fn with(mut nodes: Vec<Node>, attachments: &[Option<usize>], seed: u64) -> Self {
        let controllers = Controllers { first: ProcessId(900), count: attachments.len() as u32 };
        let mut replicas = Vec::new();
        for (replica, attached_to) in attachments.iter().enumerate() {
            let port = attached_to.map(|attached_to| {
                (
                    attached_to,
                    nodes[attached_to].add_port(Side::Lower, node::Peer::Controller(replica)),
                )
            });
            if port.is_none() {
                for node in &mut nodes {
                    node.add_port(Side::Direct, node::Peer::Controller(replica));
                }
            }
            replicas.push(Replica {
                machine: None,
                process: ProcessId(900 + replica as u32),
                incarnation: 0,
                attached_to: port,
                wake_at: None,
            });
        }
        let mut fabric = Self {
            now: 1_000_000_000,
            nodes,
            cut: BTreeSet::new(),
            replicas,
            controllers,
            active: None,
            store: MemoryStore::new(),
            frame_faults: FrameFaults { lost: 0, duplicated: 0, jitter_ns: 0 },
            events: Vec::new(),
            decided: BTreeMap::new(),
            welcome: BTreeSet::new(),
            last_promise: BTreeMap::new(),
            sources: Vec::new(),
            started: BTreeMap::new(),
            ended: BTreeMap::new(),
            violations: Vec::new(),
            flat: false,
            inexact_after_ns: 1_000_000_000,
            crash_after: None,
            queue: BTreeMap::new(),
            sequence: 0,
            seed,
        };
        for node in 0..fabric.nodes.len() {
            fabric.start(node);
        }
        for replica in 0..fabric.replicas.len() {
            fabric.start_replica(replica);
        }
        fabric
    }

    /// Returns the node with this address.
    pub fn find(&self, address: Address) -> usize {
        self.nodes.iter().position(|node| node.address == address).expect("there is one")
    }

    /// Draws a number below `limit`.
    pub fn draw(&mut self, limit: u64) -> u64 {
        // SplitMix64.
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.seed;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit.max(1)
    }

    /// Sends a frame: it takes a microsecond, more with jitter, and may be lost or duplicated.
    pub fn send(&mut self, item: Item) {
        if self.draw(1_000) < self.frame_faults.lost {
            return;
        }
        let copies = 1 + u64::from(self.draw(1_000) < self.frame_faults.duplicated);
        for _ in 0..copies {
            let delay = 1_000 + self.draw(self.frame_faults.jitter_ns + 1);
            self.at(self.now + delay, item.clone());
        }
    }

    pub fn at(&mut self, when: u64, item: Item) {
        self.sequence += 1;
        self.queue.insert((when, self.sequence), item);
    }
}

/// Links `lower` below `upper`.
fn link(nodes: &mut [Node], upper: usize, lower: usize) {
    let (above, below) = (nodes[upper].ports.len(), nodes[lower].ports.len());
    nodes[upper].add_port(Side::Lower, node::Peer::Node(lower, below));
    nodes[lower].add_port(Side::Upper, node::Peer::Node(upper, above));
}
