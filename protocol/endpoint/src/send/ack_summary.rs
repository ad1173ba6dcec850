//! What an acknowledgement resolves.

use onepipe_base::{Mono, Psn};

/// Effect of an acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AckSummary {
    /// Charge of packets newly acknowledged as received.
    pub received_charge: u32,
    /// Charge of packets newly reported as rejected, in total and within the window.
    pub rejected_charge: u64,
    pub rejected_in_window: u64,
    /// Send time of the newest of the newly received packets that were sent once.
    pub newest_sent: Option<Mono>,
    /// Time of the first transmission of the newest of those that were retransmitted.
    pub newest_repeated: Option<Mono>,
    /// The highest packet reported as received.
    pub highest_received: Option<Psn>,
}

impl AckSummary {
    /// Notes a received packet that was last sent at `sent`, `repeated_for_ns` after the first
    /// time.
    #[inline]
    pub fn note_times(&mut self, sent: Mono, repeated_for_ns: u32) {
        if repeated_for_ns == 0 {
            self.newest_sent = self.newest_sent.max(Some(sent));
        } else {
            let first_sent = sent.as_ns().saturating_sub(repeated_for_ns.into());
            self.newest_repeated = self.newest_repeated.max(Some(Mono::from_ns(first_sent)));
        }
    }
}
