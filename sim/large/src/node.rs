//! All kinds of nodes as one machine.

use onepipe_base::Port;
use onepipe_controller::Controller;
use onepipe_large::LargeEndpoint;
use onepipe_node::Host;
use onepipe_sim_network::FabricNode;
use onepipe_switch::Switch;

/// A host with a process, a switch, the controller with its network card, or an idle host.
pub(crate) type Node = FabricNode<Host<Switch, LargeEndpoint>, Switch, Controller>;

/// Returns the process of a host.
pub(crate) fn process(node: &Node) -> Option<&LargeEndpoint> {
    node.host()?.process(Port(0))
}

/// Returns the process of a host, for commands.
pub(crate) fn process_mut(node: &mut Node) -> Option<&mut LargeEndpoint> {
    node.host_mut()?.process_mut(Port(0))
}
