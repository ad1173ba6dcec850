//! Fastpass section 5.2: a link drops packets unnoticed, until reports of endpoints isolate it.

use crate::Isolation;
use crate::experiment::{Axis, Claim, Curve, Experiment, Role, Task, Verdict};
use crate::reference::Reference;

const LINK: &str = "a link from a rack to a spine";
/// Number of trials of a point.
const TRIALS: u32 = 10;

/// Figure F-J.
pub fn isolation() -> Experiment {
    Experiment {
        id: "F-J",
        title: "A link that drops packets, until it is avoided (Fastpass)",
        headline: "\"on the order of milliseconds\", by its argument; no measurement",
        x: Axis { label: "% of the packets that the link drops", is_log: true },
        y: Axis { label: "us until the last packet on it, median of ten", is_log: true },
        metric: "avoided_us",
        curves: vec![Curve {
            name: LINK,
            column: None,
            role: Role::Predicted,
            remark: "",
            task: |percent| {
                let lost_ppm = (percent * 1e4) as u32;
                Some(Task::Isolation(Isolation { lost_ppm, trials: TRIALS }))
            },
        }],
        xs: &[10.0, 30.0, 50.0, 100.0],
        xs_quick: &[100.0],
        reference: Reference::new(""),
        claims: vec![Claim {
            text: "a link that drops everything is found and avoided within milliseconds (here: less \
                   than 5 ms, in all trials)",
            verify: |measured| {
                let longest = measured.other(LINK, 100.0, "avoided_max_us")?;
                let median = measured.at(LINK, 100.0)?;
                let ours = format!("{median:.0} us in the median, {longest:.0} at the most");
                let paper = "\"on the order of milliseconds\"".into();
                Some(Verdict::new(longest < 5_000.0, ours, paper))
            },
            remark: "",
        }],
    }
}
