//! A cluster in virtual time.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use onepipe_base::{Port, ProcessId, Timestamp};
use onepipe_sim_network::NodeContext;
use onepipe_transaction::{CatchUpOptions, Client, Replica, State};

use crate::environment::{Environment, FabricSetup, Program};
use crate::load::Load;
use crate::node::Node;
use crate::server::Server;
use crate::setup::Setup;

/// The replicas and clients of a cluster, and the load.
#[derive(Debug)]
pub struct Transactions<S, L> {
    setup: Setup,
    load: L,
    state: PhantomData<S>,
}

impl<S: State, L: Load<S>> Transactions<S, L> {
    /// Builds the replica of a process. From the second incarnation on it has to catch up: its
    /// state was lost with the previous one.
    fn build_replica(&mut self, process: ProcessId, shard: u16, incarnation: u32) -> Replica<S> {
        let (state, options) = (self.load.state(shard), self.setup.replica);
        if incarnation == 1 {
            return Replica::new(shard, state, options);
        }
        let session = incarnation.into();
        let catch_up = CatchUpOptions::new(session, self.setup.client.timeout_ns);
        let placement = self.setup.placement.clone();
        Replica::returning((process, shard), placement, state, options, catch_up)
    }
}

impl<S: State, L: Load<S>> Program for Transactions<S, L> {
    type Server = Server<S>;

    fn fabric(&self) -> FabricSetup<'_> {
        let Setup { plan, processes, cpu, contact_ns, .. } = &self.setup;
        FabricSetup { plan, processes: *processes, cpu: *cpu, contact_ns: *contact_ns }
    }

    fn build_server(&mut self, process: ProcessId, incarnation: u32) -> Server<S> {
        let shard = self.setup.placement.shard_of(process);
        let replica = shard.map(|shard| self.build_replica(process, shard, incarnation));
        let client = self.setup.clients.contains(&process.0).then(|| {
            let session = u64::from(incarnation);
            (session, Client::new(session, self.setup.placement.clone(), self.setup.client))
        });
        Server::new(process, replica, client, self.setup.terminals)
    }

    fn serve(
        &mut self,
        server: &mut Server<S>,
        at: &mut NodeContext<'_>,
        endpoint: (&mut Node, Port),
        drained: Option<Timestamp>,
    ) {
        server.serve(at, endpoint, drained, &mut self.load);
    }
}

/// Replicas and clients in a simulated fabric of the real endpoints, switches and controller.
pub struct Cluster<S: State, L: Load<S>>(Environment<Transactions<S, L>>);

impl<S: State, L: Load<S>> Deref for Cluster<S, L> {
    type Target = Environment<Transactions<S, L>>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<S: State, L: Load<S>> DerefMut for Cluster<S, L> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl<S: State, L: Load<S>> Cluster<S, L> {
    /// Builds the cluster and starts it.
    ///
    /// # Panics
    /// The processes do not fit the fabric, or leave a host partly filled.
    pub fn new(setup: Setup, load: L) -> Self {
        Self(Environment::new(Transactions { setup, load, state: PhantomData }))
    }

    /// Returns the load.
    pub fn load(&self) -> &L {
        &self.program().load
    }

    /// Returns the load for changes. Terminals that wait or have ended are asked again after
    /// [`Environment::wake`].
    pub fn load_mut(&mut self) -> &mut L {
        &mut self.program_mut().load
    }

    /// Returns the setup.
    pub fn setup(&self) -> &Setup {
        &self.program().setup
    }

    /// Returns the replica of a process, if it runs and has one.
    pub fn replica(&self, process: ProcessId) -> Option<&Replica<S>> {
        self.server(process)?.replica.as_ref()
    }

    /// Returns the client of a process, if it runs and has one.
    pub fn client(&self, process: ProcessId) -> Option<&Client> {
        self.server(process)?.client.as_ref()
    }

    /// Returns the number of replicas that have not caught up.
    pub fn catching_up(&self) -> usize {
        let replicas = self.servers().filter_map(|server| server.replica.as_ref());
        replicas.filter(|replica| !replica.is_serving()).count()
    }
}
