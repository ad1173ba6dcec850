//! Scenarios of switches that restart before all of their neighbours are back.

#[allow(dead_code)]
mod tale;

use onepipe_sim_network::{Fault, NodeId};
use tale::{begin, court_plan, end, switch};

/// A switch restarts while a host with a message in flight is cut off, and is alone with the other
/// hosts for a while. Their promises must not be all that it waits for once the failure of its
/// previous incarnation is resolved.
#[test]
fn who_is_heard_late_by_a_switch_that_has_come_back_is_waited_for() {
    let mut plan = court_plan("star:3", 2, 1, 1);
    plan.load = None;
    let mut fabric = begin(plan);
    let (star, late) = (switch(&fabric, 0), NodeId(2));
    fabric.scatter_reliably(4, &[(0, 64)]).expect("the process runs").expect("accepted");
    fabric.run_us(100);
    let cut = fabric.between(late, star);
    cut.iter().for_each(|link| fabric.inflict(Fault::Cut(*link)));
    fabric.scatter_reliably(4, &[(0, 64)]).expect("the process runs").expect("accepted");
    fabric.run_us(10);
    fabric.inflict(Fault::Crash(star));
    fabric.run_us(60);
    fabric.inflict(Fault::Restart(star));
    fabric.run_us(250);
    cut.iter().for_each(|link| fabric.inflict(Fault::Mend(*link)));
    fabric.run_us(200);
    let report = end(fabric);
    assert_eq!((report.messages.failures, report.messages.lost), (0, 0), "{report:#?}");
}
