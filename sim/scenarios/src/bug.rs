//! Known-wrong variants: what the checkers must catch.

/// A mistake that a switch or an endpoint makes on purpose (testing.md row 40). They are made
/// around the real machines, on the frames and events that go in and out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bug {
    /// A switch tells the maximum over its inputs instead of the minimum.
    SwitchTellsMaximum,
    /// A switch passes a frame's own promise on.
    SwitchTellsOwn,
    /// A switch's beacons promise 2 us more than they may.
    SwitchTellsFuture,
    /// A switch loses its beacons and those of others.
    SwitchSwallowsBeacons,
    /// A switch changes a payload and makes the checks fit.
    SwitchForgesPayload,
    /// A switch changes the receiver and makes the checks fit.
    SwitchForgesReceiver,
    /// An endpoint hands out two deliveries in the wrong order.
    EndpointSwapsDeliveries,
    /// An endpoint hands a delivery out twice.
    EndpointRepeatsDelivery,
    /// An endpoint keeps a delivery to itself.
    EndpointSwallowsDelivery,
    /// An endpoint hands a delivery out under another timestamp.
    EndpointShiftsTimestamp,
    /// An endpoint keeps a failure to itself.
    EndpointSwallowsFailure,
    /// An endpoint reports a failure twice.
    EndpointRepeatsFailure,
    /// An endpoint takes what may come for what has come: it raises the barrier it hears by 2 us.
    EndpointRunsAhead,
    /// A link that is not FIFO is taken for one that is.
    LinkReorders,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::SwitchTellsMaximum,
        Self::SwitchTellsOwn,
        Self::SwitchTellsFuture,
        Self::SwitchSwallowsBeacons,
        Self::SwitchForgesPayload,
        Self::SwitchForgesReceiver,
        Self::EndpointSwapsDeliveries,
        Self::EndpointRepeatsDelivery,
        Self::EndpointSwallowsDelivery,
        Self::EndpointShiftsTimestamp,
        Self::EndpointSwallowsFailure,
        Self::EndpointRepeatsFailure,
        Self::EndpointRunsAhead,
        Self::LinkReorders,
    ];
}

/// By how much a promise is raised that is raised wrongly: well above the spread of promises in a
/// sound fabric with little skew.
pub(crate) const AHEAD_NS: u64 = 2_000;

/// A bug strikes at every so-manieth occasion: an odd number, so that it drifts through patterns.
pub(crate) const EVERY: u32 = 97;
