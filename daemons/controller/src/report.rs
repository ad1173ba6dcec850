//! A controller's status, as its daemon answers it and `onepipe status` reads it.

use std::collections::BTreeMap;

use onepipe_base::{Address, Instance};
use onepipe_controller::{FailedInstance, FrozenStatus, MemberState, MemberStatus, Status};
use serde::{Deserialize, Serialize};

use crate::counters::counters;

/// Everything that a replica knows at one moment. All times in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Which replica says so.
    pub replica: u32,
    /// Its incarnation.
    pub incarnation: u32,
    /// Its epoch, if it is active.
    pub epoch: Option<u32>,
    /// Where it sits.
    pub attachment: String,
    /// How long it has been running, in seconds.
    pub uptime_s: f64,
    /// Its store.
    pub store: StoreReport,
    /// The switches and processes that it is attached to.
    pub attachments: Vec<String>,
    /// All nodes that it knows of.
    pub members: Vec<MemberReport>,
    /// What the links of this replica promised last.
    pub barriers: Vec<BarrierReport>,
    /// Failures whose recovery is not finished.
    pub open: Vec<FailureReport>,
    /// All failures of processes ever decided, oldest first.
    pub failures: Vec<FailureReport>,
    /// Links that hold commits.
    pub frozen: Vec<FrozenReport>,
    /// Counters, by their names.
    pub counters: BTreeMap<String, u64>,
}

/// How a store is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoreReport {
    /// Whether it has answered the last time. While it does not, recovery waits; messages do not.
    pub is_available: bool,
    /// What is wrong with it.
    pub error: Option<String>,
    /// For how long it has been so, in seconds.
    pub since_s: f64,
    /// Calls that it has not done, since the start.
    pub failures: u64,
    /// Records that wait for it.
    pub records_waiting: usize,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberReport {
    /// `process 3` or `switch 1`.
    pub name: String,
    /// Which life of it.
    pub incarnation: u32,
    /// `joining`, `up`, `suspected` or `failed`.
    pub state: String,
    /// How many of its links are up.
    pub links_up: usize,
}

/// What one link of a replica promises.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BarrierReport {
    /// The port.
    pub port: u16,
    /// Everything that follows there is at or above this.
    pub barrier_ns: u64,
    /// Every scattering that commits later is at or above this.
    pub commit_ns: u64,
    /// How long ago that was heard.
    pub age_ns: u64,
}

/// One life that has failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureReport {
    /// `process 3` or `switch 1`.
    pub name: String,
    /// Which life of it.
    pub incarnation: u32,
    /// Nothing that it scattered at or above this is delivered.
    pub failed_at_ns: u64,
    /// Whether every register that decides this was reported.
    pub is_exact: bool,
}

/// A link that holds commits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrozenReport {
    /// Whose.
    pub owner: String,
    /// The owner's number of its death.
    pub number: u32,
    /// Who was at its other end, as far as that is known.
    pub peer: Option<String>,
    /// The last commit promised on it.
    pub commit_ns: u64,
}

impl Report {
    /// What the machine knows. The rest is filled in by its world.
    pub(crate) fn new(status: &Status) -> Self {
        let failures =
            |instances: &[FailedInstance]| instances.iter().map(FailureReport::from).collect();
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
            open: failures(&status.open),
            failures: failures(&status.failures),
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

/// `process 3` or `switch 1`.
pub(crate) fn name(address: Address) -> String {
    match address {
        Address::Process(process) => format!("process {}", process.0),
        Address::Switch(switch) => format!("switch {}", switch.0),
    }
}

/// With its incarnation.
pub(crate) fn name_with_incarnation(instance: Instance) -> String {
    format!("{} life {}", name(instance.address), instance.incarnation.0)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use onepipe_base::{Incarnation, ProcessId, SwitchId, Timestamp};
    use onepipe_controller::{Epoch, Stats};
    use onepipe_wire::Resolved;

    /// A fabric in which process 3 has failed while the store is down.
    pub(crate) fn report() -> Report {
        let instance =
            |address, incarnation| Instance { address, incarnation: Incarnation(incarnation) };
        let (switch, failed) = (
            instance(Address::Switch(SwitchId(1)), 9),
            instance(Address::Process(ProcessId(3)), 5),
        );
        let at = Timestamp::from_ns(1_700);
        let member = |instance, state, links_up| MemberStatus { instance, state, links_up };
        let failure = FailedInstance { instance: failed, at, is_exact: true };
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
            failures: vec![failure],
            frozen: vec![FrozenStatus {
                link: Resolved { owner: switch, number: 1 },
                peer: Some(failed),
                commit: at,
            }],
            stats: Stats { frames_taken: 17, ..Stats::default() },
        };
        let mut report = Report::new(&status);
        report.store.failures = 3;
        report
    }

    #[test]
    fn report_matches_status_and_round_trips_json() {
        let report = report();
        assert_eq!(report.attachments, ["switch 1 life 9"]);
        let states: Vec<&str> = report.members.iter().map(|it| it.state.as_str()).collect();
        assert_eq!(states, ["failed", "up"]);
        assert_eq!(
            (report.failures[0].name.as_str(), report.open[0].failed_at_ns),
            ("process 3", 1_700)
        );
        let (owner, peer) = (report.frozen[0].owner.as_str(), report.frozen[0].peer.as_deref());
        assert_eq!((owner, peer), ("switch 1 life 9", Some("process 3 life 5")));
        let text = serde_json::to_string(&report).expect("it is plain data");
        assert_eq!(serde_json::from_str::<Report>(&text).expect("its own text"), report);
    }
}
