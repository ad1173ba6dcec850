//! The times of a session.
use onepipe_timeslots::check_setting;

use crate::ConfigError;

/// Times of a session between an endpoint and an arbiter, on either end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionTimes {
    /// How long an acknowledgement is delayed for a packet to carry it, ns. Default 50 us.
    pub ack_delay_ns: u64,
    /// Minimum and initial retransmission timeout, ns. Default 200 us.
    pub rto_ns_min: u64,
    /// Maximum retransmission timeout, ns: more than any round trip. Default 12.8 ms.
    pub rto_ns_max: u64,
    /// Maximum difference between the time of a reset and the local clock, ns. Beyond, the reset is
    /// a stray packet or a clock is wrong, and it is ignored. Default 1 s.
    pub reset_age_ns_max: u64,
}

impl SessionTimes {
    /// The defaults.
    pub const DEFAULT: Self = Self {
        ack_delay_ns: 50_000,
        rto_ns_min: 200_000,
        rto_ns_max: 12_800_000,
        reset_age_ns_max: 1_000_000_000,
    };

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        check_setting(self.rto_ns_min > 0, "rto_ns_min", self.rto_ns_min)?;
        check_setting(self.rto_ns_max >= self.rto_ns_min, "rto_ns_max", self.rto_ns_max)
    }
}
