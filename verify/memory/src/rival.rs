//! A cluster of a rival in virtual time: plain datagrams through switches that only forward.

use onepipe_base::{Mono, Port, ProcessId, Timestamp};
use onepipe_memory::{MemoryOwner, RegionId, Request};
use onepipe_sim_engine::{Instant, NANOSECOND};
use onepipe_sim_network::NodeContext;
use onepipe_table::{Leader, RivalClient, RivalOptions};
use onepipe_verify_transactions::{RivalNetwork, RivalNode, RivalProgram, Sent};

use crate::load::{Command, Load};
use crate::setup::Setup;
use crate::terminals::Terminals;

/// The replica or the client of a process.
#[derive(Debug)]
struct RivalServer {
    /// Memory without an order: it executes operations as they arrive, and its own count of them
    /// is their timestamp.
    owner: Option<(MemoryOwner, u64)>,
    leader: Option<(u16, Leader)>,
    client: Option<RivalClient>,
    terminals: Terminals,
    is_active: bool,
    alarm_at: Option<Instant>,
}

impl RivalServer {
    fn on_message(&mut self, now: Mono, from: ProcessId, payload: &[u8]) {
        self.is_active = true;
        match (&mut self.owner, &mut self.leader, &mut self.client) {
            (Some((owner, arrivals)), _, _) if Request::is_request(payload) => {
                *arrivals += 1;
                owner.on_message(true, Timestamp::from_ns(*arrivals), from, payload);
            }
            (Some((owner, _)), Some((shard, leader)), _) => {
                let region = owner.region_mut(RegionId((*shard).into()));
                let region = region.expect("the region of the program's shard");
                leader.on_message(now, from, payload, region.bytes_mut());
            }
            (_, _, Some(client)) => client.on_message(now, from, payload),
            _ => {}
        }
    }

    fn serve(
        &mut self,
        at: &mut NodeContext<'_>,
        (machine, port): (&mut RivalNode, Port),
        load: &mut impl Load,
    ) {
        if !std::mem::take(&mut self.is_active) {
            return;
        }
        let now = at.now.mono;
        if let Some((_, leader)) = &mut self.leader {
            leader.handle_timeout(now);
        }
        if let Some(client) = &mut self.client {
            client.handle_timeout(now);
            while let Some(finished) = client.poll_finished() {
                self.terminals.on_finished(at.instant, finished, load);
            }
            self.terminals.run(at.instant, load, |key, command| match command {
                Command::LookUp => client.look_up(key),
                Command::Insert(value) => client.insert(now, key, &value),
                Command::Update(_) | Command::Delete => {
                    unreachable!("the load of a rival inserts and looks up")
                }
            });
        }
        if let Some(process) = machine.host_mut().and_then(|host| host.process_mut(port)) {
            if let Some((owner, _)) = &mut self.owner {
                let replies = std::iter::from_fn(|| owner.poll_reply());
                replies.for_each(|reply| process.send(reply.to, reply.payload));
            }
            if let Some((_, leader)) = &mut self.leader {
                let messages = std::iter::from_fn(|| leader.poll_message());
                messages.for_each(|(to, payload)| process.send(to, payload));
            }
            if let Some(client) = &mut self.client {
                let messages = std::iter::from_fn(|| client.poll_message(now));
                messages.for_each(|(to, payload)| process.send(to, payload));
            }
        }
        self.set_alarm(at, port);
    }

    fn set_alarm(&mut self, at: &mut NodeContext<'_>, port: Port) {
        let of_leader = self.leader.as_ref().and_then(|(_, leader)| leader.poll_timeout());
        let of_client = self.client.as_ref().and_then(RivalClient::poll_timeout);
        let deadline = Mono::earlier(of_client, of_leader).map(|deadline| {
            let wait_ns = deadline.as_ns().saturating_sub(at.now.mono.as_ns());
            at.instant.after(wait_ns.max(1) * NANOSECOND)
        });
        let Some(next) = self.terminals.next_at().into_iter().chain(deadline).min() else { return };
        if self.alarm_at.is_none_or(|alarm_at| next < alarm_at) {
            self.alarm_at = Some(next);
            at.alarm(next.since(at.instant), u32::from(port.0));
        }
    }
}

/// The rival's options, its load and its setup.
struct Tables<L> {
    setup: Setup,
    options: RivalOptions,
    load: L,
}

impl<L: Load> RivalProgram for Tables<L> {
    type Server = RivalServer;

    fn build(&mut self, process: ProcessId) -> RivalServer {
        let setup = &self.setup;
        let owned = setup.owner(process, &mut self.load);
        let leader = owned.as_ref().filter(|_| self.options.asks_leader).map(|(_, used)| {
            let (shard, nodes) = used[0];
            let replicas = &setup.replicas[usize::from(shard)];
            let timeout_ns = self.options.timeout_ns;
            (shard, Leader::new(setup.layout, (shard, nodes), process, replicas, timeout_ns))
        });
        let is_client = setup.clients.contains(&process.0);
        let client = is_client.then(|| {
            let leaders = setup.replicas.iter().map(|replicas| replicas[0]).collect();
            RivalClient::new(1, setup.layout, leaders, self.options)
        });
        let terminals = Terminals::new(process, 1, if is_client { setup.terminals } else { 0 });
        RivalServer {
            owner: owned.map(|(owner, _)| (owner, 0)),
            leader,
            client,
            terminals,
            is_active: true,
            alarm_at: None,
        }
    }

    fn on_message(server: &mut RivalServer, now: Mono, from: ProcessId, payload: &[u8]) {
        server.on_message(now, from, payload);
    }

    fn on_alarm(server: &mut RivalServer) {
        (server.alarm_at, server.is_active) = (None, true);
    }

    fn serve(
        &mut self,
        server: &mut RivalServer,
        at: &mut NodeContext<'_>,
        endpoint: (&mut RivalNode, Port),
    ) {
        server.serve(at, endpoint, &mut self.load);
    }
}

/// Replicas and clients of a rival in the simulated network.
pub(crate) struct RivalCluster<L: Load> {
    nodes: RivalNetwork<Tables<L>>,
}

impl<L: Load> RivalCluster<L> {
    /// Builds the cluster and starts it.
    pub fn new(setup: Setup, options: RivalOptions, load: L) -> Self {
        let (plan, processes, cpu) = (setup.plan.clone(), setup.processes, setup.cpu);
        let program = Tables { setup, options, load };
        Self { nodes: RivalNetwork::new(&plan, processes, cpu, program) }
    }

    pub fn run_ns(&mut self, ns: u64) {
        self.nodes.run_ns(ns);
    }

    pub fn load_mut(&mut self) -> &mut L {
        &mut self.nodes.program_mut().load
    }

    /// Returns what a process has sent.
    pub fn sent(&self, process: ProcessId) -> Sent {
        self.nodes.sent(process)
    }

    /// Returns the number of calls in flight.
    pub fn in_flight(&self) -> usize {
        self.nodes.servers().map(|server| server.terminals.in_flight()).sum()
    }

    /// Returns the memory of a process.
    pub fn owner(&self, process: ProcessId) -> Option<&MemoryOwner> {
        self.nodes.server(process)?.owner.as_ref().map(|(owner, _)| owner)
    }
}
