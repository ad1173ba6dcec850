//! All parameters of a run.

use onepipe_base::{Controllers, Incarnation, ProcessId};
use onepipe_sim_network::{Load, Placement, clock_origin};
use onepipe_switch::Form;
use onepipe_topology::{ForwardingTable, Route, Shape};

use crate::Bug;

/// The controllers of a fabric and their store. The replicas have the last process ids.
#[derive(Clone, Debug)]
pub struct ControlPlanePlan {
    /// Number of replicas.
    pub replicas: u32,
    /// Configuration of every replica; its identity is filled in.
    pub controller: onepipe_controller::Config,
    /// Delay of the store in ns: each request and each reply takes up to this.
    pub store_ns: u64,
    /// Probability that a write reports a failure although it succeeded, in parts per million.
    pub reply_loss_ppm: u32,
    /// Lease duration in ns: an active replica that has not renewed it may be succeeded.
    pub lease_ns: u64,
    /// Interval at which a replica renews or requests its lease, in ns.
    pub renew_ns: u64,
}

impl ControlPlanePlan {
    /// Creates a plan with timeouts for a fabric with the given beacon interval. The timeouts that
    /// allow for disks and for restarts by people are a hundred times shorter than in a real
    /// deployment, so that runs can be short.
    pub fn new(replicas: u32, beacon_interval_ns: u64) -> Self {
        let placeholder = Controllers { first: ProcessId(0), count: 1 };
        let controller = onepipe_controller::Config {
            hello_interval_ns: 3 * beacon_interval_ns,
            quiet_ns: 3 * beacon_interval_ns,
            grace_ns: 1_000_000,
            freeze_after_ns: 100_000,
            inexact_after_ns: 10_000_000,
            retransmit_ns: 7 * beacon_interval_ns,
            retransmit_max_ns: 100_000,
            restart_ns: 500_000,
            ping_timeout_ns: 300_000,
            store_retry_ns: 50_000,
            isolated_after_ns: 500_000,
            ..onepipe_controller::Config::new(ProcessId(0), placeholder)
        };
        Self {
            replicas,
            controller,
            store_ns: 5_000,
            reply_loss_ppm: 0,
            lease_ns: 200_000,
            renew_ns: 50_000,
        }
    }
}

/// Interval between announcements without changes, in a fabric with controllers, in ns.
const ANNOUNCE_INTERVAL_NS: u64 = 100_000;

/// All parameters of a run: equal plans give equal histories.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Switches and hosts.
    pub shape: Shape,
    /// Number of processes on each host.
    pub processes_per_host: u16,
    /// Seed of all random streams.
    pub seed: u64,
    /// Links, queues, CPUs and clocks.
    pub network: onepipe_sim_network::Config,
    /// Configuration of every endpoint; its identity is filled in.
    pub endpoint: onepipe_endpoint::Config,
    /// Configuration of every switch, virtual ones included; ports and routes are filled in.
    pub switch: onepipe_switch::Config,
    /// Load that the processes generate, if any.
    pub load: Option<Load>,
    /// Start of the load in ns; all processes have joined by then.
    pub load_starts_ns: u64,
    /// Whether all messages of a scattering have one payload, that of its first message.
    pub repeats_payloads: bool,
    /// Share of scatterings that use the reliable service, in percent.
    pub reliable_percent: u32,
    /// The controllers, if there are any.
    pub control_plane: Option<ControlPlanePlan>,
    /// Duration of the application's failure callback, in ns.
    pub callback_ns: u64,
    /// Bug to inject, if any.
    pub bug: Option<Bug>,
    /// Whether messages of a pair of processes must arrive in the order of their submission in
    /// addition to the order of their timestamps.
    pub checks_submission_order: bool,
    /// Number of ids, behind those of all processes and controllers, that no process ever has.
    pub absent: u32,
}

impl Plan {
    /// Creates a plan with defaults for a shape. `run_ns` is the approximate length of the run: for
    /// every fourth seed a wrap of the wire timestamp is placed in its middle.
    pub fn new(shape: Shape, processes_per_host: u16, seed: u64, run_ns: u64) -> Self {
        let network = onepipe_sim_network::Config {
            sync_origin: clock_origin(seed, run_ns / 2),
            ..onepipe_sim_network::Config::default()
        };
        let route = Route::ForwardingTable(ForwardingTable::new(1, false));
        Self {
            shape,
            processes_per_host,
            seed,
            network,
            endpoint: onepipe_endpoint::Config::new(ProcessId(0), Incarnation(0)),
            switch: onepipe_switch::Config::new(1, 1, route),
            load: None,
            load_starts_ns: 100_000,
            repeats_payloads: false,
            reliable_percent: 0,
            control_plane: None,
            callback_ns: 0,
            bug: None,
            checks_submission_order: false,
            absent: 0,
        }
    }

    /// Sets where the switches' machines run, and raises the beacon interval to one that the
    /// placement sustains. Call this after setting the interval.
    pub fn set_placement(&mut self, placement: Placement) {
        let Some(off_chip_cpu) = placement.off_chip_cpu() else { return };
        self.network.off_chip_cpu = Some(off_chip_cpu);
        self.switch.form = Form::OffChip;
        self.endpoint.awaits_commits = true;
        let interval_ns_min = placement.beacon_interval_ns_min();
        if self.switch.beacon_interval_ns < interval_ns_min {
            self.set_beacon_interval(interval_ns_min);
        }
        let detour_ns = off_chip_cpu.to_cpu_ns + off_chip_cpu.to_chip_ns;
        self.switch.start_wait_ns += 2 * detour_ns;
        // A process that starts alone is notified that it is alone. It learns of the other
        // processes only after the switches on the path have received each other: up to five
        // switches, each with a detour for the way up and for the way down.
        self.load_starts_ns += self.switch.start_wait_ns + 10 * detour_ns;
    }

    /// Sets the beacon interval in ns; links time out after ten intervals (1Pipe section 7.2).
    pub fn set_beacon_interval(&mut self, interval_ns: u64) {
        self.switch.beacon_interval_ns = interval_ns;
        self.switch.link_timeout_ns = 10 * interval_ns;
        self.switch.start_wait_ns = 3 * interval_ns;
        self.endpoint.beacon_interval_ns = interval_ns;
        self.endpoint.link_timeout_ns = 10 * interval_ns;
    }

    /// Sends beacons on demand, with a heartbeat in every `intervals` beacon intervals. Call this
    /// after setting the interval and the placement.
    pub fn set_on_demand(&mut self, intervals: u64) {
        let heartbeat_ns = intervals * self.switch.beacon_interval_ns;
        self.switch.heartbeat_interval_ns = heartbeat_ns;
        self.endpoint.heartbeat_interval_ns = heartbeat_ns;
        // A solicited link must answer within the timeout. Unlike one of a stream of beacons, that
        // answer takes a round trip, through full queues and a busy CPU.
        let links = [&self.network.host_link, &self.network.switch_link];
        let one_way_ns = |link: &onepipe_sim_network::LinkConfig| {
            link.propagation_ns + link.queue_bytes_max * 8 * 1_000_000_000 / link.rate_bits_per_s
        };
        let one_way_ns = links.map(one_way_ns).into_iter().max().unwrap_or(0);
        let cpu_ns = self.network.off_chip_cpu.map_or(0, |cpu| {
            let busy_ns = if cpu.receive_ns > 0 { cpu.backlog_ns_max } else { 0 };
            cpu.to_cpu_ns + cpu.to_chip_ns + busy_ns
        });
        let timeout_ns = 10 * self.switch.beacon_interval_ns + 2 * (one_way_ns + cpu_ns);
        (self.switch.link_timeout_ns, self.endpoint.link_timeout_ns) = (timeout_ns, timeout_ns);
    }

    /// Adds controllers to the fabric.
    pub fn set_control_plane(&mut self, control_plane: ControlPlanePlan) {
        (self.switch.announce_interval_ns, self.endpoint.announce_interval_ns) =
            (ANNOUNCE_INTERVAL_NS, ANNOUNCE_INTERVAL_NS);
        self.control_plane = Some(control_plane);
    }

    /// Returns the ids of the controllers among `processes`.
    pub fn controllers(&self, processes: u32) -> Option<Controllers> {
        let count = self.control_plane.as_ref()?.replicas;
        Some(Controllers { first: ProcessId(processes.checked_sub(count)?), count })
    }

    /// Returns the time in which a healed fabric must be healthy again, in ns. It is the sum of
    ///
    /// - the delay of a healthy fabric: one diameter, the skew, and half a beacon interval;
    /// - the detection of a failure: ten beacon intervals;
    /// - the recovery: six diameters and 15 us per host;
    /// - the time to send one scattering of every process over one link, because a process promises
    ///   no more than the timestamp of the scattering that it is sending;
    /// - with controllers, their timeouts.
    pub fn liveness_bound_ns(&self, hosts: u32, hops_max: u32, skew_ns: u64) -> u64 {
        let hop_ns = |link: &onepipe_sim_network::LinkConfig| {
            let bytes = link.queue_bytes_max + self.network.frame_len_max as u64;
            link.propagation_ns + bytes * 8 * 1_000_000_000 / link.rate_bits_per_s
        };
        let hop_ns = hop_ns(&self.network.host_link).max(hop_ns(&self.network.switch_link));
        // An off-chip CPU may have to process 64 frames before one: of 32 ports, a beacon in each
        // direction.
        let off_chip_ns = self.network.off_chip_cpu.map_or(0, |off_chip_cpu| {
            off_chip_cpu.to_cpu_ns
                + off_chip_cpu.to_chip_ns
                + 64 * (off_chip_cpu.receive_ns + off_chip_cpu.send_ns)
        });
        let hop_ns = hop_ns + off_chip_ns;
        let cpu = self.network.cpu;
        let cpu_ns = cpu.poll_ns + (cpu.receive_ns + cpu.send_ns) * cpu.ring_frames_max as u64;
        let diameter_ns = u64::from(hops_max) * hop_ns + 2 * cpu_ns;
        let beacon_ns = self.switch.beacon_interval_ns.max(self.endpoint.beacon_interval_ns);
        let healthy_ns = diameter_ns + skew_ns + beacon_ns / 2;
        // At rest a promise crosses one hop per heartbeat, and an idle link is lost after ten.
        let heartbeat_ns = self.switch.heartbeat_interval_ns;
        let healthy_ns = healthy_ns + (10 + u64::from(hops_max)) * heartbeat_ns;
        let timeout_ns = self.switch.link_timeout_ns.max(10 * beacon_ns);
        let bound_ns = healthy_ns + timeout_ns + 6 * diameter_ns + 15_000 * u64::from(hosts);
        let bytes = self.load.map_or(0, |load| load.workload.scattering_bytes_max())
            * u64::from(hosts)
            * u64::from(self.processes_per_host);
        let rates =
            [&self.network.host_link, &self.network.switch_link].map(|link| link.rate_bits_per_s);
        let bound_ns = bound_ns + bytes * 8 * 1_000_000_000 / rates[0].min(rates[1]);
        bound_ns
            + self
                .control_plane
                .as_ref()
                .map_or(0, |control_plane| self.failover_bound_ns(control_plane))
    }

    /// Returns what the controllers' timeouts add: a new controller takes over and learns the state
    /// of the network, and waits before each of its decisions.
    fn failover_bound_ns(&self, control_plane: &ControlPlanePlan) -> u64 {
        let controller = &control_plane.controller;
        let take_over_ns = control_plane.lease_ns + control_plane.renew_ns + ANNOUNCE_INTERVAL_NS;
        let store_ns = 2 * control_plane.store_ns + controller.store_retry_ns;
        // While reports arrive, the controller evaluates after eight times `quiet_ns` at the
        // latest.
        let decide_ns = 8 * controller.quiet_ns
            + controller.freeze_after_ns
            + controller.grace_ns
            + controller.ping_timeout_ns;
        // One failure, a second one during its recovery, and the rejoin of excluded processes.
        take_over_ns + 3 * (decide_ns + 3 * store_ns + controller.restart_ns) + self.callback_ns
    }
}
