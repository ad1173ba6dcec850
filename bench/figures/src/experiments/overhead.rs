//! Figures 11 and 13: the cost of ordering for a receiver, and of beacons for switches and links.

use crate::experiment::{Axis, Claim, Curve, Experiment, Measured, Role, Task, Verdict};
use crate::reference::Reference;
use crate::verdict::{Better, Contradiction, Stated};

const DELAYS: &[f64] = &[0.0, 1.0, 5.0, 25.0, 125.0];
const INTERVALS: &[f64] = &[1.0, 10.0, 100.0, 1_000.0];

fn reorder(delay_us: f64) -> Option<Task> {
    Some(Task::Reorder { delay_ns: (delay_us * 1_000.0) as u64 })
}

/// Figure 11, throughput.
pub fn reordering() -> Experiment {
    Experiment {
        id: "11",
        title: "What reordering costs a receiver, on this machine",
        headline: "6.1 M messages/s at no delay, 4.3 M at 125 us",
        x: Axis { label: "us that the barrier trails arrivals", is_log: false },
        y: Axis { label: "M messages/s on one core", is_log: false },
        metric: "throughput_mps",
        curves: vec![Curve {
            name: "reorder stage",
            column: Some("Throughput"),
            role: Role::Machine,
            remark: "",
            task: reorder,
        }],
        xs: DELAYS,
        xs_quick: DELAYS,
        reference: Reference::new(include_str!("../../data/reorder_receiver.tsv")),
        claims: vec![
            Claim {
                text: "throughput falls slightly with the delay: at 125 us the same share of the value \
                       at no delay as in the paper",
                verify: |measured| {
                    let at = |x| measured.at("reorder stage", x);
                    let retained = at(125.0)? / at(0.0)?;
                    let (ours, paper) = (format!("{retained:.2}"), "0.70".into());
                    Some(Verdict::new(retained >= 4.3 / 6.1, ours, paper))
                },
                remark: "",
            },
            Claim {
                text: "the stage never limits a receiver: above the paper's throughput at \
                       every delay",
                verify: |measured| {
                    let points = measured.curves.get("reorder stage")?;
                    let rates =
                        points.iter().filter_map(|(_, values)| values.get("throughput_mps"));
                    let least = rates.copied().reduce(f64::min)?;
                    let ours = format!("{least:.1} M/s and more");
                    let paper = "6.1 to 4.3 M/s, the whole receiver".into();
                    Some(Verdict::new(least > 6.1, ours, paper))
                },
                remark: "",
            },
        ],
    }
}

/// The paper counts "maximal send and receive buffer" (section 7.2): 25 kB for each microsecond,
/// twice what 100 Gbit/s carry in it.
const BUFFERS: &str = "send and receive buffers";

/// Figure 11, memory.
pub fn waiting() -> Experiment {
    Experiment {
        id: "11m",
        title: "What waits for the barrier at 100 Gbit/s",
        headline: "in proportion to the delay, 3.1 MB at 125 us",
        x: Axis { label: "us that the barrier trails arrivals", is_log: false },
        y: Axis { label: "MB", is_log: false },
        metric: "memory_both_mb",
        curves: vec![Curve {
            name: BUFFERS,
            column: Some("Memory (MB)"),
            role: Role::Ours(Better::Lower),
            remark: "where little waits, a batch of 16 arrivals of 1 KB is most of it",
            task: reorder,
        }],
        xs: &[1.0, 5.0, 25.0, 125.0],
        xs_quick: &[1.0, 5.0, 25.0, 125.0],
        reference: Reference::new(include_str!("../../data/reorder_receiver.tsv")),
        claims: vec![Claim {
            text: "memory grows in proportion to the delay, to a few megabytes",
            verify: |measured| {
                let at = |x| measured.at(BUFFERS, x);
                let (at_25_us, at_125_us) = (at(25.0)?, at(125.0)?);
                let holds = (4.0..6.0).contains(&(at_125_us / at_25_us)) && at_125_us < 5.0;
                let ours = format!(
                    "{at_125_us:.2} MB at 125 us, {:.1} times that at 25",
                    at_125_us / at_25_us
                );
                Some(Verdict::new(holds, ours, "3.125 MB at 125 us, 5.0 times".into()))
            },
            remark: "",
        }],
    }
}

/// The text's and the points' cores of a switch without the kernel's network stack.
const SWITCH_CORE: Contradiction = Contradiction::Differ(
    Stated { value: 1.0, text: "one core at 10 us (section 7.2)" },
    Stated { value: 1.6, text: "1.6 cores at 10 us (figure 13a)" },
);

/// Figure 13a.
pub fn beacon_cores() -> Experiment {
    Experiment {
        id: "13a",
        title: "Cores for the beacons of a 32-port switch, on this machine",
        headline: "a host's core sustains 3 us, a switch's 10 us without the kernel's network stack",
        x: Axis { label: "us between beacons", is_log: true },
        y: Axis { label: "cores", is_log: true },
        metric: "cores",
        curves: vec![Curve {
            name: "the switch machine, without I/O",
            column: Some("Xeon E5 Server (DPDK)"),
            role: Role::Machine,
            remark: "",
            task: |x| Some(Task::BeaconCores { interval_ns: (x * 1_000.0) as u64 }),
        }],
        xs: INTERVALS,
        xs_quick: INTERVALS,
        reference: Reference::new(include_str!("../../data/beacon_cpu_overhead.tsv")),
        claims: vec![
            Claim {
                text: "one core sustains an interval of 3 us at 32 ports",
                verify: |measured| {
                    let cores = measured.at("the switch machine, without I/O", 1.0)? / 3.0;
                    let ours = format!("{cores:.2} cores, I/O not counted");
                    let paper = "1, by the text; 1.67 by the figure's points".into();
                    Some(Verdict::new(cores <= 1.0, ours, paper))
                },
                remark: "",
            },
            Claim {
                text: "one core of a switch, which does a third of a host's core, sustains 10 us \
                       without the kernel's network stack",
                verify: |measured| {
                    let host = measured.at("the switch machine, without I/O", 10.0)?;
                    let cores = 3.0 * host;
                    let ours = format!("{cores:.2} cores, three times this machine's {host:.2}");
                    let paper = "1, by the text; 1.6 by the figure's points, 10 with the stack";
                    let verdict = Verdict::new(cores <= 1.0, ours, paper.into());
                    Some(verdict.or_contradiction(SWITCH_CORE))
                },
                remark: "",
            },
            Claim {
                text: "cores fall as one over the interval",
                verify: |measured| {
                    let at = |x| measured.at("the switch machine, without I/O", x);
                    let factor = at(1.0)? / at(1_000.0)?;
                    let ours = format!("1000 times the interval, 1/{factor:.0} of the cores");
                    let holds = (500.0..2_000.0).contains(&factor);
                    Some(Verdict::new(holds, ours, "1/1000".into()))
                },
                remark: "",
            },
        ],
    }
}

/// Figure 13b.
pub fn beacon_share() -> Experiment {
    fn at(interval_us: f64, gbps: u32) -> Option<Task> {
        Some(Task::BeaconShare { interval_ns: (interval_us * 1_000.0) as u64, gbps })
    }
    let curve = |name, column, task| Curve {
        name,
        column: Some(column),
        role: Role::Predicted,
        remark: "",
        task,
    };
    Experiment {
        id: "13b",
        title: "What beacons take of a link that is idle",
        headline: "0.3 % of 100 Gbit/s at 3 us",
        x: Axis { label: "us between beacons", is_log: true },
        y: Axis { label: "% of a link", is_log: true },
        metric: "percent_of_link",
        curves: vec![
            curve("10 Gbit/s", "10 Gbps", |x| at(x, 10)),
            curve("40 Gbit/s", "40 Gbps", |x| at(x, 40)),
            curve("100 Gbit/s", "100 Gbps", |x| at(x, 100)),
        ],
        xs: INTERVALS,
        xs_quick: INTERVALS,
        reference: Reference::new(include_str!("../../data/beacon_network_overhead.tsv")),
        claims: vec![Claim {
            text: "at an interval of 3 us beacons take 0.5 % of 100 Gbit/s at most",
            verify: |measured: &Measured| {
                let percent = measured.at("100 Gbit/s", 1.0)? / 3.0;
                let ours = format!("{percent:.2} %");
                Some(Verdict::new(percent <= 0.5, ours, "0.3 %".into()))
            },
            remark: "",
        }],
    }
}
