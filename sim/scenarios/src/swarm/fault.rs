//! Faults of a random scenario.

use onepipe_base::HostId;
use onepipe_sim_network::{Fault, LinkFaults, LinkId, NodeId};

use crate::Fabric;

/// A fault of a random scenario. A target is a random number, taken modulo the number of nodes,
/// links, processes or controllers that the fabric has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultEvent {
    /// Sets the fault settings of every link.
    AllLinks(LinkFaults),
    /// Sets the fault settings of one link.
    OneLink(u64, LinkFaults),
    /// Cuts one direction of a link.
    Cut(u64),
    /// Repairs one direction of a link.
    Repair(u64),
    /// Cuts both directions of a link.
    Unplug(u64),
    /// Repairs both directions of a link.
    Plug(u64),
    /// Crashes a host or switch.
    Crash(u64),
    /// Restarts a host or switch.
    Restart(u64),
    /// Crashes a process.
    CrashProcess(u64),
    /// Restarts a process.
    RestartProcess(u64),
    /// Lets every other process scatter reliably to a process that has restarted.
    Contact(u64),
    /// Lets a process scatter reliably to an id that never joined, and to another process.
    ContactAbsent(u64),
    /// Lets a process cancel its reliable scatterings without an outcome.
    Cancel(u64),
    /// Checks that every reliable scattering submitted more than the given us ago has ended.
    ExpectEnded(u64),
    /// Lets a process leave gracefully.
    Leave(u64),
    /// Steps a node's clock by the given ns.
    Step(u64, i64),
    /// Pauses a node for the given us.
    Pause(u64, u64),
    /// Pauses a host for the given us.
    PauseHost(u64, u64),
    /// Pauses a switch for the given us.
    PauseSwitch(u64, u64),
    /// Crashes a switch.
    CrashSwitch(u64),
    /// Restarts a switch.
    RestartSwitch(u64),
    /// Stops a process from releasing what it receives.
    Slow(u64),
    /// Stops a process, but not its host.
    Stop(u64),
    /// Lets a process run again, and release what it receives.
    Resume(u64),
    /// Cuts off some hosts, from the first on, with their ToR switches.
    Partition(u64),
    /// Crashes a controller.
    CrashController(u64),
    /// Restarts a controller.
    RestartController(u64),
    /// Expires the lease of the active controller early.
    LeaseExpired,
    /// Makes the controllers' store unavailable for the given us.
    FailStore(u64),
    /// Ends all controllers, puts an older copy of their store in its place, and starts them again.
    OldStore(u64),
}

impl FaultEvent {
    /// Returns the name used in tables; `None` for the end of another fault.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::AllLinks(_) => "faults on all links",
            Self::OneLink(..) => "faults on one link",
            Self::Cut(_) => "link cut one way",
            Self::Unplug(_) => "link unplugged",
            Self::Crash(_) => "node crashed",
            Self::CrashProcess(_) => "process crashed",
            Self::Leave(_) => "process left",
            Self::ContactAbsent(_) => "receiver never joined",
            Self::Cancel(_) => "scatterings cancelled",
            Self::Step(..) => "clock stepped",
            Self::Pause(..) => "node paused",
            Self::PauseHost(..) => "host paused",
            Self::PauseSwitch(..) => "switch paused",
            Self::CrashSwitch(_) => "switch restarted",
            Self::Slow(_) => "receiver stopped",
            Self::Stop(_) => "process stopped",
            Self::Partition(_) => "partition",
            Self::CrashController(_) => "controller crashed",
            Self::LeaseExpired => "lease expired",
            Self::FailStore(_) => "store failed",
            Self::OldStore(_) => "store went back",
            Self::Repair(_)
            | Self::Plug(_)
            | Self::Restart(_)
            | Self::RestartSwitch(_)
            | Self::RestartProcess(_)
            | Self::Contact(_)
            | Self::ExpectEnded(_)
            | Self::Resume(_)
            | Self::RestartController(_) => return None,
        })
    }

    /// Whether the fault may lose the Leave of a process, what its switch knows of it, or the link
    /// between the two. In a calm scenario no process leaves during such a fault.
    pub(super) fn may_lose_leaves(self) -> bool {
        match self {
            Self::AllLinks(_)
            | Self::OneLink(..)
            | Self::Cut(_)
            | Self::Repair(_)
            | Self::Unplug(_)
            | Self::Plug(_)
            | Self::Crash(_)
            | Self::Restart(_)
            | Self::Pause(..)
            | Self::PauseHost(..)
            | Self::PauseSwitch(..)
            | Self::Stop(_)
            | Self::CrashSwitch(_)
            | Self::RestartSwitch(_)
            | Self::Partition(_)
            | Self::OldStore(_) => true,
            Self::CrashProcess(_)
            | Self::RestartProcess(_)
            | Self::Contact(_)
            | Self::ContactAbsent(_)
            | Self::Cancel(_)
            | Self::ExpectEnded(_)
            | Self::Resume(_)
            | Self::Leave(_)
            | Self::Step(..)
            | Self::Slow(_)
            | Self::CrashController(_)
            | Self::RestartController(_)
            | Self::LeaseExpired
            | Self::FailStore(_) => false,
        }
    }

    /// Whether the fault would hit the last process, or its host or link, and so could leave the
    /// controllers alone in their rack or on their host. Always false without controllers.
    pub(super) fn hits_last_process(self, fabric: &mut Fabric) -> bool {
        let members = fabric.members();
        if members == fabric.topology().processes() {
            return false;
        }
        let last = members - 1;
        let is_last = |number: u64| (number % u64::from(members)) as u32 == last;
        if let Self::CrashProcess(number) | Self::Leave(number) = self {
            return is_last(number);
        }
        if fabric.topology().processes_per_host() > 1 {
            // The host of the last process is that of the controllers: both fail together.
            return false;
        }
        let (nodes, links) =
            (u64::from(fabric.network().nodes()), fabric.network().links().count());
        match self {
            Self::Crash(number) | Self::Pause(number, _) => (number % nodes) as u32 == last,
            Self::Cut(number) | Self::Unplug(number) | Self::OneLink(number, _) => {
                let link = fabric.network().links().nth((number % links as u64) as usize);
                link.is_some_and(|(_, from, to)| from.0 == last || to.0 == last)
            }
            _ => false,
        }
    }

    /// Injects the fault.
    pub fn inject(self, fabric: &mut Fabric) {
        let links = fabric.network().links().count() as u64;
        let nodes = u64::from(fabric.network().nodes());
        let processes = u64::from(fabric.members());
        let link = |number: u64| LinkId((number % links) as u32);
        let node = |number: u64| NodeId((number % nodes) as u32);
        let process = |number: u64| (number % processes) as u32;
        let hosts = u64::from(fabric.topology().hosts());
        let host = |number: u64| NodeId((number % hosts) as u32);
        let switch = |number: u64| NodeId((hosts + number % (nodes - hosts)) as u32);
        let (members, all) = (fabric.members(), fabric.topology().processes());
        let controller = |number: u64| {
            let count = u64::from(all - members);
            (count > 0).then(|| members + (number % count) as u32)
        };
        match self {
            FaultEvent::AllLinks(faults) => fabric.set_link_faults(faults),
            FaultEvent::OneLink(number, faults) => {
                fabric.inject(Fault::SetLinkFaults(link(number), faults))
            }
            FaultEvent::Cut(number) => fabric.inject(Fault::Cut(link(number))),
            FaultEvent::Repair(number) => fabric.inject(Fault::Repair(link(number))),
            FaultEvent::Crash(number) => fabric.inject(Fault::Crash(node(number))),
            FaultEvent::Restart(number) => fabric.inject(Fault::Restart(node(number))),
            FaultEvent::CrashProcess(number) => fabric.crash_process(process(number)),
            FaultEvent::RestartProcess(number) => fabric.restart_process(process(number)),
            FaultEvent::Contact(number) => {
                let to = process(number);
                for from in (0..members).filter(|from| *from != to) {
                    // A full send buffer refuses it.
                    let _ = fabric.scatter_reliably(from, &[(to, 64)]);
                }
            }
            FaultEvent::ContactAbsent(number) => {
                let (from, to) = (process(number), process(number + 1));
                // A full send buffer refuses it.
                let _ = fabric.scatter_reliably(from, &[(all, 64), (to, 64)]);
            }
            FaultEvent::Cancel(number) => fabric.cancel_all(process(number)),
            FaultEvent::ExpectEnded(us) => fabric.expect_ended(us),
            FaultEvent::Step(number, ns) => fabric.inject(Fault::StepClock(node(number), ns)),
            FaultEvent::Pause(number, us) => fabric.inject(Fault::Pause(node(number), us * 1_000)),
            FaultEvent::PauseHost(number, us) => {
                fabric.inject(Fault::Pause(host(number), us * 1_000))
            }
            FaultEvent::PauseSwitch(number, us) => {
                fabric.inject(Fault::Pause(switch(number), us * 1_000))
            }
            FaultEvent::CrashSwitch(number) => fabric.inject(Fault::Crash(switch(number))),
            FaultEvent::RestartSwitch(number) => fabric.inject(Fault::Restart(switch(number))),
            FaultEvent::Slow(number) => fabric.set_slow(process(number), true),
            FaultEvent::Stop(number) => fabric.set_stopped(process(number), true),
            FaultEvent::Resume(number) => {
                fabric.set_slow(process(number), false);
                fabric.set_stopped(process(number), false);
            }
            FaultEvent::Partition(number) => partition(fabric, number),
            FaultEvent::Unplug(number) => inject_both(fabric, link(number), Fault::Cut),
            FaultEvent::Plug(number) => inject_both(fabric, link(number), Fault::Repair),
            FaultEvent::Leave(number) => fabric.leave(process(number)),
            FaultEvent::CrashController(number) => {
                if let Some(controller) = controller(number) {
                    fabric.crash_process(controller);
                }
            }
            FaultEvent::RestartController(number) => {
                if let Some(controller) = controller(number) {
                    fabric.restart_process(controller);
                }
            }
            FaultEvent::LeaseExpired => fabric.expire_lease(),
            FaultEvent::FailStore(us) => fabric.fail_store(us),
            FaultEvent::OldStore(number) => fabric.put_old_store(number),
        }
    }
}

/// Injects `fault` into `link` and into the opposite direction.
fn inject_both(fabric: &mut Fabric, link: LinkId, fault: impl Fn(LinkId) -> Fault) {
    let ends = fabric.network().links().find(|(id, ..)| *id == link);
    let Some((_, from, to)) = ends else { return };
    // Parallel links between the two nodes share the fault.
    fabric.between(from, to).into_iter().for_each(|link| fabric.inject(fault(link)));
}

/// Cuts off some hosts, from the first on, with their ToR switches; `number` decides how many.
fn partition(fabric: &mut Fabric, number: u64) {
    let hosts = fabric.topology().hosts();
    let hosts_inside = 1 + (number % u64::from(hosts)) as u32;
    let tors: Vec<NodeId> = (0..hosts)
        .filter_map(|host| {
            let nic = onepipe_topology::End {
                node: onepipe_topology::Node::Host(HostId(host)),
                port: fabric.topology().network_card(),
            };
            (host < hosts_inside).then(|| fabric.topology().peer(nic)).flatten()
        })
        .map(|end| fabric.node(end.node))
        .collect();
    let is_inside = |node: NodeId| node.0 < hosts_inside || tors.contains(&node);
    let boundary = fabric.network().boundary_links(is_inside);
    boundary.into_iter().for_each(|link| fabric.inject(Fault::Cut(link)));
}
