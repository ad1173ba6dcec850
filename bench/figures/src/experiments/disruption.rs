//! RDMC section 4.6: a member fails, and the others learn of it.

use crate::Disruption;
use crate::experiment::{Axis, Claim, Curve, Experiment, Measured, Role, Task, Verdict};
use crate::reference::Reference;

const CRASH: &str = "the root, a relay or the last member crashes";
/// Number of moments at which a member crashes.
const MOMENTS: u32 = 12;

/// Returns the sum of a value over all sizes of groups.
fn sum(measured: &Measured, name: &str) -> Option<f64> {
    let points = measured.curves.get(CRASH)?;
    points.iter().map(|(_, values)| values.get(name).copied()).sum()
}

/// Figure R-fail.
pub fn disruption() -> Experiment {
    Experiment {
        id: "R-fail",
        title: "A member crashes during or after a transfer (RDMC section 4.6)",
        headline: "all members sense a disruption; a group that closes successfully has delivered \
                   everything to all",
        x: Axis { label: "members, the root among them", is_log: true },
        y: Axis { label: "% of the survivors that learn how it ended", is_log: false },
        metric: "aware_percent",
        curves: vec![Curve {
            name: CRASH,
            column: None,
            role: Role::Predicted,
            remark: "",
            task: |members| {
                let members = members as u32;
                Some(Task::Disruption(Disruption { members, moments: MOMENTS }))
            },
        }],
        xs: &[3.0, 4.0, 8.0, 16.0],
        xs_quick: &[4.0],
        reference: Reference::new(""),
        claims: vec![
            Claim {
                text: "every survivor learns that its group was disrupted, or that it was complete",
                verify: |measured| {
                    let points = measured.curves.get(CRASH)?.iter();
                    let least = points.filter_map(|(_, values)| values.get("aware_percent"));
                    let least = least.copied().reduce(f64::min)?;
                    let failed = sum(measured, "failed")?;
                    let ours = format!("{least:.0} %; {failed:.0} reports of a failure");
                    let holds = least == 100.0 && failed > 0.0;
                    Some(Verdict::new(holds, ours, "all members, by its argument".into()))
                },
                remark: "",
            },
            Claim {
                text: "if a group closes successfully, every object has reached every member",
                verify: |measured| {
                    let (closed, wrong) = (sum(measured, "closed")?, sum(measured, "wrong")?);
                    let ours = format!("{wrong:.0} of {closed:.0} members that close lack one");
                    let holds = wrong == 0.0 && closed > 0.0;
                    Some(Verdict::new(holds, ours, "always, by its argument".into()))
                },
                remark: "",
            },
        ],
    }
}
