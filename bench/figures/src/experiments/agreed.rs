//! P-4: latency against throughput of agreed multicast, in switches and on hosts (P4mCast, figure
//! 4).

use onepipe_sim_amcast::{LoadPoint, Orderer};

use crate::experiment::{Axis, Claim, Curve, Experiment, Measured, Role, Task, Verdict};
use crate::reference::Reference;
use crate::verdict::{Contradiction, Stated};
use crate::{Agreed, Values};

/// Offered load in thousands of messages per second.
const OFFERED: &[f64] = &[
    10.0, 50.0, 100.0, 200.0, 300.0, 400.0, 500.0, 600.0, 750.0, 1_000.0, 1_500.0, 2_000.0,
    3_000.0, 4_000.0,
];

/// Time of a frame in the kernel, on transmission or reception: half of the time of a bare datagram
/// on this machine, 1.6 us (docs/results/benchmarks.md).
const KERNEL_FRAME_NS: u64 = 800;
/// CPU time of a process of 1Pipe's testbed for each message (`Calibration::PAPER`).
const MESSAGE_NS: u64 = 200;

/// CPU time of a message in the busiest thread of our own PrimCast over UDP, kernel included, with
/// messages of 150, 512, 1,024 and 1,500 bytes in one group (docs/results/benchmarks.md, "Agreed
/// multicast", other members).
const MEASURED_NS: [(u32, u64); 4] = [(150, 1_980), (512, 2_120), (1_024, 2_120), (1_500, 1_890)];
/// Entries of a message at a member that is not the primary: the message, the timestamps of both
/// others, and its own to both.
const ENTRIES: u64 = 5;

/// Fraction of an offered load that must be delivered so that the load counts as sustained.
const SUSTAINED: f64 = 0.97;

impl Agreed {
    /// Runs the load. Returns `throughput_kps` and, if the offered load is sustained, `latency_us`
    /// (the mean) and `p99_us`.
    pub(crate) fn run(self) -> Values {
        let orderer = match self {
            Self { is_in_switches: true, .. } => Orderer::Switches,
            Self { has_measured_costs: true, bytes, .. } => {
                let measured = MEASURED_NS.iter().find(|(of, _)| *of >= bytes);
                let message_ns = measured.unwrap_or(&MEASURED_NS[3]).1;
                Orderer::Hosts { frame_ns: 0, entry_ns: message_ns / ENTRIES }
            }
            Self { has_kernel, .. } => Orderer::Hosts {
                frame_ns: if has_kernel { KERNEL_FRAME_NS } else { 0 },
                entry_ns: MESSAGE_NS,
            },
        };
        let (packet_len, offered_per_s) = (self.bytes as usize, self.offered_per_s);
        let measured = LoadPoint { orderer, packet_len, offered_per_s }.run();
        let mut values: Values =
            [("throughput_kps".to_owned(), measured.delivered_per_s / 1e3)].into();
        if measured.delivered_per_s >= SUSTAINED * offered_per_s as f64 {
            values.insert("latency_us".to_owned(), measured.mean_ns / 1e3);
            values.insert("p99_us".to_owned(), measured.p99_ns as f64 / 1e3);
        }
        values
    }
}

/// What orders the messages, and what it costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Costs {
    /// Switches, which cost no CPU time.
    Switches,
    /// Hosts, with the costs of processes and of the kernel.
    Kernel,
    /// Hosts, with the costs of processes alone.
    NoKernel,
    /// Hosts, with the costs of our PrimCast over UDP.
    Measured,
}

/// Returns the run at an offered load in thousands of messages per second; `None` above what a link
/// of the poster's testbed carries.
fn task(orderer: Costs, bytes: u32, offered_kps: f64) -> Option<Task> {
    let offered_per_s = (offered_kps * 1e3) as u64;
    let packet_len = bytes as usize;
    let load = LoadPoint { orderer: Orderer::Switches, packet_len, offered_per_s };
    let agreed = Agreed {
        is_in_switches: orderer == Costs::Switches,
        has_kernel: orderer == Costs::Kernel,
        has_measured_costs: orderer == Costs::Measured,
        bytes,
        offered_per_s,
    };
    (offered_per_s <= load.line_rate_per_s()).then_some(Task::Agreed(agreed))
}

/// Returns the highest throughput that `curve` sustains, in thousands per second, and its latency
/// there in us.
fn max_sustained(measured: &Measured, curve: &str) -> Option<(f64, f64)> {
    let points = measured.curves.get(curve)?;
    let sustained = points.iter().filter_map(|(_, values)| {
        Some((*values.get("throughput_kps")?, *values.get("latency_us")?))
    });
    sustained.max_by(|one, other| one.0.total_cmp(&other.0))
}

/// Verifies that our highest sustained throughput is at least ten times the rival's.
fn times(measured: &Measured, ours: &str, rival: &str, paper: &str) -> Option<Verdict> {
    let (ours, rival) = (max_sustained(measured, ours)?, max_sustained(measured, rival)?);
    let times = ours.0 / rival.0;
    let ours = format!(
        "{times:.1} times: {:.0} k/s at {:.1} us, and {:.0} k/s at {:.1} us",
        ours.0, ours.1, rival.0, rival.1
    );
    Some(Verdict::new(times >= 10.0, ours, paper.into()))
}

const IDEAL: &str = "ours is limited by the injector's 10 Gbit/s, and at 150 B by the replica's \
                     card, to which three members send each message; the rival by one core. With \
                     packets of 1500 B the injector sends 798 k/s, so ten times needs a rival of \
                     80 k/s, and our own PrimCast does more (docs/results/benchmarks.md)";

const NOTHING_WAITS: &str = "no message waits for a later one here, so the latency of an idle fabric \
                             is already the lowest";

/// The poster's introduction gives the rival at least 10 ms, and itself less than 0.1 ms.
const REDUCTION: Contradiction = Contradiction::Differ(
    Stated { value: 12.0, text: "12 us less than PrimCast (section III)" },
    Stated {
        value: 9_900.0,
        text: "9.9 ms less at least: PrimCast \"remains in the scale of tens to hundreds of \
               milliseconds\", P4mCast takes \"tens of microseconds\" (section I)",
    },
);

macro_rules! curves {
    ($(($name:literal, $orderer:expr, $bytes:literal, $remark:expr),)*) => {
        vec![$(Curve {
            name: $name,
            column: None,
            role: Role::Predicted,
            remark: $remark,
            task: |offered_kps| task($orderer, $bytes, offered_kps),
        },)*]
    };
}

/// Figure P-4.
pub fn throughput_and_latency() -> Experiment {
    Experiment {
        id: "P-4",
        title: "Agreed multicast: latency against throughput, one group of three (P4mCast)",
        headline: "ten times PrimCast's throughput, at tens of us; the poster gives no points",
        x: Axis { label: "thousands of messages a second", is_log: true },
        y: Axis { label: "us from request to delivery, mean", is_log: true },
        metric: "latency_us",
        curves: curves![
            ("switches, 150 B", Costs::Switches, 150, ""),
            ("switches, 512 B", Costs::Switches, 512, ""),
            ("switches, 1024 B", Costs::Switches, 1_024, ""),
            ("switches, 1500 B", Costs::Switches, 1_500, ""),
            ("PrimCast, 150 B", Costs::Kernel, 150, ""),
            ("PrimCast, 512 B", Costs::Kernel, 512, ""),
            ("PrimCast, 1024 B", Costs::Kernel, 1_024, ""),
            ("PrimCast, 1500 B", Costs::Kernel, 1_500, ""),
            ("PrimCast, measured costs, 150 B", Costs::Measured, 150, ""),
            ("PrimCast, measured costs, 512 B", Costs::Measured, 512, ""),
            ("PrimCast, measured costs, 1024 B", Costs::Measured, 1_024, ""),
            ("PrimCast, measured costs, 1500 B", Costs::Measured, 1_500, ""),
            ("PrimCast without kernel, 150 B", Costs::NoKernel, 150, ""),
            ("PrimCast without kernel, 1500 B", Costs::NoKernel, 1_500, ""),
        ],
        xs: OFFERED,
        xs_quick: &[10.0, 200.0, 750.0, 3_000.0],
        reference: Reference::new(""),
        claims: vec![
            Claim {
                text: "ten times the rival's throughput with packets of 150 B (the rival with the costs \
                       of our own PrimCast on this machine)",
                verify: |measured| {
                    let paper = "\"one order of magnitude higher\"";
                    times(measured, "switches, 150 B", "PrimCast, measured costs, 150 B", paper)
                },
                remark: IDEAL,
            },
            Claim {
                text: "ten times the rival's throughput with packets of 1500 B (likewise)",
                verify: |measured| {
                    let paper = "\"one order of magnitude higher\"";
                    times(measured, "switches, 1500 B", "PrimCast, measured costs, 1500 B", paper)
                },
                remark: IDEAL,
            },
            Claim {
                text: "tens of us at most, at every size and sustained load",
                verify: |measured| {
                    let ours =
                        measured.curves.iter().filter(|(name, _)| name.starts_with("switches"));
                    let values = ours.flat_map(|(_, points)| points);
                    let all = values.filter_map(|(_, values)| values.get("p99_us").copied());
                    let most = all.reduce(f64::max)?;
                    let ours = format!("99 % within {most:.1} us");
                    Some(Verdict::new(most < 100.0, ours, "tens of us".into()))
                },
                remark: "",
            },
            Claim {
                text: "the higher the throughput, the lower the latency (figure 4): at the highest \
                       load that is sustained 150 B take less than at the lowest",
                verify: |measured| {
                    let curve = "switches, 150 B";
                    let lowest = measured.at(curve, 10.0)?;
                    let (kps, highest) = max_sustained(measured, curve)?;
                    let ours = format!("{lowest:.2} us at 10 k/s, {highest:.2} at {kps:.0} k/s");
                    Some(Verdict::new(highest < lowest, ours, "latency falls".into()))
                },
                remark: NOTHING_WAITS,
            },
            Claim {
                text: "a request of 1500 B is delivered 12 us earlier than by the rival, at the \
                       highest load that the rival sustains",
                verify: |measured| {
                    let (kps, rival_us) = max_sustained(measured, "PrimCast, 1500 B")?;
                    let points = measured.curves.get("switches, 1500 B")?.iter();
                    let points = points.filter(|(x, _)| *x <= 1.05 * kps);
                    let ours_us =
                        points.filter_map(|(_, values)| values.get("latency_us")).next_back()?;
                    let less_us = rival_us - ours_us;
                    let ours = format!(
                        "{less_us:.1} us: {ours_us:.1} and {rival_us:.1} us at {kps:.0} k/s"
                    );
                    let paper = "\"a major latency reduction of 12 microseconds\"".into();
                    let verdict = Verdict::new(less_us >= 12.0, ours, paper);
                    Some(verdict.or_contradiction(REDUCTION))
                },
                remark: "the poster does not give the load; the rival's own queues grow when it is \
                         nearly saturated",
            },
        ],
    }
}
