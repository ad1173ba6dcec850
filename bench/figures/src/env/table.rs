//! A hash table in the memory of others on 1Pipe's testbed.

use anyhow::Result;
use onepipe_verify_memory::{Figures, Operations, Protocol, RatesRun};
use onepipe_verify_transactions::Costs;
use serde::{Deserialize, Serialize};

use super::threads::Threads;
use crate::values::Values;

/// How clients access the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// By ordered operations on all replicas.
    Ordered,
    /// Look-ups by operations without an order on the leader. Insertions, too, by fenced ones, if
    /// there is one replica; otherwise the leader's program inserts and replicates.
    Leader,
}

/// Parameters of a run of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// How clients access it.
    pub access: Access,
    /// Whether clients insert; otherwise they look up.
    pub inserts: bool,
    /// Replicas of each shard.
    pub replicas: u32,
    /// Calls in flight of each client.
    pub in_flight: u32,
    /// The threads of a process.
    pub threads: Threads,
}

impl Table {
    /// Runs it. Returns the rate of a client `kops` in thousands a second, the latencies
    /// `latency_us` (mean) and `latency_p99_us`; for clients and servers the messages and
    /// acknowledgements of a call and the CPU time of their threads, such as `client_messages`,
    /// `client_acks`, `client_sending` and `client_polling`; and `server_bound_kops`, the rate at
    /// which one of the servers' threads would be busy all the time.
    ///
    /// # Errors
    /// The processes do not fit the testbed.
    pub fn run(&self) -> Result<Values> {
        let operations = if self.inserts { Operations::Insert } else { Operations::LookUp };
        let protocol = match self.access {
            Access::Ordered => Protocol::Ordered,
            Access::Leader if self.inserts && self.replicas == 1 => Protocol::Fenced,
            Access::Leader => Protocol::Leader,
        };
        let run = RatesRun::new(protocol, operations, self.replicas);
        let costs = Costs { cpu: self.threads.cpu(), ..Costs::PAPER };
        let run = RatesRun { in_flight: self.in_flight, costs, ..run };
        let Figures { per_s, latency, failed, clients, servers } = run.run()?;
        anyhow::ensure!(failed == 0, "{self:?}: {failed} calls have failed");
        let mut values = Values::new();
        let mut put = |name: &str, value: f64| values.insert(name.to_owned(), value);
        put("kops", per_s / 1e3);
        put("server_bound_kops", per_s / 1e3 / servers.sending.max(servers.polling));
        put("latency_us", latency.mean_us);
        put("latency_p99_us", latency.p99_us);
        for (role, used) in [("client", clients), ("server", servers)] {
            put(&format!("{role}_messages"), used.messages);
            put(&format!("{role}_acks"), used.acks);
            put(&format!("{role}_sending"), used.sending);
            put(&format!("{role}_polling"), used.polling);
        }
        Ok(values)
    }
}
