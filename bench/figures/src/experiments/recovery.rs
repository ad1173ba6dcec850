//! Figure 10: how long a failure stalls the barriers.

use crate::experiment::{Axis, Claim, Curve, Experiment, Role, Task, Verdict};
use crate::reference::Reference;

const RACK: &str = "one notification reports all failures of a rack: some 50 contacts at 32 hosts, where one per \
                    failure would be more than 184 (docs/results/recovery.md)";
const CORE: &str = "no process must be notified, so no work is done per host; our controller \
                    waits 6 us for further reports and evaluates its graph for 5 \
                    (docs/results/recovery.md)";

/// Returns the run; `None` where the paper has no core switch, in fewer than two racks.
fn at(component: &str, hosts: f64) -> Option<Task> {
    let exists = component != "core-switch" || hosts >= 16.0;
    exists.then(|| Task::Recovery { hosts: hosts as u32, component: component.into(), seed: 1 })
}

/// Figure 10.
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
        title: "Recovery by failed component, notified one by one",
        headline: "36 to 458 us",
        x: Axis { label: "hosts", is_log: true },
        y: Axis { label: "us that barriers stall, mean", is_log: true },
        metric: "recovery_us",
        curves: vec![
            curve("host", "Host", "", |x| at("host", x)),
            curve("ToR switch", "ToR Switch", RACK, |x| at("tor", x)),
            curve("core link", "Core Link", CORE, |x| at("core-link", x)),
            curve("core switch", "Core Switch", CORE, |x| at("core-switch", x)),
        ],
        xs: &[2.0, 4.0, 8.0, 16.0, 32.0],
        xs_quick: &[2.0, 8.0, 32.0],
        reference: Reference::new(include_str!("../../data/failure_recovery.tsv")),
        claims: vec![
            Claim {
                text: "failures that leave all connected recover fastest: a core link before a host, at 8 \
                       hosts and at 32",
                verify: |measured| {
                    let at = |curve, x| measured.at(curve, x);
                    let (link, host) = (at("core link", 32.0)?, at("host", 32.0)?);
                    let holds = link < host && at("core link", 8.0)? < at("host", 8.0)?;
                    let ours = format!("{link:.0} and {host:.0} us at 32");
                    Some(Verdict::new(holds, ours, "70 and 124 us at 32".into()))
                },
                remark: "",
            },
            Claim {
                text: "a ToR switch takes much longer than a host: twice at 32 hosts",
                verify: |measured| {
                    let at = |curve| measured.at(curve, 32.0);
                    let times = at("ToR switch")? / at("host")?;
                    let ours = format!("{times:.1} times as long");
                    Some(Verdict::new(times >= 2.0, ours, "3.7 times as long".into()))
                },
                remark: RACK,
            },
            Claim {
                text: "notified one by one, each host adds 3 to 15 us (within 25 %)",
                verify: |measured| {
                    let each = |curve| {
                        let (few, many) = (measured.at(curve, 2.0)?, measured.at(curve, 32.0)?);
                        Some((many - few) / 30.0)
                    };
                    let (host, rack) = (each("host")?, each("ToR switch")?);
                    let ours = format!("{host:.1} us (host), {rack:.1} us (ToR switch)");
                    let holds = [host, rack].iter().all(|us| (2.25..=18.75).contains(us));
                    let paper = "2.4 us (host), 13.4 us (ToR switch) by the figure".into();
                    Some(Verdict::new(holds, ours, paper))
                },
                remark: "",
            },
        ],
    }
}
