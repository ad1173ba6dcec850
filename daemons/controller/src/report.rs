//! A controller's status, as served by its daemon and read by `onepipe status`.

use std::collections::BTreeMap;

use onepipe_base::{Address, Cause, Instance};
use onepipe_controller::{FailedInstance, FrozenStatus, MemberState, MemberStatus, Status};
use serde::{Deserialize, Serialize};

use crate::counters::counters;

/// The state of a replica at one moment. All times are in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The replica.
    pub replica: u32,
    /// Its incarnation.
    pub incarnation: u32,
    /// Its epoch, if it is active.
    pub epoch: Option<u32>,
    /// How it is attached.
    pub attachment: String,
    /// Time since its start, in seconds.
    pub uptime_s: f64,
    /// Its store.
    pub store: StoreReport,
    /// The switches and processes that it is attached to.
    pub attachments: Vec<String>,
    /// All nodes that it knows.
    pub members: Vec<MemberReport>,
    /// The last promises on its links.
    pub barriers: Vec<BarrierReport>,
    /// Failures and leaves whose recovery is not complete.
    pub open: Vec<FailureReport>,
    /// All failures of processes ever decided, oldest first.
    pub failures: Vec<FailureReport>,
    /// All graceful leaves of processes, oldest first.
    pub leaves: Vec<FailureReport>,
    /// Frozen links.
    pub frozen: Vec<FrozenReport>,
    /// Counters by name.
    pub counters: BTreeMap<String, u64>,
}

/// The state of a store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoreReport {
    /// Whether its last call succeeded. While it does not, recovery waits; messages do not.
    pub is_available: bool,
    /// Its last error.
    pub error: Option<String>,
    /// Time since `is_available` changed, in seconds.
    pub since_s: f64,
    /// Failed calls since the start.
    pub failures: u64,
    /// Records that wait to be written.
    pub records_waiting: usize,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberReport {
    /// `process 3` or `switch 1`.
    pub name: String,
    /// Its incarnation.
    pub incarnation: u32,
    /// `joining`, `up`, `suspected`, `failed` or `left`.
    pub state: String,
    /// Number of its links that are up.
    pub links_up: usize,
}

/// The promises on one link of a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BarrierReport {
    /// The port.
    pub port: u16,
    /// Lower bound of the timestamps of all messages that follow on this link.
    pub barrier_ns: u64,
    /// Lower bound of the timestamps of all scatterings that commit later.
    pub commit_ns: u64,
    /// Time since the promises arrived.
    pub age_ns: u64,
}

/// One instance that has failed or left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureReport {
    /// `process 3` or `switch 1`.
    pub name: String,
    /// Its incarnation.
    pub incarnation: u32,
    /// Nothing that it scattered at or above this is delivered.
    pub failed_at_ns: u64,
    /// Whether every register that determines this was reported.
    pub is_exact: bool,
    /// Why it has failed: `left` if it left gracefully.
    pub cause: String,
}

/// A frozen link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrozenReport {
    /// Its owner.
    pub owner: String,
    /// Number that the owner gave to this failure of the link.
    pub number: u32,
    /// The peer at its other end, as far as known.
    pub peer: Option<String>,
    /// The last commit promised on it.
    pub commit_ns: u64,
}

impl Report {
    /// Builds the report from the state of the machine; the daemon adds the rest.
    pub(crate) fn new(status: &Status) -> Self {
        let is_leave = |failed: &&FailedInstance| failed.cause == Cause::Left;
        let (leaves, failures): (Vec<&FailedInstance>, Vec<&FailedInstance>) =
            status.failures.iter().partition(is_leave);
        Self {
            replica: status.replica.0,
            incarnation: 0,
            epoch: status.active.map(|epoch| epoch.0),
            attachment: String::new(),
            uptime_s: 0.0,
            store: StoreReport {
                is_available: status.is_store_available,
                error: None,
                since_s: 0.0,
                failures: 0,
                records_waiting: status.records_waiting,
            },
            attachments: status.attachments.iter().copied().map(name_with_incarnation).collect(),
            members: status.members.iter().map(MemberReport::from).collect(),
            barriers: Vec::new(),
            open: status.open.iter().map(FailureReport::from).collect(),
            failures: failures.into_iter().map(FailureReport::from).collect(),
            leaves: leaves.into_iter().map(FailureReport::from).collect(),
            frozen: status.frozen.iter().map(FrozenReport::from).collect(),
            counters: counters(&status.stats),
        }
    }
}

impl From<&MemberStatus> for MemberReport {
    fn from(member: &MemberStatus) -> Self {
        let state = match member.state {
            MemberState::Joining => "joining",
            MemberState::Up => "up",
            MemberState::Suspected => "suspected",
            MemberState::Failed => "failed",
            MemberState::Left => "left",
        };
        Self {
            name: name(member.instance.address),
            incarnation: member.instance.incarnation.0,
            state: state.to_owned(),
            links_up: member.links_up,
        }
    }
}

impl From<&FailedInstance> for FailureReport {
    fn from(failed: &FailedInstance) -> Self {
        Self {
            name: name(failed.instance.address),
            incarnation: failed.instance.incarnation.0,
            failed_at_ns: failed.at.as_ns(),
            is_exact: failed.is_exact,
            cause: failed.cause.to_string(),
        }
    }
}

impl From<&FrozenStatus> for FrozenReport {
    fn from(frozen: &FrozenStatus) -> Self {
        Self {
            owner: name_with_incarnation(frozen.link.owner),
            number: frozen.link.number,
            peer: frozen.peer.map(name_with_incarnation),
            commit_ns: frozen.commit.as_ns(),
        }
    }
}

/// Formats `process 3` or `switch 1`.
pub(crate) fn name(address: Address) -> String {
    match address {
        Address::Process(process) => format!("process {}", process.0),
        Address::Switch(switch) => format!("switch {}", switch.0),
    }
}

/// Formats `process 3 incarnation 1`.
pub(crate) fn name_with_incarnation(instance: Instance) -> String {
    format!("{} incarnation {}", name(instance.address), instance.incarnation.0)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use onepipe_base::{Incarnation, ProcessId, SwitchId, Timestamp};
    use onepipe_controller::{Epoch, Stats};
    use onepipe_wire::Resolved;

    /// A fabric in which process 3 has failed while the store is unavailable.
    pub(crate) fn report() -> Report {
        let instance =
            |address, incarnation| Instance { address, incarnation: Incarnation(incarnation) };
        let (switch, failed) = (
            instance(Address::Switch(SwitchId(1)), 9),
            instance(Address::Process(ProcessId(3)), 5),
        );
        let at = Timestamp::from_ns(1_700);
        let member = |instance, state, links_up| MemberStatus { instance, state, links_up };
        let cause = Cause::TimedOut;
        let failure = FailedInstance { instance: failed, at, is_exact: true, cause };
        let status = Status {
            replica: ProcessId(63),
            active: Some(Epoch(4)),
            is_store_available: false,
            records_waiting: 2,
            attachments: vec![switch],
            members: vec![
                member(failed, MemberState::Failed, 0),
                member(switch, MemberState::Up, 2),
            ],
            open: vec![failure],
            failures: vec![failure, FailedInstance { cause: Cause::Left, ..failure }],
            frozen: vec![FrozenStatus {
                link: Resolved { owner: switch, number: 1 },
                peer: Some(failed),
                commit: at,
            }],
            stats: Stats { frames_taken: 17, ..Stats::default() },
        };
        let mut report = Report::new(&status);
        report.store.failures = 3;
        report.counters.insert(crate::metrics::PAUSE_MAX.to_owned(), 412_000_000);
        report
    }

    #[test]
    fn report_matches_status_and_round_trips_json() {
        let report = report();
        assert_eq!(report.attachments, ["switch 1 incarnation 9"]);
        let states: Vec<&str> = report.members.iter().map(|it| it.state.as_str()).collect();
        assert_eq!(states, ["failed", "up"]);
        assert_eq!(
            (report.failures[0].name.as_str(), report.open[0].failed_at_ns),
            ("process 3", 1_700)
        );
        let causes = |list: &[FailureReport]| -> Vec<String> {
            list.iter().map(|failure| failure.cause.clone()).collect()
        };
        assert_eq!(
            (causes(&report.failures), causes(&report.leaves)),
            (vec!["timed out".to_owned()], vec!["left".to_owned()],)
        );
        let (owner, peer) = (report.frozen[0].owner.as_str(), report.frozen[0].peer.as_deref());
        assert_eq!((owner, peer), ("switch 1 incarnation 9", Some("process 3 incarnation 5")));
        let text = serde_json::to_string(&report).expect("it is plain data");
        assert_eq!(serde_json::from_str::<Report>(&text).expect("its own text"), report);
    }
}
