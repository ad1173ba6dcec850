//! The coordinator of agreed multicast as a daemon, with its store.

use std::collections::VecDeque;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onepipe_amcast::{ConfigError, Coordinator, CoordinatorConfig as MachineConfig, Decision};
use onepipe_base::{Machine, Mono, Now, Port, Transmit, Verdict};
use onepipe_controller::{Epoch, Leadership, Record, RecordId, Store};
use onepipe_transport_amcast::{Directory, DirectoryError, MeshDriver, OpenError, Role, open_with};
use onepipe_transport_clock::{reduce_wakeup_latency, start_incarnation};
use onepipe_transport_driver::{Doorbell, DrivenMachine, Idle};

use crate::RunError;
use crate::store_worker::{ElectionTimers, StoreEvent, StoreHandle};

/// A log that has grown by this many records is replaced by the last decision of each group.
const LOG_RECORDS_MAX: usize = 1_000;

/// The configuration of a coordinator daemon.
#[derive(Clone, Debug)]
pub struct CoordinatorConfig {
    /// The participants.
    pub directory: Directory,
    /// Address of this coordinator, one of the directory's coordinators.
    pub at: SocketAddr,
    /// Interval between two probes of each member. Default 5 ms.
    pub probe_interval: Duration,
    /// A leader without an answer for this long is replaced. Default 50 ms: processes that share
    /// cores may be off them for ten.
    pub leader_timeout: Duration,
    /// Campaign interval of a coordinator that is not active. Default 250 ms.
    pub campaign_interval: Duration,
    /// Renewal interval of the active coordinator. Default 1 s.
    pub renew_interval: Duration,
    /// The idle strategy. Default [`Idle::ADAPTIVE`].
    pub idle: Idle,
}

impl CoordinatorConfig {
    /// Returns the defaults.
    pub fn new(directory: Directory, at: SocketAddr) -> Self {
        Self {
            directory,
            at,
            probe_interval: Duration::from_millis(5),
            leader_timeout: Duration::from_millis(50),
            campaign_interval: Duration::from_millis(250),
            renew_interval: Duration::from_secs(1),
            idle: Idle::ADAPTIVE,
        }
    }
}

/// An event of a coordinator daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CoordinatorEvent {
    /// This coordinator has become active.
    Active,
    /// This coordinator's epoch is over.
    Deposed,
    /// A leader was named, and the decision is recorded.
    Leads(Decision),
    /// The store has failed, or its error has changed; calls are retried.
    StoreFailed(String),
    /// The store works again.
    StoreRecovered,
}

/// A coordinator: one thread for the machine, one for the store.
#[derive(Debug)]
pub struct CoordinatorDaemon {
    mesh_driver: MeshDriver<CoordinatorNode>,
    store_handle: StoreHandle,
}

impl CoordinatorDaemon {
    /// Creates a coordinator that has its socket and campaigns, and does nothing else before it
    /// runs.
    ///
    /// # Errors
    /// [`OpenError`]. A store that does not answer is no error: it is retried.
    pub fn new<S>(config: &CoordinatorConfig, store: S) -> Result<Self, OpenError>
    where
        S: Store<Error: Error> + Send + 'static,
    {
        let (directory, at) = (&config.directory, config.at);
        let groups = directory.groups()?;
        let Some((process, Role::Coordinator)) = directory.at(at) else {
            return Err(DirectoryError::WrongRole { at, role_name: "coordinator" }.into());
        };
        let ns = |name, time: Duration| match u64::try_from(time.as_nanos()) {
            Ok(ns) => Ok(ns),
            Err(_) => Err(ConfigError { name, value: u64::MAX }),
        };
        let machine = Coordinator::new(MachineConfig {
            incarnation: start_incarnation(process.0),
            probe_interval_ns: ns("probe_interval", config.probe_interval)?,
            leader_timeout_ns: ns("leader_timeout", config.leader_timeout)?,
            ..MachineConfig::new(process, groups.clone())
        })?;
        let machine = CoordinatorNode::new(machine);
        let sizes = (groups.frame_len_max, config.idle);
        let mesh_driver = open_with(directory, (at, process), sizes, machine)?;
        let timers = ElectionTimers {
            campaign_interval: config.campaign_interval,
            renew_interval: config.renew_interval,
            resign_pause: config.campaign_interval,
        };
        let store_handle = StoreHandle::open(store, process, timers, mesh_driver.doorbell());
        Ok(Self { mesh_driver, store_handle: store_handle.map_err(OpenError::Thread)? })
    }

    /// Returns the doorbell that wakes the daemon when it blocks.
    pub fn doorbell(&self) -> Doorbell {
        self.mesh_driver.doorbell()
    }

    /// Runs until `stop` is set; then it resigns, if it is active. Ring the doorbell after setting
    /// `stop`.
    ///
    /// # Errors
    /// [`RunError`], before `stop` is set.
    pub fn run(
        &mut self,
        stop: &AtomicBool,
        mut on_event: impl FnMut(CoordinatorEvent),
    ) -> Result<(), RunError> {
        reduce_wakeup_latency();
        while !stop.load(Ordering::Acquire) {
            while let Some(event) = self.store_handle.poll_event()? {
                self.mesh_driver.machine_mut().inbox.push_back(event);
            }
            let progress = self.mesh_driver.turn(|_, event| on_event(event));
            while let Some((epoch, id, record)) = self.mesh_driver.machine_mut().poll_persist() {
                self.store_handle.append(epoch, id, record);
            }
            if let Some((epoch, records)) = self.mesh_driver.machine_mut().poll_replace() {
                self.store_handle.replace(epoch, records);
            }
            self.mesh_driver.rest(progress);
        }
        Ok(())
    }
}

/// The machine and the events of its store worker.
#[derive(Debug)]
struct CoordinatorNode {
    machine: Coordinator,
    /// Events to be passed to the machine in the next turn, which knows the time.
    inbox: VecDeque<StoreEvent>,
    /// The epoch, while active.
    epoch: Option<Epoch>,
    /// Decisions being written, by record number.
    writing: VecDeque<(RecordId, Decision)>,
    /// Number of the last record.
    last_record: u64,
    /// Number of records in the log, as far as this coordinator has seen it grow.
    log_records: usize,
    events: VecDeque<CoordinatorEvent>,
}

impl CoordinatorNode {
    fn new(machine: Coordinator) -> Self {
        let (inbox, writing, events) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        Self { machine, inbox, epoch: None, writing, last_record: 0, log_records: 0, events }
    }

    fn poll_persist(&mut self) -> Option<(Epoch, RecordId, Record)> {
        let epoch = self.epoch?;
        let decision = self.machine.poll_persist()?;
        self.last_record += 1;
        let id = RecordId(self.last_record);
        self.writing.push_back((id, decision));
        let Decision { group, epoch: group_epoch, leader } = decision;
        Some((epoch, id, Record::Leads(Leadership { group, epoch: group_epoch, leader })))
    }

    fn poll_replace(&mut self) -> Option<(Epoch, Vec<Record>)> {
        let epoch = self.epoch.filter(|_| self.log_records >= LOG_RECORDS_MAX)?;
        self.log_records = 0;
        let decisions = self.machine.decisions();
        let record =
            |Decision { group, epoch, leader }| Record::Leads(Leadership { group, epoch, leader });
        Some((epoch, decisions.map(record).collect()))
    }

    fn read_inbox(&mut self, now: Now) {
        while let Some(event) = self.inbox.pop_front() {
            match event {
                StoreEvent::Elected(epoch, records) => {
                    self.epoch = Some(epoch);
                    self.writing.clear();
                    self.log_records = records.len();
                    let decisions = records.iter().filter_map(|record| match record {
                        Record::Leads(Leadership { group, epoch, leader }) => {
                            Some(Decision { group: *group, epoch: *epoch, leader: *leader })
                        }
                        _ => None,
                    });
                    self.machine.activate(now, decisions);
                    self.events.push_back(CoordinatorEvent::Active);
                }
                StoreEvent::Written(id, written) => {
                    self.log_records += 1;
                    let at = self.writing.iter().position(|(writing, _)| *writing == id);
                    if let Some((_, decision)) = at.and_then(|at| self.writing.remove(at)) {
                        self.machine.handle_persisted(now, decision, written.is_ok());
                    }
                }
                StoreEvent::Deposed(epoch) if self.epoch == Some(epoch) => {
                    self.epoch = None;
                    self.machine.deactivate();
                    self.events.push_back(CoordinatorEvent::Deposed);
                }
                StoreEvent::Deposed(_) | StoreEvent::Confirmed(_) | StoreEvent::Panicked(_) => {}
                StoreEvent::Failed(reason) => {
                    self.events.push_back(CoordinatorEvent::StoreFailed(reason));
                }
                StoreEvent::Recovered => self.events.push_back(CoordinatorEvent::StoreRecovered),
            }
        }
    }
}

impl Machine for CoordinatorNode {
    type Event = CoordinatorEvent;

    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        self.machine.handle_frame(now, port, frame)
    }

    fn handle_timeout(&mut self, now: Now) {
        self.read_inbox(now);
        self.machine.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        self.machine.poll_transmit(now, slot)
    }

    fn poll_event(&mut self) -> Option<CoordinatorEvent> {
        let decided = |machine: &mut Coordinator| machine.poll_event().map(CoordinatorEvent::Leads);
        self.events.pop_front().or_else(|| decided(&mut self.machine))
    }

    fn poll_timeout(&self) -> Option<Mono> {
        let at_once = (!self.inbox.is_empty()).then_some(Mono::from_ns(0));
        Mono::earlier(at_once, self.machine.poll_timeout())
    }
}

impl DrivenMachine for CoordinatorNode {}
