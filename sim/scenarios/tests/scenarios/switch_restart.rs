//! Scenarios of switches that restart before all of their neighbours are back.

use crate::fixture;

use fixture::{begin, controller_plan, end, switch};
use onepipe_sim_network::{Fault, NodeId};

/// A switch restarts while a host with a message in flight is cut off, and is alone with the other
/// hosts for a while. Their promises must not be all that it waits for once the failure of its
/// previous incarnation is resolved.
#[test]
fn restarted_switch_waits_for_late_hosts() {
    let mut plan = controller_plan("star:3", 2, 1, 1);
    plan.load = None;
    let mut fabric = begin(plan);
    let (star, late) = (switch(&fabric, 0), NodeId(2));
    fabric.scatter_reliably(4, &[(0, 64)]).expect("the process runs").expect("accepted");
    fabric.run_us(100);
    let cut = fabric.between(late, star);
    cut.iter().for_each(|link| fabric.inject(Fault::Cut(*link)));
    fabric.scatter_reliably(4, &[(0, 64)]).expect("the process runs").expect("accepted");
    fabric.run_us(10);
    fabric.inject(Fault::Crash(star));
    fabric.run_us(60);
    fabric.inject(Fault::Restart(star));
    fabric.run_us(250);
    cut.iter().for_each(|link| fabric.inject(Fault::Repair(*link)));
    fabric.run_us(200);
    let report = end(fabric);
    assert_eq!((report.messages.failures, report.messages.lost), (0, 0), "{report:#?}");
}
