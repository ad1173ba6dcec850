//! The times of the evaluation.

/// Settings of the evaluation. Losses are evaluated over two windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Minimum length of an evaluation window, ns. Default 1 ms.
    pub window_ns_min: u64,
    /// Minimum length of an evaluation window, in timeslots, as fewer packets of a link are not
    /// significant. Default 800: 1 ms at 10 Gbit/s.
    pub window_slots: u64,
    /// Minimum interval of evaluations, ns. One takes about 5 us if all endpoints report losses.
    /// Default 100 us.
    pub check_interval_ns: u64,
    /// Minimum time during which losses on an avoided link may still be reported, ns. Default 2 ms.
    pub grace_ns_min: u64,
    /// Time for the report of a loss, ns. Losses may be reported for the lead, two batches and this
    /// time, if that is longer than the minimum. Default 1 ms.
    pub report_ns: u64,
    /// Maximum time after which a link that still loses packets is tried again, ns. Default 1 s.
    pub retry_ns_max: u64,
}

/// Minimum length of an evaluation window, in leads, as a lost packet was granted a lead earlier.
const WINDOW_LEADS: u64 = 2;
/// A link is tried again after this number of grace times, at least 10 ms. The time doubles each
/// time that the link still loses packets, up to [`Config::retry_ns_max`].
const RETRY_GRACES: u64 = 5;

impl Config {
    /// The defaults.
    pub const DEFAULT: Self = Self {
        window_ns_min: 1_000_000,
        window_slots: 800,
        check_interval_ns: 100_000,
        grace_ns_min: 2_000_000,
        report_ns: 1_000_000,
        retry_ns_max: 1_000_000_000,
    };

    /// Returns the times for a timeslot, the lead of grants and a batch length.
    pub fn timing(&self, slot_ns: u64, lead_ns: u64, batch_slots: u32) -> Timing {
        let window_ns = slot_ns.saturating_mul(self.window_slots);
        let window_ns = window_ns.max(lead_ns.saturating_mul(WINDOW_LEADS)).max(self.window_ns_min);
        let batches_ns = slot_ns.saturating_mul(2 * u64::from(batch_slots));
        let grace_ns = lead_ns.saturating_add(batches_ns).saturating_add(self.report_ns);
        let grace_ns = grace_ns.max(self.grace_ns_min);
        let retry_ns_first = grace_ns.saturating_mul(RETRY_GRACES);
        Timing {
            window_ns,
            grace_ns,
            check_interval_ns: self.check_interval_ns,
            retry_ns_first,
            retry_ns_max: self.retry_ns_max.max(retry_ns_first),
        }
    }
}

/// Times of the evaluation. They grow with the timeslot and with the lead of the arbiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timing {
    pub(crate) window_ns: u64,
    pub(crate) grace_ns: u64,
    pub(crate) check_interval_ns: u64,
    pub(crate) retry_ns_first: u64,
    pub(crate) retry_ns_max: u64,
}
