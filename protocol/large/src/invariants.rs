//! Invariants of an endpoint for payloads of any size. No input may break them: whatever other
//! processes send, the state of this one does not contradict itself.

use crate::LargeEndpoint;

impl LargeEndpoint {
    /// In debug builds, checks the payloads of this process after an input.
    #[inline]
    pub(crate) fn check_after_input(&self) {
        if cfg!(debug_assertions) {
            self.check_payloads();
        }
    }

    /// Checks that the state does not contradict itself. For tests, simulations and fuzzers: takes
    /// time linear in the payloads, their blocks and the frames in flight.
    ///
    /// # Panics
    /// If it does: a bug of this crate.
    pub fn check_invariants(&self) {
        self.check_payloads();
        self.groups.check_invariants();
        for group in self.groups.iter() {
            let config = group.config();
            assert_eq!(config.objects_max, 1, "a group carries one payload");
            assert_eq!(config.frame_len_max, self.config.endpoint.frame_len_max);
        }
    }

    /// Checks the payloads that are sent and received.
    fn check_payloads(&self) {
        self.outgoing.check_invariants(self.config.objects_max);
        assert!(self.outgoing.bytes <= self.config.sent_bytes_max, "the send buffer is bounded");
        let own = self.config.endpoint.process;
        self.incoming.check_invariants(own, self.config.received_bytes_max);
        for arrival in self.incoming.arrivals.values() {
            let fits = arrival.descriptor.bytes <= self.config.object_len_max;
            assert!(fits || !arrival.has_memory, "a payload has no memory beyond the limit");
        }
    }
}
