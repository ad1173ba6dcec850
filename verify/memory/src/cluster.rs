//! A cluster in virtual time.

use std::ops::{Deref, DerefMut};

use onepipe_base::{Port, ProcessId, Timestamp};
use onepipe_memory::MemoryOwner;
use onepipe_sim_network::NodeContext;
use onepipe_table::TableClient;
use onepipe_verify_transactions::{Environment, FabricSetup, Node, Program};

use crate::load::Load;
use crate::server::Server;
use crate::setup::Setup;
use crate::terminals::Terminals;

/// The owners and clients of a cluster, and the load.
#[derive(Debug)]
pub struct Tables<L> {
    setup: Setup,
    load: L,
}

impl<L: Load> Program for Tables<L> {
    type Server = Server;

    fn fabric(&self) -> FabricSetup<'_> {
        let Setup { plan, processes, cpu, .. } = &self.setup;
        FabricSetup { plan, processes: *processes, cpu: *cpu, contact_ns: 0 }
    }

    fn build_server(&mut self, process: ProcessId, incarnation: u32) -> Server {
        // Memory is lost with its process: an owner that starts again has no regions.
        let owner = match incarnation {
            1 => self.setup.owner(process, &mut self.load).map(|(owner, _)| owner),
            _ => None,
        };
        let session = u64::from(incarnation);
        let (is_client, setup) = (self.setup.clients.contains(&process.0), &self.setup);
        let client = is_client
            .then(|| TableClient::new(session, setup.layout, setup.replicas.clone(), setup.table));
        let terminals = if is_client { setup.terminals } else { 0 };
        Server::new(owner, client, Terminals::new(process, session, terminals))
    }

    fn serve(
        &mut self,
        server: &mut Server,
        at: &mut NodeContext<'_>,
        endpoint: (&mut Node, Port),
        drained: Option<Timestamp>,
    ) {
        server.serve(at, endpoint, drained, &mut self.load);
    }
}

/// Owners and clients in a simulated fabric of the real endpoints, switches and controller.
pub struct Cluster<L: Load>(Environment<Tables<L>>);

impl<L: Load> Deref for Cluster<L> {
    type Target = Environment<Tables<L>>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<L: Load> DerefMut for Cluster<L> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl<L: Load> Cluster<L> {
    /// Builds the cluster and starts it.
    ///
    /// # Panics
    /// The processes do not fit the fabric, or leave a host partly filled.
    pub fn new(setup: Setup, load: L) -> Self {
        Self(Environment::new(Tables { setup, load }))
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

    /// Returns the owner of a process, if it runs and has one.
    pub fn owner(&self, process: ProcessId) -> Option<&MemoryOwner> {
        self.server(process)?.owner.as_ref()
    }

    /// Returns the client of a process, if it runs and has one.
    pub fn client(&self, process: ProcessId) -> Option<&TableClient> {
        self.server(process)?.client.as_ref()
    }
}
