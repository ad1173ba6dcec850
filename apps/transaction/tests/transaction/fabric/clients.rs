//! Clients: what they submit, and what they see.

use std::collections::BTreeMap;

use onepipe_base::{Mono, ProcessId, Timestamp};
use onepipe_transaction::{
    Client, ClientOptions, Committed, Finished, Kind, ReadMode, TransactionError,
};

use super::{CLIENTS, FIRST_CLIENT, Fabric, LAG_MAX_NS, SHARDS, TIMEOUT_NS, placement, shard_of};

/// A transaction as its client saw it.
#[derive(Debug)]
pub struct Observed {
    pub client: usize,
    pub kind: Kind,
    pub parts: Vec<(u16, Vec<u8>)>,
    pub invoked: u64,
    pub completed: u64,
    pub committed: Committed,
}

impl Observed {
    /// Whether the transaction has written to a shard.
    pub fn is_write_to(&self, shard: u16) -> bool {
        self.kind == Kind::Write && self.parts.iter().any(|(of, _)| *of == shard)
    }
}

/// A write that a client has sent.
#[derive(Debug)]
pub struct Sent {
    pub from: ProcessId,
    pub session: u64,
    pub number: u64,
    pub parts: BTreeMap<u16, Vec<u8>>,
    /// Its timestamp. If no correct replica has received the write in its run: the end of that.
    pub effective: Timestamp,
}

/// Returns the options of a client. Timeouts that follow response times may be shorter
/// than [`TIMEOUT_NS`].
pub fn client_options(is_durable: bool) -> ClientOptions {
    ClientOptions {
        is_durable,
        timeout_ns: TIMEOUT_NS,
        timeout_min_ns: LAG_MAX_NS,
        ..ClientOptions::default()
    }
}

impl Fabric {
    /// Submits a random transaction.
    pub(super) fn submit(&mut self) {
        let client = self.random.below(u64::from(CLIENTS)) as usize;
        let kind = match self.random.below(4) {
            0 => Kind::Read(ReadMode::Strict),
            1 => Kind::Read(ReadMode::Snapshot),
            _ => Kind::Write,
        };
        let mut parts = Vec::new();
        let first = self.random.below(u64::from(SHARDS)) as u16;
        for shard in first..SHARDS {
            let register = self.random.below(2) as u8;
            let added = if kind == Kind::Write { self.random.below(200) as u8 + 1 } else { 0 };
            parts.push((shard, vec![register, added]));
        }
        let submitted = self.clients[client].submit(kind, parts.clone());
        let id = submitted.expect("few are unfinished");
        self.started.insert((client, id), (self.clock, kind, parts));
    }

    /// Sends what clients have for replicas.
    pub(super) fn send_of_clients(&mut self) {
        for client in 0..self.clients.len() {
            let now = Mono::from_ns(self.clock);
            self.clients[client].handle_timeout(now);
            let barrier = self.barrier(ProcessId(FIRST_CLIENT + client as u32));
            while let Some(scattering) =
                self.clients[client].poll_scattering(now, Some(Timestamp::from_ns(barrier)))
            {
                if self.random.percent(5) {
                    self.clients[client].on_refused(&scattering);
                    break;
                }
                self.send(client, &scattering);
            }
        }
    }

    /// Takes the outcomes of transactions.
    pub(super) fn finish(&mut self) {
        for client in 0..self.clients.len() {
            while let Some(Finished { transaction, outcome }) = self.clients[client].poll_finished()
            {
                let started = self.started.remove(&(client, transaction));
                let (invoked, kind, parts) = started.expect("a transaction ends once");
                if let Err(error) = &outcome
                    && self.may_fail(*error)
                {
                    continue;
                }
                let committed = outcome.expect("a replica of each shard is up");
                let completed = self.clock;
                if self.faults.is_durable && kind == Kind::Write {
                    self.check_stored(committed.at, &parts);
                }
                let client = client + self.generations[client];
                let observed = Observed { client, kind, parts, invoked, completed, committed };
                self.observed.push(observed);
            }
        }
    }

    /// Whether a transaction of a client may fail.
    fn may_fail(&self, error: TransactionError) -> bool {
        self.faults.restarts > 0
            && match error {
                // A client searches a few times for a replica that was admitted again.
                TransactionError::Unavailable(shard) => {
                    let has_ended =
                        self.ended.iter().any(|(process, _)| shard_of(*process) == shard);
                    self.has_outage || has_ended
                }
                TransactionError::Restarted => true,
                TransactionError::Refused(_) | TransactionError::TooLarge => false,
            }
    }

    pub fn disagreements(&self) -> u64 {
        let of = |client: &Client| client.stats().disagreements;
        self.disagreements + self.clients.iter().map(of).sum::<u64>()
    }

    /// Starts a client in place of one without unfinished transactions. The new one takes all
    /// replicas for up; its scatterings to a failed one are reported to it as failed.
    pub(super) fn start_client(&mut self) {
        let idle = self.clients.iter().position(|client| client.unfinished() == 0);
        if let Some(idle) = idle {
            self.replace_client(idle);
        }
    }

    pub(super) fn replace_client(&mut self, index: usize) {
        let options = client_options(self.faults.is_durable);
        let client = Client::new(self.clock, placement(), options);
        let ended = std::mem::replace(&mut self.clients[index], client);
        self.disagreements += ended.stats().disagreements;
        self.generations[index] += CLIENTS as usize;
    }
}
