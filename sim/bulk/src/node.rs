//! Node of the network: a host or a switch, as one machine.

use onepipe_bulk::{Event, Group};
use onepipe_sim_network::{FabricEvent, FabricNode};
use onepipe_sim_traffic::Forwarder;

/// A host with or without a member, or a switch.
pub(crate) type Node = FabricNode<Group, Forwarder>;
/// An event of a member; switches have none.
pub(crate) type NodeEvent = FabricEvent<Event, (), ()>;
