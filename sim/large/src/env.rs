//! A simulated network of processes and switches.

use onepipe_large::LargeEndpoint;
use onepipe_sim_engine::{Instant, NANOSECOND};
use onepipe_sim_network::{ClockConfig, Config, Fault, LinkFaults, Loss, Network, NodeId};
use onepipe_topology::Topology;

use crate::application::{Report, Workload};
use crate::node::{Node, process};
use crate::setup::Setup;

/// A network at the start of virtual time.
#[derive(Debug)]
pub struct SimEnv {
    network: Network<Node, Workload>,
    setup: Setup,
}

impl SimEnv {
    /// Builds the network of `setup`.
    ///
    /// # Panics
    /// If it has more processes than the fabric has hosts, or a number is out of range.
    pub fn new(setup: Setup) -> Self {
        let topology = Topology::new(setup.shape, 1).expect("a host has one process");
        let host_count = topology.hosts() - u32::from(setup.has_controller);
        assert!(setup.processes <= host_count, "a process has a host of its own");
        let config = Config {
            host_link: setup.host_link,
            switch_link: setup.switch_link,
            clocks: ClockConfig { offset_ns_max: setup.clock_ns, drift_ppb_max: 0 },
            frame_len_max: setup.frame_len_max,
            class: Setup::class,
            ..Config::default()
        };
        let workload = Workload::new(setup.clone(), topology.clone());
        let mut network = Network::new(topology, config, setup.seed, workload);
        if setup.loss_ppm > 0 {
            let faults =
                LinkFaults { loss: Loss::uniform(setup.loss_ppm), ..LinkFaults::default() };
            let links: Vec<_> = network.links().map(|(link, ..)| link).collect();
            links.into_iter().for_each(|link| network.inject(Fault::SetLinkFaults(link, faults)));
        }
        let at = |ns: u64| Instant::from_ps(ns * NANOSECOND);
        for (process, ns) in &setup.crashes {
            network.schedule(at(*ns), Fault::Crash(NodeId(*process)));
        }
        for (process, ns, frames) in &setup.crashes_after {
            network.schedule(at(*ns), Fault::CrashAfter(NodeId(*process), *frames));
        }
        Self { network, setup }
    }

    /// Runs for `ns` ns of virtual time.
    pub fn run(mut self, ns: u64) -> Report {
        self.network.run_for(ns * NANOSECOND);
        let mut report = std::mem::take(&mut self.network.application.report);
        let processes = (0..self.setup.processes).map(NodeId);
        let processes = processes.map(|node| self.network.machine(node).and_then(process));
        for process in processes {
            process.into_iter().for_each(LargeEndpoint::check_invariants);
            report.bytes_held.push(process.map(|process| process.buffered_bytes().1));
            report.is_drained.push(process.map(|process| process.is_drained()));
            report.stats.push(process.map(|process| *process.stats()));
        }
        report.trace_hash = self.network.trace_hash();
        report
    }
}
