//! Recovery: an excluded process requests the outcomes of its buffered messages.

use alloc::vec::Vec;

use onepipe_base::{Backoff, Controllers, Mono, ProcessId, Psn, Timestamp};
use onepipe_wire::{Failure, Opcode, RecoveryView};

use super::ControlFrame;
use super::round_robin::RoundRobin;

/// What has happened since this process failed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Recovered {
    /// The outcome of every scattering below this is known.
    pub complete: Timestamp,
    /// Failed processes.
    pub failures: Vec<Failure>,
    /// Recalled scatterings: sender and timestamp.
    pub recalls: Vec<(ProcessId, Timestamp)>,
}

/// Requests the parts of the recovery record one by one, and each until it arrives.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RecoveryClient {
    state: State,
    backoff: Backoff,
    round: RoundRobin,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    Idle,
    Requesting {
        /// The requested part.
        next: u16,
        /// The number of parts, and the contents of those before `next`.
        gathered: Option<(u16, Recovered)>,
    },
    Done(Recovered),
}

impl RecoveryClient {
    pub fn new(controllers: Controllers, backoff: Backoff) -> Self {
        Self { state: State::Idle, backoff, round: RoundRobin::new(controllers) }
    }

    /// Starts requesting, unless started.
    pub fn start(&mut self, now: Mono) {
        if self.state == State::Idle {
            self.request(now, 0, None);
        }
    }

    fn request(&mut self, now: Mono, next: u16, gathered: Option<(u16, Recovered)>) {
        self.state = State::Requesting { next, gathered };
        self.backoff.on_change(now);
        self.round.start();
    }

    /// Checks that the parts before the requested one were gathered.
    pub fn check_invariants(&self) {
        self.round.check_invariants();
        match &self.state {
            State::Requesting { next, gathered: Some((parts, _)) } => {
                assert!((1..*parts).contains(next), "a part is missing");
            }
            State::Requesting { next, gathered: None } => {
                assert_eq!(*next, 0, "the first part is requested first");
            }
            State::Idle | State::Done(_) => {
                assert!(!self.wants_transmit(), "only a missing part is requested");
            }
        }
    }

    fn requested_part(&self) -> Option<u16> {
        match &self.state {
            State::Requesting { next, .. } => Some(*next),
            _ => None,
        }
    }

    pub fn wants_transmit(&self) -> bool {
        self.requested_part().is_some() && self.round.current().is_some()
    }

    /// Returns when to repeat the request.
    pub fn deadline(&self) -> Option<Mono> {
        self.requested_part().and(self.backoff.due())
    }

    /// Writes the request for the next controller.
    pub fn write(&mut self, now: Mono) -> Option<ControlFrame> {
        let part = self.requested_part()?;
        if self.backoff.take(now) {
            self.round.start();
        }
        let to = self.round.current()?;
        self.round.advance();
        Some(ControlFrame::to(to, Opcode::Recover, Psn(part.into()), 0))
    }

    /// Handles a part. Returns whether it was requested. If the number of parts or the end of the
    /// record differs from that of the first part, the record has changed meanwhile and is
    /// requested again from the start.
    pub fn on_part(&mut self, now: Mono, near: Timestamp, view: &RecoveryView<'_>) -> bool {
        let State::Requesting { next, gathered } = &mut self.state else { return false };
        let (header, part) = (view.recovery(near), *next);
        if header.part != part {
            return false;
        }
        let (parts, mut recovered) = gathered.take().unwrap_or_else(|| {
            let (failures, recalls) = (Vec::new(), Vec::new());
            (header.parts, Recovered { complete: header.complete, failures, recalls })
        });
        if (parts, recovered.complete) != (header.parts, header.complete) {
            self.request(now, 0, None);
            return true;
        }
        recovered.failures.extend(view.failures(near));
        recovered.recalls.extend(view.recalls(near));
        if part + 1 == parts {
            self.state = State::Done(recovered);
            self.round.stop();
        } else {
            self.request(now, part + 1, Some((parts, recovered)));
        }
        true
    }

    /// Returns the complete record, once.
    pub fn poll(&mut self) -> Option<Recovered> {
        match core::mem::replace(&mut self.state, State::Idle) {
            State::Done(recovered) => Some(recovered),
            other => {
                self.state = other;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onepipe_base::Incarnation;
    use onepipe_wire::Recovery;

    fn recover() -> RecoveryClient {
        RecoveryClient::new(Controllers { first: ProcessId(60), count: 2 }, Backoff::new(10, 40))
    }

    fn at(ns: u64) -> Mono {
        Mono::from_ns(ns)
    }

    fn requested_part(recover: &mut RecoveryClient, ns: u64) -> Vec<(u32, u32)> {
        let next = || recover.write(at(ns)).map(|frame| (frame.to.0, frame.psn.0));
        core::iter::from_fn(next).collect()
    }

    /// Receives part `part` of `parts`: the failure of process `part` and two recalls.
    fn answer(
        recover: &mut RecoveryClient,
        ns: u64,
        complete: u64,
        (part, parts): (u16, u16),
    ) -> bool {
        let near = Timestamp::from_ns(1_000);
        let (first, incarnation) = (ProcessId(part.into()), Incarnation(1));
        let failure =
            Failure { first, count: 1, incarnation, at: near, cause: onepipe_base::Cause::Unknown };
        let recalls = [near, near.wrapping_add_ns(1)].map(|timestamp| (first, timestamp));
        let complete = Timestamp::from_ns(complete);
        let mut payload = [0; 128];
        let payload_len = Recovery { complete, part, parts }
            .write(&mut payload, [failure].into_iter(), recalls.into_iter())
            .expect("fits");
        let view = RecoveryView::parse(&payload[..payload_len]).expect("written above");
        recover.on_part(at(ns), near, &view)
    }

    #[test]
    fn each_part_is_requested_until_received() {
        let mut recover = recover();
        assert!(!answer(&mut recover, 0, 900, (0, 1)), "not requested");
        recover.start(at(100));
        recover.start(at(101));
        assert_eq!(requested_part(&mut recover, 100), [(60, 0), (61, 0)]);
        assert_eq!(
            (requested_part(&mut recover, 109), recover.deadline()),
            (Vec::new(), Some(at(110)))
        );
        assert_eq!(requested_part(&mut recover, 110), [(60, 0), (61, 0)]);
        assert!(!answer(&mut recover, 111, 900, (1, 2)), "a different part");
        assert!(answer(&mut recover, 112, 900, (0, 2)));
        assert!(!answer(&mut recover, 112, 900, (0, 2)), "already received");
        assert_eq!(requested_part(&mut recover, 112), [(60, 1), (61, 1)]);
        assert!(recover.poll().is_none());
        assert!(answer(&mut recover, 113, 900, (1, 2)));
        assert!(!recover.wants_transmit() && recover.deadline().is_none());
        let recovered = recover.poll().expect("complete");
        assert_eq!(recovered.complete.as_ns(), 900);
        let failed: Vec<_> = recovered.failures.iter().map(|failure| failure.first.0).collect();
        assert_eq!((failed, recovered.recalls.len()), (alloc::vec![0, 1], 4));
        assert!(recover.poll().is_none());
    }

    #[test]
    fn restarts_when_the_recovery_record_changes() {
        for (complete, parts) in [(950, 2), (900, 3)] {
            let mut recover = recover();
            recover.start(at(100));
            assert!(answer(&mut recover, 100, 900, (0, 2)));
            requested_part(&mut recover, 100);
            assert!(answer(&mut recover, 101, complete, (1, parts)));
            assert_eq!(requested_part(&mut recover, 101), [(60, 0), (61, 0)]);
            for part in 0..parts {
                assert!(answer(&mut recover, 102, complete, (part, parts)));
            }
            let recovered = recover.poll().expect("complete");
            assert_eq!(recovered.complete.as_ns(), complete);
            assert_eq!(
                recovered.failures.len(),
                usize::from(parts),
                "no failure is contained twice"
            );
        }
    }
}
