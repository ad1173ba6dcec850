//! The replica and the client of a process of a rival.

use std::collections::BTreeMap;

use onepipe_base::{Mono, Port, ProcessId, Timestamp};
use onepipe_baselines::{Client, Finished, Keyed, Part, Server, is_reply};
use onepipe_sim_engine::{Instant, NANOSECOND};
use onepipe_sim_network::NodeContext;
use onepipe_transaction::{Committed, TransactionId};

use super::process::RivalNode;
use crate::load::{Done, Load, Next, Terminal};

/// Session of every client: no process restarts.
pub(super) const SESSION: u64 = 1;

/// What a terminal is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// The terminal is asked at this instant.
    Waits(Instant),
    /// Its transaction is in flight.
    Transaction,
    /// The terminal has ended.
    Stopped,
}

/// The replica and the client of a process.
#[derive(Debug)]
pub(super) struct RivalServer<S> {
    process: ProcessId,
    pub replica: Option<Server<S>>,
    pub client: Option<Client>,
    terminals: Vec<Doing>,
    /// Terminal and virtual time of submission of each transaction in flight.
    in_flight: BTreeMap<TransactionId, (u32, u64)>,
    /// Whether there may be something to do.
    is_active: bool,
    /// The next alarm.
    alarm_at: Option<Instant>,
}

impl<S: Keyed> RivalServer<S> {
    pub fn new(
        process: ProcessId,
        replica: Option<Server<S>>,
        client: Option<Client>,
        terminals: u32,
    ) -> Self {
        let terminals = if client.is_some() { terminals as usize } else { 0 };
        Self {
            process,
            replica,
            client,
            terminals: vec![Doing::Waits(Instant::START); terminals],
            in_flight: BTreeMap::new(),
            is_active: true,
            alarm_at: None,
        }
    }

    /// Returns the number of transactions in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Notes that an alarm has fired.
    pub fn on_alarm(&mut self) {
        (self.alarm_at, self.is_active) = (None, true);
    }

    /// Handles a message to the process.
    pub fn on_message(&mut self, now: Mono, from: ProcessId, payload: &[u8]) {
        self.is_active = true;
        if is_reply(payload) {
            if let Some(client) = &mut self.client {
                client.on_message(now, from, payload);
            }
        } else if let Some(replica) = &mut self.replica {
            replica.on_message(now, from, payload);
        }
    }

    /// Does what is due after all messages were handled.
    pub fn serve(
        &mut self,
        at: &mut NodeContext<'_>,
        (machine, port): (&mut RivalNode, Port),
        load: &mut impl Load<S>,
    ) {
        if !std::mem::take(&mut self.is_active) {
            return;
        }
        let now = at.now.mono;
        if let Some(client) = &mut self.client {
            client.handle_timeout(now);
        }
        if let Some(replica) = &mut self.replica {
            replica.handle_timeout(now);
        }
        self.run_terminals(at, load);
        if let Some(process) = machine.host_mut().and_then(|host| host.process_mut(port)) {
            let messages = std::iter::from_fn(|| {
                let of_replica = self.replica.as_mut().and_then(Server::poll_message);
                of_replica.or_else(|| self.client.as_mut().and_then(Client::poll_message))
            });
            messages.for_each(|message| process.send(message.to, message.payload));
        }
        self.set_alarm(at, port);
    }

    fn run_terminals(&mut self, at: &NodeContext<'_>, load: &mut impl Load<S>) {
        let Some(client) = &mut self.client else { return };
        let terminal = |index| Terminal { process: self.process, session: SESSION, index };
        while let Some(Finished { transaction, results, attempts }) = client.poll_finished() {
            let Some((index, started_ns)) = self.in_flight.remove(&transaction) else { continue };
            let at_ns = at.instant.as_ns();
            // Transactions of rivals have no timestamp: the time of the outcome replaces it.
            let committed = Committed { at: Timestamp::from_ns(at_ns), results, attempts };
            load.done(Done {
                terminal: terminal(index),
                started_ns,
                at_ns,
                outcome: Ok(committed),
            });
            self.terminals[index as usize] = Doing::Waits(at.instant);
        }
        for (index, doing) in (0..).zip(&mut self.terminals) {
            if !matches!(doing, Doing::Waits(until) if *until <= at.instant) {
                continue;
            }
            *doing = match load.next(at.instant.as_ns(), terminal(index)) {
                Next::Submit(_, parts) => {
                    let part = |(shard, bytes)| Part::new::<S>(shard, bytes);
                    let parts = parts.into_iter().map(part).collect();
                    let submitted = client.submit(at.now.mono, parts);
                    let id = submitted.expect("a load has valid parts, and few terminals");
                    self.in_flight.insert(id, (index, at.instant.as_ns()));
                    Doing::Transaction
                }
                Next::Wait(ns) => Doing::Waits(at.instant.after(ns * NANOSECOND)),
                Next::Stop => Doing::Stopped,
            };
        }
    }

    fn set_alarm(&mut self, at: &mut NodeContext<'_>, port: Port) {
        let of_client = self.client.as_ref().and_then(Client::poll_timeout);
        let of_replica = self.replica.as_ref().and_then(Server::poll_timeout);
        let deadline = Mono::earlier(of_client, of_replica).map(|deadline| {
            let wait_ns = deadline.as_ns().saturating_sub(at.now.mono.as_ns());
            at.instant.after(wait_ns.max(1) * NANOSECOND)
        });
        let waits = self.terminals.iter().filter_map(|terminal| match terminal {
            Doing::Waits(until) => Some(*until),
            _ => None,
        });
        let Some(next) = waits.chain(deadline).min() else { return };
        if self.alarm_at.is_none_or(|alarm_at| next < alarm_at) {
            self.alarm_at = Some(next);
            at.alarm(next.since(at.instant), u32::from(port.0));
        }
    }
}
