//! Parameters of the simulated network, with their sources.

use onepipe_sim_network::{ClockConfig, ClockTail, Config, LinkConfig, Testbed};

/// Costs and settings of a fabric. All times are in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calibration {
    /// Every link between a host and its switch.
    pub host_link: LinkConfig,
    /// Every link between switches.
    pub switch_link: LinkConfig,
    /// Ranges of the clock errors.
    pub clocks: ClockConfig,
    /// Clocks that are worse than the others.
    pub clock_tail: Option<ClockTail>,
    /// Beacon interval; a link times out after ten intervals without a frame.
    pub beacon_interval_ns: u64,
    /// CPU time of the controller for each process that it contacts: half for the outgoing frame
    /// and half for the reply. Every other frame with new information, sent or received, also costs
    /// half.
    pub contact_ns: u64,
    /// Whether the controller's notices cost a contact for each failure that they report, as if
    /// each failure had a notice of its own; otherwise one notice reports all.
    pub has_notice_per_failure: bool,
    /// CPU time of the controller for a frame without new information: a repeated announcement.
    pub repeat_ns: u64,
    /// CPU time of the controller for one graph evaluation ...
    pub evaluation_ns: u64,
    /// ... and for each node and link that the evaluation visits.
    pub visit_ns: u64,
    /// Time without further reports after which a failure is decided.
    pub quiet_ns: u64,
    /// Time in which the controller's store writes a record.
    pub store_ns: u64,
}

impl Calibration {
    /// Returns the parameters of 1Pipe's testbed. All come from the paper:
    ///
    /// - links, clocks and beacons are those of [`Testbed::PAPER`], as in all other figures; a link
    ///   times out after ten beacon intervals (section 4.2);
    /// - 2.44 us per contacted process: what each of 30 more hosts adds after the failure of a host
    ///   by the points of figure 10, one process per host and one failure to report. So no row can
    ///   test that slope. The text has "3 ~ 15 us per host" (section 7.2), whose upper end is that
    ///   of a rack, with eight failures each;
    /// - 47 ns for a packet without further work: "a host CPU core can sustain 3 us beacon
    ///   interval" of a switch with 32 ports, each with a beacon in and one out (section 7.2);
    /// - 5 us per graph evaluation and 50 ns for each node and link that it visits: measured with
    ///   our controller (`cargo run --release -p onepipe-sim-recovery --example evaluation`: 3 to 6
    ///   us with 21 visits; 6, 14 and 30 us with 159, 311 and 501, in graphs of 2,366, 17,662 and
    ///   73,682 nodes, where the visited nodes are in no cache). The paper does not say how long
    ///   its controller takes to determine the failed processes;
    /// - reports are complete within a beacon interval and a crossing of the network, 6 links: this
    ///   is `quiet_ns`;
    /// - a store without delay: with the fastest recovery at 36 us, 30 of them detection, the
    ///   paper's figures leave no time for one.
    pub fn paper() -> Self {
        let Config { host_link, switch_link, clocks, clock_tail, .. } = Testbed::PAPER.network();
        let beacon_interval_ns = Testbed::PAPER.beacon_ns;
        let crossing_ns = 2 * host_link.propagation_ns + 4 * switch_link.propagation_ns;
        Self {
            host_link,
            switch_link,
            clocks,
            clock_tail,
            beacon_interval_ns,
            contact_ns: 2_440,
            has_notice_per_failure: false,
            repeat_ns: beacon_interval_ns / 64 + 1,
            evaluation_ns: 5_000,
            visit_ns: 50,
            quiet_ns: beacon_interval_ns + crossing_ns,
            store_ns: 0,
        }
    }

    /// Returns the parameters with a controller that decides at once: it neither waits for further
    /// reports, nor does the evaluation of its graph take time.
    #[must_use]
    pub fn without_waits(self) -> Self {
        Self { quiet_ns: 0, evaluation_ns: 0, visit_ns: 0, ..self }
    }
}
