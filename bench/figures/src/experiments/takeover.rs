//! Fastpass section 5.1: an arbiter fails, and a secondary takes over.

use crate::experiment::{Axis, Claim, Curve, Experiment, Measured, Role, Task, Verdict};
use crate::reference::Reference;
use crate::{PrimaryFault, Takeover};

const DIES: &str = "the primary dies";
const LOSSY: &str = "it is hardly heard for 3 ms";
const LOADS: &[f64] = &[0.1, 0.3, 0.5, 0.7, 0.9];
/// Number of trials of a point; the primary fails at another time in each.
const TRIALS: u32 = 10;

fn task(fault: PrimaryFault, load: f64) -> Option<Task> {
    let load_permille = (load * 1e3).round() as u32;
    Some(Task::Takeover(Takeover { fault, load_permille, trials: TRIALS }))
}

fn curve(name: &'static str, task: fn(f64) -> Option<Task>) -> Curve {
    Curve { name, column: None, role: Role::Predicted, remark: "", task }
}

/// Returns the sum of a value over both curves.
fn sum_of_both(measured: &Measured, name: &str) -> Option<f64> {
    let curves = [DIES, LOSSY].map(|curve| {
        let points = measured.curves.get(curve)?;
        points.iter().map(|(_, values)| values.get(name).copied()).sum::<Option<f64>>()
    });
    curves.into_iter().sum()
}

/// Figure F-I.
pub fn takeover() -> Experiment {
    Experiment {
        id: "F-I",
        title: "A rack whose arbiter dies (Fastpass)",
        headline: "a secondary takes over after 1 ms, and shares no state; no measurement",
        x: Axis { label: "load, part of what the endpoints can send", is_log: false },
        y: Axis { label: "us without a packet in any timeslot, median of ten", is_log: false },
        metric: "pause_us",
        curves: vec![
            curve(DIES, |load| task(PrimaryFault::Crash, load)),
            curve(LOSSY, |load| task(PrimaryFault::LossyLink, load)),
        ],
        xs: LOADS,
        xs_quick: &[0.5],
        reference: Reference::new(""),
        claims: vec![
            Claim {
                text: "no timeslot is granted twice, to a sender or to a receiver, by one arbiter \
                       or by two, whether the primary has failed or most of its packets are lost",
                verify: |measured| {
                    let contradictions = sum_of_both(measured, "contradictions")?;
                    let granted = sum_of_both(measured, "granted")?;
                    let ours = format!("{contradictions:.0} of {granted:.0} grants");
                    let holds = contradictions == 0.0 && granted > 0.0;
                    Some(Verdict::new(holds, ours, "none, by its argument".into()))
                },
                remark: "",
            },
            Claim {
                text: "within 1.5 ms of the last timeslot of a failed arbiter there are timeslots of \
                       another one (1 ms until the failure is detected)",
                verify: |measured| {
                    let points = measured.curves.get(DIES)?;
                    let pauses =
                        points.iter().map(|(_, values)| values.get("pause_max_us").copied());
                    let longest =
                        pauses.collect::<Option<Vec<_>>>()?.into_iter().reduce(f64::max)?;
                    let ours = format!("{longest:.0} us at the most");
                    let paper = "not measured".into();
                    Some(Verdict::new(longest <= 1_500.0, ours, paper))
                },
                remark: "",
            },
        ],
    }
}
