//! Figure 10: how long a failure stalls the barriers.

use crate::experiment::{Axis, Claim, Curve, Experiment, Role, Task, Variant, Verdict, is_near};
use crate::reference::Reference;
use crate::verdict::Better;

const RACK: &str = "one notice reports all failures of a rack; for a notice for each failure see its \
                    curve";
const CORE: &str = "our controller waits for further reports, for a beacon interval and a crossing, \
                    and evaluates its graph for 5 us; for one that decides at once see its \
                    curves";
const HOST: &str = "links take 762 ns, as figure 9a has them, so reports, notices and barriers take \
                    longer than the paper's times leave: even a controller that decides at once \
                    takes 8 us more for a core link of two hosts (its curve)";
const HOST_SLOPE: &str = "a contact takes 3 us, the lower end of the text's \"3 ~ 15 us per host\"; \
                          the points are below it";
const ONE_BY_ONE: &str = "ToR switch, a notice for each failure";
const ONE_BY_ONE_REMARK: &str = "a contact of 3 us for each of 8 failures at each of 23 processes \
                                 takes 552 us: the paper's notices cost less, as for a host";
const AT_ONCE: [&str; 2] = ["core link, decided at once", "core switch, decided at once"];

/// Returns the run; `None` where the paper has no core switch, in fewer than two racks.
fn at(component: &str, variant: Variant, hosts: f64) -> Option<Task> {
    let exists = component != "core-switch" || hosts >= 16.0;
    let hosts = hosts as u32;
    exists.then(|| Task::Recovery { hosts, component: component.into(), variant, seed: 1 })
}

/// Figure 10.
pub fn by_component() -> Experiment {
    let curve = |name, column, remark, task| Curve {
        role: Role::Ours(Better::Lower),
        ..Curve::predicted(name, column, remark, task)
    };
    Experiment {
        id: "10",
        title: "Recovery by failed component, notified one by one",
        headline: "36 to 458 us",
        x: Axis { label: "hosts", is_log: true },
        y: Axis { label: "us that barriers stall, mean", is_log: true },
        metric: "recovery_us",
        curves: vec![
            curve("host", Some("Host"), HOST, |x| at("host", Variant::None, x)),
            curve("ToR switch", Some("ToR Switch"), RACK, |x| at("tor", Variant::None, x)),
            curve("core link", Some("Core Link"), CORE, |x| at("core-link", Variant::None, x)),
            curve("core switch", Some("Core Switch"), CORE, |x| {
                at("core-switch", Variant::None, x)
            }),
            Curve::predicted(ONE_BY_ONE, Some("ToR Switch"), ONE_BY_ONE_REMARK, |x| {
                at("tor", Variant::NoticePerFailure, x)
            }),
            Curve::predicted(AT_ONCE[0], None, "", |x| at("core-link", Variant::NoWaits, x)),
            Curve::predicted(AT_ONCE[1], None, "", |x| at("core-switch", Variant::NoWaits, x)),
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
                text: "a ToR switch takes much longer than a host: 3.7 times at 32 hosts (within 25 %)",
                verify: |measured| {
                    let at = |curve| measured.at(curve, 32.0);
                    let (rack, each) = (at("ToR switch")?, at(ONE_BY_ONE)?);
                    let (times, each) = (rack / at("host")?, each / at("host")?);
                    let ours =
                        format!("{times:.1} times; {each:.1} with a notice for each failure");
                    let paper = "3.7 times".into();
                    Some(Verdict::in_range(times, 2.775..=4.625, Better::Lower, ours, paper))
                },
                remark: RACK,
            },
            Claim {
                text: "each host adds 2.4 us after the failure of a host (by the points, within 25 %)",
                verify: |measured| {
                    slope(measured.at("host", 2.0)?, measured.at("host", 32.0)?, 2.44)
                },
                remark: HOST_SLOPE,
            },
            Claim {
                text: "each host adds 13.4 us after the failure of a ToR switch (by the points, within \
                       25 %)",
                verify: |measured| {
                    slope(measured.at("ToR switch", 2.0)?, measured.at("ToR switch", 32.0)?, 13.43)
                },
                remark: RACK,
            },
            Claim {
                text: "(reason) with a notice for each failure a host adds as much after that of a ToR \
                       switch (within 25 %)",
                verify: |measured| {
                    slope(measured.at(ONE_BY_ONE, 2.0)?, measured.at(ONE_BY_ONE, 32.0)?, 13.43)
                },
                remark: ONE_BY_ONE_REMARK,
            },
            Claim {
                text: "(reason) a controller that decides at once takes as long as the paper's for a core \
                       link of two hosts (within 25 %)",
                verify: |measured| {
                    let us = measured.at(AT_ONCE[0], 2.0)?;
                    let ours = format!("{us:.1} us, ours {:.1}", measured.at("core link", 2.0)?);
                    Some(Verdict::new(is_near(us, 36.18), ours, "36.2 us".into()))
                },
                remark: "",
            },
        ],
    }
}

/// Compares what each of 30 more hosts adds with the paper's number, in us.
fn slope(few: f64, many: f64, paper: f64) -> Option<Verdict> {
    Some(Verdict::near((many - few) / 30.0, paper, Better::Lower, "us"))
}
