//! The configuration of a switch.

use onepipe_base::{Address, Controllers, Incarnation, Instance, Port, SwitchId};
use onepipe_topology::{Route, Spread};

use crate::{Eager, Form};

/// The configuration of a switch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Number of the switch, below 2^31 - 1, by which its neighbours and the controllers know it;
    /// also salts its choice among equal paths. Default 0.
    pub switch: SwitchId,
    /// Incarnation of the switch: higher than any previous one under the same number, whose
    /// registers are lost. Default 0.
    pub incarnation: Incarnation,
    /// Ports `0..lower_ports` lead towards the hosts.
    pub lower_ports: u16,
    /// Ports `lower_ports..lower_ports + upper_ports` lead towards the roots. At least one port in
    /// all, at most 65,535.
    pub upper_ports: u16,
    /// The routes. A [`Route::ForwardingTable`] starts empty and is learned from joins, or from any
    /// other frame of a process; its lower ports get no beacon before a frame has arrived on them.
    pub route: Route,
    /// Where aggregation runs. Default [`Form::Chip`].
    pub form: Form,
    /// How frames spread over equal paths. Default [`Spread::PerFlow`].
    pub spread: Spread,
    /// Beacon interval in ns: an output link that has carried nothing since the last multiple of
    /// this of the synchronised clock gets a beacon at the next one. 0: only eager beacons and
    /// those that answer a join. Default 3,000 (1Pipe section 7.1).
    pub beacon_interval_ns: u64,
    /// Interval of heartbeats with beacons on demand, in ns: at rest each output carries a beacon
    /// in each of these. While something behind an output waits for a promise, the inputs that hold
    /// it back are solicited, and the output gets the promise at once
    /// (`docs/design/ordering.md`, "When are beacons sent?"). 0: beacons at the fixed interval
    /// `beacon_interval_ns`, as in 1Pipe; that is also the mode of a link whose other end has it.
    /// Default 0.
    pub heartbeat_interval_ns: u64,
    /// Which rises of the barrier an output advertises at once, before the next beacon instant.
    /// Default [`Eager::ByRound`].
    pub eager_beacons: Eager,
    /// Link timeout in ns: an input link that was idle for this long is taken out of the barriers.
    /// 0: never. Default 30,000: ten beacon intervals (1Pipe section 4.2). With beacons on demand:
    /// an input link that did not answer a solicit for this long, or was idle for this long and
    /// for ten heartbeats; up to ten times as long while live peers take long to answer
    /// (docs/spec/ordering.md, R55).
    pub link_timeout_ns: u64,
    /// For this time in ns after its start a switch advertises no barrier, unless all its inputs
    /// have promised: a barrier without a slow neighbour would cost that neighbour's messages.
    /// Default 9,000: three beacon intervals, so that one lost beacon does not matter.
    pub start_wait_ns: u64,
    /// A frame with a promise further than this ahead of the switch's own clock, in ns, is treated
    /// as misbehaviour and dropped; below 2^46 (a quarter of the wire's range). Default two hours:
    /// each clock may be an hour off. See [`crate::Switch`] for the reason of the limit.
    pub ahead_ns_max: u64,
    /// Process ids of the controllers, if the fabric has any: then the commit of a dead link is
    /// held until they resolve it, this switch announces its links to them and passes on their
    /// floods (`docs/design/failure.md`). Default none: a dead link is dropped from commits as from
    /// barriers.
    pub controllers: Option<Controllers>,
    /// How long acknowledgements of the reliable service wait for others to processes of the same
    /// host, in ns, so that they leave in one frame: those that follow within this time of the last
    /// frame to that host. 0: none waits. Only for chips with a regular tree of routes. Default 0.
    pub ack_bundle_ns: u64,
    /// Whether a joiner from below gets no commit before it has promised everything that was
    /// advertised to others, even without controllers (`docs/design/failure.md`, "When does a
    /// joiner commit?"). Needed where messages bypass this switch, so that nothing else keeps them
    /// from arriving late (`docs/design/overlay.md`). Default false; always the case in forms other
    /// than the chip.
    pub holds_joiners: bool,
    /// Longest interval between announcements to the controllers, in ns; after a change they follow
    /// at once, then after 2, 4, 8 … beacon intervals. At least 1, default 10,000,000.
    pub announce_interval_ns: u64,
    /// Retransmission interval of a flood on an unacknowledged link, in ns. At least 1, default
    /// 12,000: four beacon intervals.
    pub flood_interval_ns: u64,
    /// The longest frame that the switch may write itself, in bytes: announcements are split into
    /// parts of at most this, longer floods are rejected. 256 to 65,000, default 1,472 (Ethernet's
    /// 1,500 less IPv4 and UDP). Without controllers only beacons are written, whatever this is.
    pub frame_len_max: usize,
}

impl Config {
    /// Returns the defaults for a switch with these ports and this route.
    pub fn new(lower_ports: u16, upper_ports: u16, route: Route) -> Self {
        Self {
            switch: SwitchId(0),
            incarnation: Incarnation(0),
            lower_ports,
            upper_ports,
            route,
            form: Form::Chip,
            spread: Spread::PerFlow,
            beacon_interval_ns: 3_000,
            heartbeat_interval_ns: 0,
            eager_beacons: Eager::ByRound,
            link_timeout_ns: 30_000,
            start_wait_ns: 9_000,
            ahead_ns_max: 2 * 3_600_000_000_000,
            controllers: None,
            ack_bundle_ns: 0,
            holds_joiners: false,
            announce_interval_ns: 10_000_000,
            flood_interval_ns: 12_000,
            frame_len_max: 1_472,
        }
    }

    //= spec/ordering.md#R44
    /// Returns the time after which an idle link is lost, in ns; 0: never.
    pub(crate) fn idle_timeout_ns(&self) -> u64 {
        match self.link_timeout_ns {
            0 => 0,
            timeout_ns => timeout_ns.max(HEARTBEATS_PER_TIMEOUT * self.heartbeat_interval_ns),
        }
    }

    /// Returns the instance of this switch.
    pub(crate) fn instance(&self) -> Instance {
        Instance { address: Address::Switch(self.switch), incarnation: self.incarnation }
    }

    #[inline]
    pub(crate) fn port_count(&self) -> u16 {
        self.lower_ports + self.upper_ports
    }

    /// Returns all ports.
    pub(crate) fn ports(&self) -> impl Iterator<Item = Port> + use<> {
        (0..self.port_count()).map(Port)
    }

    /// Returns the ports towards the hosts.
    pub(crate) fn lower(&self) -> impl Iterator<Item = Port> + use<> {
        (0..self.lower_ports).map(Port)
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let ports = u64::from(self.lower_ports) + u64::from(self.upper_ports);
        let check = |holds: bool, field, value| match holds {
            true => Ok(()),
            false => Err(ConfigError::OutOfRange { field, value }),
        };
        check((1..=u64::from(u16::MAX)).contains(&ports), "lower_ports + upper_ports", ports)?;
        check(self.ahead_ns_max < QUARTER_RANGE_NS, "ahead_ns_max", self.ahead_ns_max)?;
        check(self.switch.0 < (1 << 31) - 1, "switch", self.switch.0.into())?;
        check(self.announce_interval_ns > 0, "announce_interval_ns", self.announce_interval_ns)?;
        check(self.flood_interval_ns > 0, "flood_interval_ns", self.flood_interval_ns)?;
        let bytes = self.frame_len_max as u64;
        check((256..=65_000).contains(&bytes), "frame_len_max", bytes)?;
        let heartbeat_ns = self.heartbeat_interval_ns;
        let is_slower = heartbeat_ns == 0 || heartbeat_ns >= self.beacon_interval_ns.max(1);
        let has_both = heartbeat_ns == 0 || self.beacon_interval_ns > 0;
        check(is_slower && has_both, "heartbeat_interval_ns", heartbeat_ns)?;
        let bundles = self.ack_bundle_ns;
        let can_bundle = self.form == Form::Chip && matches!(self.route, Route::Tree(_));
        check(bundles == 0 || can_bundle, "ack_bundle_ns", bundles)?;
        if let Some(Controllers { first, count }) = self.controllers {
            check((1..=256).contains(&count), "controllers.count", count.into())?;
            // Links are confirmed by beacons.
            check(self.beacon_interval_ns > 0, "beacon_interval_ns", self.beacon_interval_ns)?;
            let last = u64::from(first.0) + u64::from(count);
            check(last <= 1 << 31, "controllers.first", first.0.into())?;
        }
        Ok(())
    }
}

/// Number of heartbeats that a link may miss.
const HEARTBEATS_PER_TIMEOUT: u64 = 10;
const _: () = assert!(HEARTBEATS_PER_TIMEOUT > 1, "one lost heartbeat is no loss of the link");

/// A quarter of the wire's range of timestamps, 19.5 h.
pub(crate) const QUARTER_RANGE_NS: u64 = onepipe_base::WIRE_MODULUS / 4;

/// Why a configuration is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A number is outside its range.
    #[error("{field} = {value} is out of range")]
    OutOfRange {
        /// The field of [`Config`].
        field: &'static str,
        /// Its value.
        value: u64,
    },
}
