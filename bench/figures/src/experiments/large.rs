//! Beyond the papers: large payloads in the total order, their effect on other messages, and the
//! size from which bulk multicast pays off.

use crate::env::Large;
use crate::experiment::{Axis, Claim, Curve, Experiment, Measured, Role, Task, Verdict};
use crate::reference::Reference;

const KIB: f64 = 1_024.0;
const MIB: f64 = 1_048_576.0;
const SIZES: &[f64] = &[65_536.0, 262_144.0, 1_048_576.0, 4_194_304.0];
const CROSSING: &[f64] =
    &[2_048.0, 4_096.0, 8_192.0, 16_384.0, 32_768.0, 65_536.0, 131_072.0, 262_144.0, 1_048_576.0];
/// Payloads from this size on use bulk multicast: `onepipe_large::Config::large_len`.
const THRESHOLD: f64 = 65_536.0;

fn curve(name: &'static str, task: fn(f64) -> Option<Task>) -> Curve {
    Curve { name, column: None, role: Role::Predicted, remark: "", task }
}

/// A payload to seven receivers, beside small messages; its size is that of the point.
const BESIDE: Large = Large {
    bytes: 0,
    receivers: 7,
    is_bulk: true,
    is_reliable: false,
    has_classes: true,
    has_small_messages: true,
};

fn beside_of(bytes: f64, large: Large) -> Option<Task> {
    Some(Task::Large(Large { bytes: bytes as u64, ..large }))
}

/// A reliable payload, alone on the fabric.
fn run(bytes: f64, receivers: u32, is_bulk: bool) -> Option<Task> {
    beside_of(
        bytes,
        Large { receivers, is_bulk, is_reliable: true, has_small_messages: false, ..BESIDE },
    )
}

/// Figure: what a large payload adds to other messages.
pub fn beside() -> Experiment {
    const BULK: &str = "by bulk";
    const RELIABLE: &str = "by bulk, reliable";
    const MESSAGE: &str = "as a message, reliable";
    Experiment {
        id: "large",
        title: "What a payload to 7 receivers adds to small messages of 31 processes meanwhile",
        headline: "a message of 1 MB adds 80 us to all others (1Pipe)",
        x: Axis { label: "bytes of the payload", is_log: true },
        y: Axis { label: "us more, mean", is_log: false },
        metric: "more_us",
        curves: vec![
            curve(BULK, |bytes| beside_of(bytes, BESIDE)),
            curve(RELIABLE, |bytes| beside_of(bytes, Large { is_reliable: true, ..BESIDE })),
            curve("by bulk, one class in switches", |bytes| {
                beside_of(bytes, Large { has_classes: false, ..BESIDE })
            }),
            curve(MESSAGE, |bytes| {
                let large = Large { is_bulk: false, is_reliable: true, ..BESIDE };
                (bytes <= MIB).then(|| beside_of(bytes, large))?
            }),
        ],
        xs: SIZES,
        xs_quick: &[MIB],
        reference: Reference::new(""),
        claims: vec![
            Claim {
                text: "1 MiB in the order adds less than 2 us to the mean of other messages, best effort",
                verify: |measured| added(measured, BULK),
                remark: "",
            },
            Claim {
                text: "1 MiB in the order adds less than 2 us to the mean of other messages, \
                       reliable",
                verify: |measured| added(measured, RELIABLE),
                remark: "",
            },
            Claim {
                text: "1 MiB as a message adds at least 80 us to the mean of other messages",
                verify: |measured| {
                    let more = measured.at(MESSAGE, MIB)?;
                    let ours = format!("{more:.0} us, to each of 7 receivers its own copy");
                    Some(Verdict::new(more >= 80.0, ours, "80 us".into()))
                },
                remark: "",
            },
        ],
    }
}

/// Verifies that a payload of 1 MiB adds less than 2 us to other messages.
fn added(measured: &Measured, curve: &str) -> Option<Verdict> {
    let more = measured.at(curve, MIB)?;
    let of = |name| measured.other(curve, MIB, name);
    let (beside, took) = (of("beside_us")?, of("took_us")?);
    let ours = format!("{more:.2} us more, {beside:.2} us; the payload takes {took:.0} us");
    Some(Verdict::new(more < 2.0, ours, "80 us".into()))
}

/// Returns the smallest size from which bulk multicast is always at least as fast as messages.
fn crossing(measured: &Measured, bulk: &str, message: &str) -> Option<f64> {
    let is_faster = |x: &f64| Some(measured.at(bulk, *x)? <= measured.at(message, *x)?);
    let mut from = None;
    for x in CROSSING.iter().rev() {
        match is_faster(x)? {
            true => from = Some(*x),
            false => break,
        }
    }
    from
}

/// Figure: the size from which bulk multicast is faster.
pub fn crossover() -> Experiment {
    const PAIRS: [(u32, &str, &str); 4] = [
        (1, "1 receiver, by bulk", "1 receiver, as a message"),
        (3, "3 receivers, by bulk", "3 receivers, as a message"),
        (7, "7 receivers, by bulk", "7 receivers, as a message"),
        (30, "30 receivers, by bulk", "30 receivers, as a message"),
    ];
    Experiment {
        id: "large-from",
        title: "How long a reliable payload takes until all its receivers have delivered it",
        headline: "small messages by other means are up to 5 times faster, for groups up to 16 and \
                   10 KB (RDMC section 4.6)",
        x: Axis { label: "bytes of the payload", is_log: true },
        y: Axis { label: "us", is_log: true },
        metric: "took_us",
        curves: vec![
            curve(PAIRS[0].1, |bytes| run(bytes, 1, true)),
            curve(PAIRS[0].2, |bytes| run(bytes, 1, false)),
            curve(PAIRS[1].1, |bytes| run(bytes, 3, true)),
            curve(PAIRS[1].2, |bytes| run(bytes, 3, false)),
            curve(PAIRS[2].1, |bytes| run(bytes, 7, true)),
            curve(PAIRS[2].2, |bytes| run(bytes, 7, false)),
            curve(PAIRS[3].1, |bytes| run(bytes, 30, true)),
            curve(PAIRS[3].2, |bytes| run(bytes, 30, false)),
        ],
        xs: CROSSING,
        xs_quick: &[8_192.0, 1_048_576.0],
        reference: Reference::new(""),
        claims: vec![
            Claim {
                text: "messages are faster below some size and bulk multicast above it, and the \
                       size decreases with the number of receivers",
                verify: |measured| {
                    let from = PAIRS.map(|(_, bulk, message)| crossing(measured, bulk, message));
                    measured.at(PAIRS[0].1, CROSSING[0])?;
                    let kib = from.map(|from| match from {
                        Some(bytes) => format!("{}", bytes / KIB),
                        None => "none".to_owned(),
                    });
                    let ours = format!(
                        "from {}, {}, {} and {} KiB on with 1, 3, 7 and 30 receivers",
                        kib[0], kib[1], kib[2], kib[3]
                    );
                    let sizes = from.map(|from| from.unwrap_or(f64::INFINITY));
                    let holds = sizes.is_sorted_by(|one, other| one >= other)
                        && sizes[3].is_finite()
                        && sizes[3] > CROSSING[0];
                    let paper = "10 KB up to 16 members".into();
                    Some(Verdict::new(holds, ours, paper))
                },
                remark: "",
            },
            Claim {
                text: "at the threshold, 64 KiB, to 7 receivers neither is twice as fast as the \
                       other",
                verify: |measured| {
                    let (_, bulk, message) = PAIRS[2];
                    let (bulk, message) =
                        (measured.at(bulk, THRESHOLD)?, measured.at(message, THRESHOLD)?);
                    let ours = format!("{bulk:.0} us by bulk, {message:.0} as messages");
                    let holds = bulk <= 2.0 * message && message <= 2.0 * bulk;
                    Some(Verdict::new(holds, ours, "no threshold".into()))
                },
                remark: "",
            },
        ],
    }
}
