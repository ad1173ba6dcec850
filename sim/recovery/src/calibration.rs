//! The numbers of a network, and where they come from.

use onepipe_sim_network::{ClockConfig, LinkConfig};

/// What the parts of a fabric cost and how they are set. All times in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calibration {
    /// Every link.
    pub link: LinkConfig,
    /// How far clocks are off.
    pub clocks: ClockConfig,
    /// Between two beacons; a link that is silent for ten of them is dead.
    pub beacon_interval_ns: u64,
    /// What the controller's CPU does for each process that it contacts: half of it for the frame
    /// that goes out, half for the answer. Every other frame that tells it something costs as much
    /// as one of these.
    pub contact_ns: u64,
    /// What a frame costs it that tells it nothing: an announcement repeated.
    pub packet_ns: u64,
    /// What a look at the graph costs it …
    pub look_ns: u64,
    /// … and for each node and link that it visits.
    pub visit_ns: u64,
    /// How long nothing more must be reported before a failure is decided.
    pub settle_ns: u64,
    /// How long the controller's store takes to write a record.
    pub store_ns: u64,
}

impl Calibration {
    /// The testbed of 1Pipe, by what the paper says of it and nothing that is fitted to a curve:
    ///
    /// - 100 Gbit/s (section 7.1) and 0.5 us a link: "an RTT (2 ~ 10 us)" for one switch to five,
    ///   2 links one way to 6 (section 7.2);
    /// - clocks that are off by 0.3 us in the mean (section 7.1), drawn evenly from +-0.6 us;
    /// - beacons every 3 us, a link dead after ten of them (sections 7.1 and 4.2);
    /// - 3 us for a contacted process, the lower end of "3 ~ 15 us per host" (section 7.2): one
    ///   process a host, one failure to tell. The upper end is a rack's, with eight failures each;
    /// - 47 ns for a packet that needs no more: "a host CPU core can sustain 3 us beacon interval"
    ///   of a switch with 32 ports, each with a beacon in and one out (section 7.2);
    /// - 5 us for a look at the graph and 50 ns for each node and link that it visits: ours,
    ///   measured (`cargo run --release -p onepipe-sim-recovery --example look`: 3 to 6 us where 21
    ///   are visited; 6, 14 and 30 us where 159, 311 and 501 are, in graphs of 2,366, 17,662 and
    ///   73,682 nodes: what is visited is in no cache). The paper does not say what it costs there
    ///   to find out who has failed;
    /// - reports settle within a beacon interval and a crossing of the network, 6 links;
    /// - a store that costs nothing: with the fastest recovery at 36 us, 30 of them detection, the
    ///   paper's figures leave no room for one.
    pub fn paper() -> Self {
        let link = LinkConfig::default();
        let beacon_interval_ns = 3_000;
        Self {
            link,
            clocks: ClockConfig { offset_ns_max: 600, drift_ppb_max: 0 },
            beacon_interval_ns,
            contact_ns: 3_000,
            packet_ns: beacon_interval_ns / 64 + 1,
            look_ns: 5_000,
            visit_ns: 50,
            settle_ns: beacon_interval_ns + 6 * link.propagation_ns,
            store_ns: 0,
        }
    }
}
