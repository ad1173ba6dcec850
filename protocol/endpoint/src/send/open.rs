//! The scatterings without an outcome.

use alloc::vec::Vec;

use onepipe_base::{ProcessId, ScatteringId};

use super::Sender;
use crate::OpenScattering;

impl Sender {
    //= spec/failure.md#R59
    /// Returns the scatterings without an outcome: those that were sent by ascending timestamp,
    /// then those that wait.
    pub fn open_scatterings(&self) -> Vec<OpenScattering> {
        let mut awaited: Vec<(u64, ProcessId)> = Vec::new();
        for connection in self.peers.iter() {
            awaited.extend(connection.flight.awaited().map(|number| (number, connection.to)));
            let recalls = connection.reliable.iter().flat_map(|reliable| &reliable.recalls);
            awaited.extend(recalls.map(|(number, _)| (*number, connection.to)));
        }
        awaited.sort_unstable();
        awaited.dedup();
        let mut all = Vec::new();
        for number in self.commit.numbers() {
            let Some(open) = self.commit.get(number).filter(|open| !open.is_complete()) else {
                continue;
            };
            let first = awaited.partition_point(|(other, _)| *other < number);
            let receivers = awaited[first..].iter().take_while(|(other, _)| *other == number);
            all.push(OpenScattering {
                scattering: open.id,
                timestamp: Some(open.timestamp),
                receivers: receivers.map(|(_, process)| *process).collect(),
                is_recalled: open.recalled.is_some(),
            });
        }
        all.extend(self.waiting());
        all
    }

    /// Returns the scatterings that wait to be sent.
    fn waiting(&self) -> impl Iterator<Item = OpenScattering> + '_ {
        let queued = (0..self.buffer.len()).map(|position| self.buffer.queued(position));
        queued.filter(|queued| !queued.is_sent).map(|queued| {
            let numbers = queued.first..queued.first + u64::from(queued.messages);
            let to = numbers.map(|number| self.buffer.message(number).to);
            let mut receivers: Vec<_> = to.map(|to| self.peers.get(to as usize).to).collect();
            receivers.sort_unstable();
            receivers.dedup();
            let scattering = queued.id;
            OpenScattering { scattering, timestamp: None, receivers, is_recalled: false }
        })
    }

    /// Returns an id below which the outcome of every scattering is known, and every failure was
    /// returned to the application. Looks at all messages in flight.
    pub fn resolved_below(&self) -> ScatteringId {
        if self.burst.first().is_some() {
            // The messages of the burst are in neither the buffer nor a flight.
            return ScatteringId(0);
        }
        let queued = (0..self.buffer.len()).map(|position| self.buffer.queued(position));
        let queued = queued.filter(|queued| !queued.is_sent).map(|queued| queued.id);
        let in_flight = self.peers.iter().flat_map(|connection| connection.flight.scatterings());
        let open = self.commit.numbers().filter_map(|number| self.commit.get(number));
        let open = open.filter(|open| !open.is_complete()).map(|open| open.id);
        let failed = self.failures.iter().map(|failed| failed.scattering);
        let lowest = queued.chain(in_flight).chain(open).chain(failed).min();
        lowest.unwrap_or(self.buffer.next_id())
    }
}
