//! Lists the reliable scatterings without an outcome.

use alloc::vec::Vec;

use onepipe_base::ProcessId;

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
}
