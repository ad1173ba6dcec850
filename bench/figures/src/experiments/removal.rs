//! The failure of 1Pipe section 7.3: the link of a host with a replica is cut under TPC-C.
//!
//! There is one process on each of 31 hosts, 12 with replicas and 19 with clients; the controller
//! is on the last one. A link times out after ten beacon intervals. The controller spends as much
//! CPU time on each process that it contacts as in figure 10; its decision takes none.

use crate::ReplicaRemoval;
use crate::experiment::{Axis, Claim, Curve, Experiment, Measured, Role, Task, Verdict};
use crate::reference::Reference;
use crate::verdict::Better;

const ONE_BY_ONE: &str = "notified one by one";
const FLOODED: &str = "flooded";
const WHOLE: &str = "flooded, tables as large as specified";
const CATCH_UP: &str = "\
     the time until the process joins again is included; to encode and to load the state takes no \
     time in the simulation";
/// Number of trials of a point, and of one with all items and customers.
const TRIALS: u32 = 12;
const WHOLE_TRIALS: u32 = 3;

fn task(is_flooded: bool, in_flight: f64) -> Option<Task> {
    let in_flight = in_flight as u32;
    let (divisor, trials) = (100, TRIALS);
    Some(Task::ReplicaRemoval(ReplicaRemoval { is_flooded, in_flight, divisor, trials }))
}

/// Returns a run with all items and customers, with one transaction in flight.
fn whole(in_flight: f64) -> Option<Task> {
    let (is_flooded, divisor, trials) = (true, 1, WHOLE_TRIALS);
    let in_flight = in_flight as u32;
    let run = ReplicaRemoval { is_flooded, in_flight, divisor, trials };
    (in_flight == 1).then_some(Task::ReplicaRemoval(run))
}

fn curve(name: &'static str, task: fn(f64) -> Option<Task>) -> Curve {
    Curve { name, column: None, role: Role::Predicted, remark: "", task }
}

/// Returns a mean and its standard deviation, with one transaction in flight.
fn mean_of(measured: &Measured, curve: &str, name: &str) -> Option<(f64, f64)> {
    let deviation = format!("{}_sd_us", name.trim_end_matches("_us"));
    Some((measured.other(curve, 1.0, name)?, measured.other(curve, 1.0, &deviation)?))
}

/// Verifies that both curves stay below a limit in us.
fn is_below(measured: &Measured, name: &str, limit_us: f64, paper: &str) -> Option<Verdict> {
    let (each, each_deviation) = mean_of(measured, ONE_BY_ONE, name)?;
    let (flooded, flooded_deviation) = mean_of(measured, FLOODED, name)?;
    let ours = format!(
        "{each:.0} +- {each_deviation:.0} us one by one, {flooded:.0} +- {flooded_deviation:.0} \
         flooded"
    );
    Some(Verdict::new(each.max(flooded) < limit_us, ours, paper.into()))
}

/// The failure times of figure 15.
pub fn removal() -> Experiment {
    Experiment {
        id: "15-removal",
        title: "TPC-C when a host with a replica is cut off",
        headline: "the replica is removed in 181 +- 21 us, and transactions are retried with 308 \
                   +- 122 us more",
        x: Axis { label: "transactions in flight of a client", is_log: false },
        y: Axis { label: "us until all clients have removed the replica, mean", is_log: false },
        metric: "removed_us",
        curves: vec![
            curve(ONE_BY_ONE, |in_flight| task(false, in_flight)),
            curve(FLOODED, |in_flight| task(true, in_flight)),
            curve(WHOLE, whole),
        ],
        xs: &[1.0, 4.0],
        xs_quick: &[1.0],
        reference: Reference::new(""),
        claims: vec![
            Claim {
                text: "a replica whose link is cut is removed by all clients within 250 us",
                verify: |measured| is_below(measured, "removed_us", 250.0, "181 +- 21 us"),
                remark: "",
            },
            Claim {
                text: "its removal takes 181 us if the controller notifies all one by one (within \
                       25 %)",
                verify: |measured| {
                    let (us, deviation) = mean_of(measured, ONE_BY_ONE, "removed_us")?;
                    let ours = format!("{us:.0} +- {deviation:.0} us");
                    let (expected, paper) = (0.75 * 181.0..=1.25 * 181.0, "181 +- 21 us".into());
                    Some(Verdict::in_range(us, expected, Better::Lower, ours, paper))
                },
                remark: "",
            },
            Claim {
                text: "the transactions in flight to it are retried with less than 450 us more",
                verify: |measured| is_below(measured, "retried_us", 450.0, "308 +- 122 us more"),
                remark: "",
            },
            Claim {
                text: "after the repair of its link the replica has caught up within 25 ms",
                verify: |measured| {
                    let (us, deviation) = mean_of(measured, WHOLE, "caught_up_us")?;
                    let bytes = measured.other(WHOLE, 1.0, "image_bytes")?;
                    let ours = format!(
                        "{:.1} +- {:.1} ms, with the whole state of {:.1} MB",
                        us / 1e3,
                        deviation / 1e3,
                        bytes / 1e6
                    );
                    let paper = "25 ms, for the log alone".into();
                    Some(Verdict::new(us < 25_000.0, ours, paper))
                },
                remark: CATCH_UP,
            },
        ],
    }
}
