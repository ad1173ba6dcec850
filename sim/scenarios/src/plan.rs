//! Everything that a run depends on.

use onepipe_base::{Controllers, Incarnation, ProcessId};
use onepipe_sim_network::{Load, Placement, origin_of};
use onepipe_switch::Form;
use onepipe_topology::{Route, Shape, Table};

use crate::Bug;

/// The controllers of a fabric and their store. The replicas sit on the last process ids.
#[derive(Clone, Debug)]
pub struct Court {
    /// How many replicas.
    pub replicas: u32,
    /// Every replica; who it is is filled in.
    pub controller: onepipe_controller::Config,
    /// The store answers within twice this, in ns.
    pub store_ns: u64,
    /// How often an answer of the store is lost, in parts per million: it says that it has failed,
    /// yet it has written.
    pub answers_lost_ppm: u32,
    /// An active replica that has not renewed for so long may be succeeded, in ns.
    pub lease_ns: u64,
    /// How often a replica renews its lease, or asks for it, in ns.
    pub renew_ns: u64,
}

impl Court {
    /// A court whose times suit a fabric with beacons every `beacon_interval_ns`: those of a real
    /// one, as far as they wait for people or disks, shortened a hundred times, so that a run may
    /// be short.
    pub fn new(replicas: u32, beacon_interval_ns: u64) -> Self {
        let nobody = Controllers { first: ProcessId(0), count: 1 };
        let controller = onepipe_controller::Config {
            hello_interval_ns: 3 * beacon_interval_ns,
            settle_ns: 3 * beacon_interval_ns,
            grace_ns: 1_000_000,
            freeze_after_ns: 100_000,
            inexact_after_ns: 10_000_000,
            repeat_ns: 7 * beacon_interval_ns,
            repeat_slow_ns: 100_000,
            restart_ns: 500_000,
            ping_timeout_ns: 300_000,
            store_retry_ns: 50_000,
            isolated_after_ns: 500_000,
            ..onepipe_controller::Config::new(ProcessId(0), nobody)
        };
        Self {
            replicas,
            controller,
            store_ns: 5_000,
            answers_lost_ppm: 0,
            lease_ns: 200_000,
            renew_ns: 50_000,
        }
    }
}

/// Announcements when nothing has changed, in a fabric with a [`Court`], in ns.
const ANNOUNCE_INTERVAL_NS: u64 = 100_000;

/// Everything that a run depends on: equal plans give equal histories.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The switches and hosts.
    pub shape: Shape,
    /// Processes on each host.
    pub processes_per_host: u16,
    /// Whatever is left to chance.
    pub seed: u64,
    /// Links, queues, CPUs and clocks.
    pub network: onepipe_sim_network::Config,
    /// Every endpoint; who it is is filled in.
    pub endpoint: onepipe_endpoint::Config,
    /// Every switch, virtual ones included; ports and routes are filled in.
    pub switch: onepipe_switch::Config,
    /// What the processes say of their own accord.
    pub load: Option<Load>,
    /// When the load starts, in ns: everybody has joined by then.
    pub load_starts_ns: u64,
    /// How much of it goes by the reliable service, in percent of the scatterings.
    pub reliable_percent: u32,
    /// Who resolves failures, if anybody.
    pub court: Option<Court>,
    /// How long an application takes to come back from the callback for a failure, in ns.
    pub callback_ns: u64,
    /// What is wrong on purpose.
    pub bug: Option<Bug>,
    /// Whether a pair's messages shall come in the order of submission, not only of timestamps.
    pub checks_submission_order: bool,
}

impl Plan {
    /// The defaults for a shape. `run_ns`: about how long the run will be, so that a wrap of the
    /// wire's clock can be put into its middle (every fourth seed).
    pub fn new(shape: Shape, processes_per_host: u16, seed: u64, run_ns: u64) -> Self {
        let network = onepipe_sim_network::Config {
            sync_origin: origin_of(seed, run_ns / 2),
            ..onepipe_sim_network::Config::default()
        };
        let route = Route::Table(Table::new(1, false));
        Self {
            shape,
            processes_per_host,
            seed,
            network,
            endpoint: onepipe_endpoint::Config::new(ProcessId(0), Incarnation(0)),
            switch: onepipe_switch::Config::new(1, 1, route),
            load: None,
            load_starts_ns: 100_000,
            reliable_percent: 0,
            court: None,
            callback_ns: 0,
            bug: None,
            checks_submission_order: false,
        }
    }

    /// Lets the switches' machines run there, at beacon intervals that they sustain. To be called
    /// when the interval is set.
    pub fn set_placement(&mut self, placement: Placement) {
        let Some(aside) = placement.aside() else { return };
        self.network.aside = Some(aside);
        self.switch.form = Form::Beside;
        self.endpoint.awaits_commits = true;
        let least_ns = placement.beacon_interval_ns_min();
        if self.switch.beacon_interval_ns < least_ns {
            self.set_beacon_interval(least_ns);
        }
        let detour_ns = aside.there_ns + aside.back_ns;
        self.switch.start_wait_ns += 2 * detour_ns;
        // Who is alone at first is told so, and more only when each switch on its way has begun to
        // speak and was heard: five of them, up and down.
        self.load_starts_ns += self.switch.start_wait_ns + 10 * detour_ns;
    }

    /// Beacons so often, in ns, and links that are missed after ten of them (1Pipe section 7.2).
    pub fn set_beacon_interval(&mut self, interval_ns: u64) {
        self.switch.beacon_interval_ns = interval_ns;
        self.switch.link_timeout_ns = 10 * interval_ns;
        self.switch.start_wait_ns = 3 * interval_ns;
        self.endpoint.beacon_interval_ns = interval_ns;
        self.endpoint.link_timeout_ns = 10 * interval_ns;
    }

    /// Gives the fabric controllers.
    pub fn set_court(&mut self, court: Court) {
        (self.switch.announce_interval_ns, self.endpoint.announce_interval_ns) =
            (ANNOUNCE_INTERVAL_NS, ANNOUNCE_INTERVAL_NS);
        self.court = Some(court);
    }

    /// The ids of the controllers among `processes`.
    pub fn controllers(&self, processes: u32) -> Option<Controllers> {
        let count = self.court.as_ref()?.replicas;
        Some(Controllers { first: ProcessId(processes.checked_sub(count)?), count })
    }

    /// How long a healthy fabric takes to deliver, and a healed one to be healthy, in ns
    /// (testing.md, bounds for L): base delay + skew + beacon / 2, and detection (10 beacon
    /// intervals) + 6 diameters + 15 us a host. A process promises no more than the timestamp of
    /// the scattering that is leaving it: so there is also the time in which one of everybody gets
    /// over one link.
    pub fn liveness_bound_ns(&self, hosts: u32, hops_max: u32, skew_ns: u64) -> u64 {
        let hop_ns = |link: &onepipe_sim_network::LinkConfig| {
            let bytes = link.queue_bytes_max + self.network.frame_len_max as u64;
            link.propagation_ns + bytes * 8 * 1_000_000_000 / link.rate_bits_per_s
        };
        let hop_ns = hop_ns(&self.network.host_link).max(hop_ns(&self.network.switch_link));
        // 64 frames of a round of beacons may be before one.
        let aside_ns = self.network.aside.map_or(0, |aside| {
            aside.there_ns + aside.back_ns + 64 * (aside.receive_ns + aside.send_ns)
        });
        let hop_ns = hop_ns + aside_ns;
        let cpu = self.network.cpu;
        let cpu_ns = cpu.poll_ns + (cpu.receive_ns + cpu.send_ns) * cpu.ring_frames_max as u64;
        let diameter_ns = u64::from(hops_max) * hop_ns + 2 * cpu_ns;
        let beacon_ns = self.switch.beacon_interval_ns.max(self.endpoint.beacon_interval_ns);
        let healthy_ns = diameter_ns + skew_ns + beacon_ns / 2;
        let bound_ns = healthy_ns + 10 * beacon_ns + 6 * diameter_ns + 15_000 * u64::from(hosts);
        let bytes = self.load.map_or(0, |load| load.workload.scattering_bytes_max())
            * u64::from(hosts)
            * u64::from(self.processes_per_host);
        let rates =
            [&self.network.host_link, &self.network.switch_link].map(|link| link.rate_bits_per_s);
        let bound_ns = bound_ns + bytes * 8 * 1_000_000_000 / rates[0].min(rates[1]);
        bound_ns + self.court.as_ref().map_or(0, |court| self.court_bound_ns(court))
    }

    /// What the controllers' own times add: a new one to take over and to learn the state of the
    /// network, and what it waits for before each of its decisions.
    fn court_bound_ns(&self, court: &Court) -> u64 {
        let controller = &court.controller;
        let take_over_ns = court.lease_ns + court.renew_ns + ANNOUNCE_INTERVAL_NS;
        let store_ns = 2 * court.store_ns + controller.store_retry_ns;
        // While reports come in it looks after eight times `settle_ns` at the latest.
        let decide_ns = 8 * controller.settle_ns
            + controller.freeze_after_ns
            + controller.grace_ns
            + controller.ping_timeout_ns;
        // A failure, a second one that comes up by it, and the way back of the excluded.
        take_over_ns + 3 * (decide_ns + 3 * store_ns + controller.restart_ns) + self.callback_ns
    }
}
