//! Figure 10: how long a failure stops the barriers.

use crate::experiment::{Axis, Curve, Experiment, Role, Task};
use crate::reference::Reference;

fn at(component: &str, hosts: f64) -> Option<Task> {
    let is_there = component != "core-switch" || hosts >= 16.0;
    is_there.then(|| Task::Recovery { hosts: hosts as u32, component: component.into(), seed: 1 })
}

/// 10.
pub fn by_component() -> Experiment {
    let curve = |name, column, remark, task| Curve {
        name,
        column: Some(column),
        role: Role::Predicted,
        remark,
        task,
    };
    Experiment {
        id: "10",
        title: "Recovery by what has failed, told one by one",
        headline: "36 to 458 us",
        x: Axis { label: "hosts", is_log: true },
        y: Axis { label: "us that barriers stand still, mean", is_log: true },
        metric: "recovery_us",
        curves: vec![
            curve("host", "Host", "", |x| at("host", x)),
            curve("ToR switch", "ToR Switch", "one notice tells all failures of a rack", |x| {
                at("tor", x)
            }),
            curve("core link", "Core Link", "no process need be told of anything", |x| {
                at("core-link", x)
            }),
            curve("core switch", "Core Switch", "no process need be told of anything", |x| {
                at("core-switch", x)
            }),
        ],
        xs: &[2.0, 4.0, 8.0, 16.0, 32.0],
        xs_quick: &[2.0, 8.0, 32.0],
        reference: Reference::new(include_str!("../../data/failure_recovery.tsv")),
        claims: vec![],
    }
}
