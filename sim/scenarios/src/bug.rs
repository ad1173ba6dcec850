//! Faulty variants of switches and endpoints, which the checkers must detect.

/// A bug of a switch or an endpoint. Bugs are injected around the real machines, into the frames
/// and events that go in and out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bug {
    /// A switch advertises the maximum over its inputs instead of the minimum.
    SwitchAdvertisesMaximum,
    /// A switch forwards a frame with the frame's own promise.
    SwitchForwardsOwnPromise,
    /// A switch's beacons promise 2 us more than they may.
    SwitchPromisesAhead,
    /// A switch drops all beacons.
    SwitchDropsBeacons,
    /// A switch corrupts a payload and recomputes the checksums.
    SwitchForgesPayload,
    /// A switch changes the receiver and recomputes the checksums.
    SwitchForgesReceiver,
    /// An endpoint hands out two deliveries in reverse order.
    EndpointSwapsDeliveries,
    /// An endpoint hands out a delivery twice.
    EndpointRepeatsDelivery,
    /// An endpoint drops a delivery.
    EndpointDropsDelivery,
    /// An endpoint hands out a delivery with another timestamp.
    EndpointShiftsTimestamp,
    /// An endpoint drops the report of a failed message.
    EndpointDropsFailure,
    /// An endpoint reports a failed message twice.
    EndpointRepeatsFailure,
    /// An endpoint delivers too early: it raises the received barrier by 2 us.
    EndpointRaisesBarrier,
    /// A link reorders frames although it is checked as FIFO.
    LinkReorders,
}

impl Bug {
    /// All bugs.
    pub const ALL: [Self; 14] = [
        Self::SwitchAdvertisesMaximum,
        Self::SwitchForwardsOwnPromise,
        Self::SwitchPromisesAhead,
        Self::SwitchDropsBeacons,
        Self::SwitchForgesPayload,
        Self::SwitchForgesReceiver,
        Self::EndpointSwapsDeliveries,
        Self::EndpointRepeatsDelivery,
        Self::EndpointDropsDelivery,
        Self::EndpointShiftsTimestamp,
        Self::EndpointDropsFailure,
        Self::EndpointRepeatsFailure,
        Self::EndpointRaisesBarrier,
        Self::LinkReorders,
    ];
}

/// Amount by which promises are raised wrongly, in ns: well above the spread of promises in a
/// fault-free fabric with little skew.
pub(crate) const AHEAD_NS: u64 = 2_000;

/// A bug applies once in this many opportunities. An odd number, so that the bug does not always
/// hit the same place of a periodic load.
pub(crate) const BUG_PERIOD: u32 = 97;
