//! The controller machine in the form that the driver runs.

use std::collections::VecDeque;

use onepipe_base::{Cause, Machine, Mono, Now, Port, Promises, Transmit, Verdict};
use onepipe_controller::{Controller, Epoch, Event, Record, RecordId};
use onepipe_transport_driver::DrivenMachine;
use onepipe_wire::parse_header;

use crate::report::BarrierReport;
use crate::store_worker::StoreEvent;

/// A log that has grown by this many records is replaced by an equivalent shorter one: some 100
/// KiB, which a new active replica reads in some milliseconds.
const LOG_RECORDS_MAX: usize = 2_000;

/// A controller machine and the events of its store worker.
#[derive(Debug)]
pub(crate) struct Node {
    machine: Controller,
    /// Events to be passed to the machine in the next turn, which knows the time.
    inbox: VecDeque<StoreEvent>,
    /// The epoch, while active.
    epoch: Option<Epoch>,
    /// Number of records in the log, as far as this replica has seen it grow.
    log_records: usize,
    /// Whether it may have something to send.
    is_due: bool,
    /// For each port, the last promises and when they arrived.
    received: Vec<Option<(Promises, Mono)>>,
}

impl Node {
    pub(crate) fn new(machine: Controller, ports: u16) -> Self {
        let received = vec![None; usize::from(ports)];
        let (inbox, epoch) = (VecDeque::new(), None);
        Self { machine, inbox, epoch, log_records: 0, is_due: true, received }
    }

    pub(crate) fn machine(&self) -> &Controller {
        &self.machine
    }

    /// Returns the epoch in which this replica is active.
    pub(crate) fn epoch(&self) -> Option<Epoch> {
        self.epoch
    }

    /// Queues an event of the store worker.
    pub(crate) fn receive(&mut self, event: StoreEvent) {
        self.inbox.push_back(event);
    }

    /// Returns the next record to write.
    pub(crate) fn poll_persist(&mut self) -> Option<(Epoch, RecordId, Record)> {
        let epoch = self.epoch?;
        let (id, record) = self.machine.poll_persist()?;
        Some((epoch, id, record))
    }

    /// Returns an equivalent shorter log each time that the log has grown by [`LOG_RECORDS_MAX`]
    /// records.
    pub(crate) fn poll_replace(&mut self) -> Option<(Epoch, Vec<Record>)> {
        if self.log_records < LOG_RECORDS_MAX {
            return None;
        }
        let (epoch, records) = (self.epoch?, self.machine.snapshot()?);
        self.log_records = 0;
        Some((epoch, records))
    }

    /// Returns the promises of the links.
    pub(crate) fn barriers(&self, now: Mono) -> Vec<BarrierReport> {
        let report = |(port, received): (usize, &Option<(Promises, Mono)>)| {
            let (promises, at) = (*received)?;
            Some(BarrierReport {
                port: port as u16,
                barrier_ns: promises.barrier.as_ns(),
                commit_ns: promises.commit.as_ns(),
                age_ns: now.since_ns(at),
            })
        };
        self.received.iter().enumerate().filter_map(report).collect()
    }

    fn record_promises(&mut self, now: Now, port: Port, promises: Promises) {
        if let Some(received) = self.received.get_mut(port.index()) {
            *received = Some((promises, now.mono));
        }
    }

    fn read_inbox(&mut self, now: Now) {
        while let Some(event) = self.inbox.pop_front() {
            match event {
                StoreEvent::Elected(epoch, records) => {
                    self.epoch = Some(epoch);
                    self.log_records = records.len();
                    self.machine.activate(now, epoch, &records);
                }
                StoreEvent::Written(id, written) => {
                    self.log_records += 1;
                    self.machine.handle_persisted(now, id, written);
                }
                StoreEvent::Deposed(epoch) if self.epoch == Some(epoch) => {
                    self.epoch = None;
                    self.machine.depose(now);
                }
                // The daemon passes on events of the machine alone.
                StoreEvent::Deposed(_)
                | StoreEvent::Confirmed(_)
                | StoreEvent::Failed(_)
                | StoreEvent::Recovered
                | StoreEvent::Panicked(_) => {}
            }
        }
    }
}

impl Machine for Node {
    type Event = Event;

    #[inline]
    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        if let Ok((header, opcode)) = parse_header(frame)
            && !opcode.is_control()
        {
            let promises = header.promises(now.sync);
            self.record_promises(now, port, promises);
        }
        self.is_due = true;
        self.machine.handle_frame(now, port, frame)
    }

    fn handle_timeout(&mut self, now: Now) {
        self.is_due = true;
        self.read_inbox(now);
        self.machine.handle_timeout(now);
    }

    #[inline]
    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        let transmit = self.machine.poll_transmit(now, slot);
        self.is_due &= transmit.is_some();
        transmit
    }

    #[inline]
    fn poll_event(&mut self) -> Option<Event> {
        self.machine.poll_event()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        let at_once = (!self.inbox.is_empty()).then_some(Mono::from_ns(0));
        Mono::earlier(at_once, self.machine.poll_timeout())
    }
}

impl DrivenMachine for Node {
    /// Records the promises for reports. A controller delivers nothing, so they do not bind it; but
    /// they show that the process is alive.
    fn handle_promises(&mut self, now: Now, port: Port, promises: Promises) {
        self.record_promises(now, port, promises);
        self.machine.handle_liveness(now, port);
    }

    /// The process at this port has left the shared memory.
    fn handle_link_down(&mut self, port: Port, _: Cause) {
        self.is_due = true;
        self.machine.handle_link_down(port);
    }

    #[inline]
    fn wants_transmit(&self) -> bool {
        self.is_due
    }
}
