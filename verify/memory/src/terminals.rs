//! The terminals of a client: each has one call in flight at a time.

use std::collections::BTreeMap;

use onepipe_base::ProcessId;
use onepipe_sim_engine::{Instant, NANOSECOND};
use onepipe_table::{Finished, OperationId};
use onepipe_verify_transactions::Terminal;

use crate::load::{Command, Done, Load, Next};

/// What a terminal is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// The terminal is asked at this instant.
    Waits(Instant),
    /// Its call is in flight.
    Call,
    /// The terminal has ended.
    Stopped,
}

/// The terminals of a client.
#[derive(Debug)]
pub(crate) struct Terminals {
    process: ProcessId,
    session: u64,
    doing: Vec<Doing>,
    /// Terminal and virtual time of each call in flight.
    in_flight: BTreeMap<OperationId, (u32, u64)>,
}

impl Terminals {
    pub fn new(process: ProcessId, session: u64, count: u32) -> Self {
        let doing = vec![Doing::Waits(Instant::START); count as usize];
        Self { process, session, doing, in_flight: BTreeMap::new() }
    }

    /// Asks all terminals without a call what they do next.
    pub fn wake(&mut self) {
        for doing in self.doing.iter_mut().filter(|doing| **doing != Doing::Call) {
            *doing = Doing::Waits(Instant::START);
        }
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    fn terminal(&self, index: u32) -> Terminal {
        Terminal { process: self.process, session: self.session, index }
    }

    /// Passes the end of a call to the load.
    pub fn on_finished(&mut self, now: Instant, finished: Finished, load: &mut impl Load) {
        let Some((index, started_ns)) = self.in_flight.remove(&finished.operation) else { return };
        let (terminal, at_ns) = (self.terminal(index), now.as_ns());
        load.done(Done { terminal, started_ns, at_ns, outcome: finished.outcome });
        self.doing[index as usize] = Doing::Waits(now);
    }

    /// Asks the terminals that wait what they do; `call` calls the table.
    pub fn run(
        &mut self,
        now: Instant,
        load: &mut impl Load,
        mut call: impl FnMut(u64, Command) -> OperationId,
    ) {
        for index in 0..self.doing.len() {
            if !matches!(self.doing[index], Doing::Waits(until) if until <= now) {
                continue;
            }
            let terminal = self.terminal(index as u32);
            self.doing[index] = match load.next(now.as_ns(), terminal) {
                Next::Call(key, command) => {
                    let operation = call(key, command);
                    self.in_flight.insert(operation, (terminal.index, now.as_ns()));
                    Doing::Call
                }
                Next::Wait(ns) => Doing::Waits(now.after(ns * NANOSECOND)),
                Next::Stop => Doing::Stopped,
            };
        }
    }

    /// Returns the next instant at which a terminal is asked.
    pub fn next_at(&self) -> Option<Instant> {
        let waits = self.doing.iter().filter_map(|doing| match doing {
            Doing::Waits(until) => Some(*until),
            _ => None,
        });
        waits.min()
    }
}
