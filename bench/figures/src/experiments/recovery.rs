//! Figure 10: how long a failure stalls the barriers.

use crate::experiment::{
    Axis, Claim, Curve, Experiment, Measured, Role, Task, Variant, Verdict, is_near,
};
use crate::reference::Reference;
use crate::verdict::{Better, NEAR, Outcome};

const RACK: &str = "one notice reports all failures of a rack; for a notice for each failure see its \
                    curve";
const CORE: &str = "our controller waits for further reports, for a beacon interval and a crossing, \
                    and evaluates its graph for 5 us; for one that decides at once see its \
                    curves";
const HOST: &str = "links take 762 ns, as figure 9a has them, so reports, notices and barriers take \
                    longer than the paper's times leave: even a controller that decides at once \
                    takes 8 us more for a core link of two hosts (its curve)";
const ONE_BY_ONE: &str = "ToR switch, a notice for each failure";
const ONE_BY_ONE_REMARK: &str = "a contact of 2.44 us for each of 8 failures at each of 23 processes \
                                 takes 449 us";
const AT_ONCE: [&str; 2] = ["core link, decided at once", "core switch, decided at once"];

/// Numbers of hosts in the figure.
const HOSTS: &[f64] = &[2.0, 4.0, 8.0, 16.0, 32.0];
/// Time of an unordered frame from a process to another over five switches, in us: the diameter of
/// the testbed (figure 9a, "unorder", 32 processes).
const DIAMETER_US: f64 = 5.35;
const STATED: &str = "\
     ours are of one run of one fabric, whose processes stall for nearly the same time; the paper \
     does not say of what its extremes are";

/// The shortest and the longest stall in the paper, in us, by [`HOSTS`].
const HOST_MIN: [f64; 5] = [47.66, 45.57, 50.27, 73.35, 103.42];
const HOST_MAX: [f64; 5] = [57.89, 65.22, 72.56, 102.76, 144.58];
const RACK_MIN: [f64; 5] = [45.97, 54.26, 70.26, 147.56, 406.84];
const RACK_MAX: [f64; 5] = [63.97, 68.70, 95.58, 189.05, 527.64];

/// Compares the shortest and the longest stalls of a curve with the paper's, at all numbers of
/// hosts that were measured.
fn extremes(measured: &Measured, curve: &str, least: [f64; 5], most: [f64; 5]) -> Option<Verdict> {
    let of = |name: &'static str, paper: [f64; 5]| {
        let at = |(x, paper): (&f64, f64)| Some(measured.other(curve, *x, name)? / paper);
        HOSTS.iter().zip(paper).filter_map(at).collect::<Vec<f64>>()
    };
    let range = |ratios: &[f64]| {
        let least = ratios.iter().copied().reduce(f64::min)?;
        Some((least, ratios.iter().copied().reduce(f64::max)?))
    };
    let (least, most) = (of("recovery_min_us", least), of("recovery_max_us", most));
    let (shortest, longest) = (range(&least)?, range(&most)?);
    let ours = format!(
        "shortest {:.2} to {:.2}, longest {:.2} to {:.2} of the paper's",
        shortest.0, shortest.1, longest.0, longest.1
    );
    let all = (shortest.0.min(longest.0), shortest.1.max(longest.1));
    let outcome = Outcome::of(all, &NEAR, Some(Better::Lower));
    Some(Verdict { outcome, ..Verdict::new(true, ours, "1".into()) })
}

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
            // Its last point is one of the two that give the time of a contact.
            Curve {
                role: Role::CalibratedAt { x: 32.0, points: &[] },
                ..Curve::predicted("host", Some("Host"), HOST, |x| at("host", Variant::None, x))
            },
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
        xs: HOSTS,
        xs_quick: &[2.0, 8.0, 32.0],
        reference: Reference::new(include_str!("../../data/failure_recovery.tsv")),
        claims: vec![
            Claim {
                text: "a failure is detected after 10 beacon intervals: 30 us (a host of 32, within \
                       25 %)",
                verify: |measured| {
                    let us = measured.other("host", 32.0, "detection_us")?;
                    Some(Verdict::near(us, 30.0, Better::Lower, "us"))
                },
                remark: "",
            },
            Claim {
                text: "once a core link of 32 hosts is detected, recovery takes 6 diameters of the \
                       network and what messages cost (at most 25 % more than the paper's 39.8 us)",
                verify: |measured| {
                    let of = |name| measured.other("core link", 32.0, name);
                    let us = of("recovery_us")? - of("detection_us")?;
                    let diameters = us / DIAMETER_US;
                    let ours = format!("{us:.1} us, {diameters:.1} diameters");
                    let paper = format!("39.8 us, {:.1} diameters", 39.8 / DIAMETER_US);
                    let expected = NEAR.start() * 39.8..=NEAR.end() * 39.8;
                    Some(Verdict::in_range(us, expected, Better::Lower, ours, paper))
                },
                remark: "",
            },
            Claim {
                text: "the shortest and the longest stall by a host lie within 25 % of the paper's",
                verify: |measured| extremes(measured, "host", HOST_MIN, HOST_MAX),
                remark: STATED,
            },
            Claim {
                text: "the shortest and the longest stall by a ToR switch lie within 25 % of the \
                       paper's",
                verify: |measured| extremes(measured, "ToR switch", RACK_MIN, RACK_MAX),
                remark: STATED,
            },
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
                text: "each host adds 2.4 us after the failure of a host (by the points), which is what a \
                       contact costs here",
                verify: |measured| {
                    let us = (measured.at("host", 32.0)? - measured.at("host", 2.0)?) / 30.0;
                    Some(Verdict::calibration(format!("{us:.1} us"), "2.44 us".into()))
                },
                remark: "",
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
