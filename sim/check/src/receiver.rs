//! One incarnation of a process as a receiver: I1, I3, I9 and B.

use onepipe_base::{ProcessId, Promises, Timestamp};
use onepipe_wire::Service;

use crate::observation::Snapshot;
use crate::violation::{Rule, ViolationKind, Violations};

/// Key of a delivery in the total order: timestamp, sender, its incarnation, index.
pub(crate) type Key = (Timestamp, u32, u32, u16);

/// One stream of deliveries: of one service, or of both if they are merged.
#[derive(Clone, Debug, Default)]
struct Stream {
    first: Option<Timestamp>,
    /// The last delivery.
    last: Option<Key>,
    /// Barrier at the last snapshot.
    barrier: Option<Timestamp>,
}

/// Observations of a receiver.
#[derive(Clone, Debug, Default)]
pub(crate) struct Receiver {
    is_merged: bool,
    /// By service: best effort, reliable.
    streams: [Stream; 2],
    /// Promises at the last snapshot.
    promises: Option<Promises>,
}

impl Receiver {
    /// Creates a receiver; `is_merged`: both services are delivered as one stream.
    pub fn new(is_merged: bool) -> Self {
        Self { is_merged, ..Self::default() }
    }

    /// Returns the timestamp above which this process must stamp, if it has delivered anything.
    pub fn floor(&self) -> Option<Timestamp> {
        let stamp = |stream: &Stream| stream.last.map(|(stamp, ..)| stamp);
        stamp(&self.streams[0]).max(stamp(&self.streams[1]))
    }

    /// Returns the promises at the last snapshot.
    pub fn promises(&self) -> Option<Promises> {
        self.promises
    }

    /// Returns the commit barrier at the last snapshot.
    pub fn commit_barrier(&self) -> Option<Timestamp> {
        self.streams[Service::Reliable as usize].barrier
    }

    /// Returns the timestamps of the first and the last reliable delivery.
    pub fn reliable_span(&self) -> Option<(Timestamp, Timestamp)> {
        let stream = &self.streams[Service::Reliable as usize];
        Some((stream.first?, stream.last?.0))
    }

    //= spec/ordering.md#R20
    #[inline]
    pub fn on_delivered(
        &mut self,
        (process, service): (ProcessId, Service),
        now: Key,
        at_ns: u64,
        log: &mut Violations,
    ) {
        let others = match self.is_merged {
            true => self.streams[0].last.max(self.streams[1].last),
            false => None,
        };
        let low = match self.is_merged {
            // A merged stream waits for both barriers, so deliveries may lie below the higher one.
            true => self.streams[0].barrier.min(self.streams[1].barrier),
            false => self.streams[service as usize].barrier,
        };
        let stream = &mut self.streams[service as usize];
        if let Some(before) = stream.last.max(others)
            && before >= now
        {
            log.add(Rule::I1, at_ns, ViolationKind::NotAscending { process, before, now });
        }
        let stamp = now.0;
        if let Some(low) = low
            && stamp < low
        {
            let kind =
                ViolationKind::OutsideBarriers { process, stamp, low: Some(low), high: None };
            log.add(Rule::B, at_ns, kind);
        }
        stream.first.get_or_insert(stamp);
        stream.last = Some(stream.last.map_or(now, |before| before.max(now)));
    }

    //= spec/ordering.md#R4
    //= spec/ordering.md#R6
    //= spec/ordering.md#R19
    /// Handles a snapshot of the drained process.
    #[inline]
    pub fn on_drained(
        &mut self,
        process: ProcessId,
        snapshot: &Snapshot,
        at_ns: u64,
        log: &mut Violations,
    ) {
        let mut no_step_back = |before: Option<Timestamp>, now: Option<Timestamp>| {
            if let (Some(before), Some(now)) = (before, now)
                && now < before
            {
                log.add(Rule::I9, at_ns, ViolationKind::BarrierBack { process, before, now });
            }
        };
        let (held, now) = (self.promises, snapshot.promises);
        no_step_back(held.map(|held| held.barrier), now.map(|now| now.barrier));
        no_step_back(held.map(|held| held.commit), now.map(|now| now.commit));
        for (stream, barrier) in
            self.streams.iter().zip([snapshot.barrier, snapshot.commit_barrier])
        {
            no_step_back(stream.barrier, barrier);
        }
        for (stream, barrier) in
            self.streams.iter_mut().zip([snapshot.barrier, snapshot.commit_barrier])
        {
            if let Some((stamp, ..)) = stream.last
                && barrier.is_none_or(|high| stamp >= high)
            {
                let kind =
                    ViolationKind::OutsideBarriers { process, stamp, low: None, high: barrier };
                log.add(Rule::B, at_ns, kind);
            }
            stream.barrier = stream.barrier.max(barrier);
        }
        if let (Some(stamp), Some(now)) = (self.floor(), snapshot.promises)
            && now.barrier <= stamp
            && !snapshot.is_sending
        {
            log.add(
                Rule::I3,
                at_ns,
                ViolationKind::NotCausal { process, now: now.barrier, floor: stamp },
            );
        }
        self.promises = match (held, now) {
            (Some(held), Some(now)) => Some(held.max(now)),
            (held, now) => held.or(now),
        };
    }
}
