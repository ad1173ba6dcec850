//! An endpoint that requests timeslots and lets them pass.

use onepipe_base::{Incarnation, Mono, Now, ProcessId, Psn, Timestamp};
use onepipe_wire::{
    Fcp, FcpEncoding, FcpPart, FcpReset, FcpTotal, FcpWriter, Header, Opcode, SHORT_HEADER_LEN,
    seal,
};

/// Destinations of an endpoint.
pub(super) const DESTINATIONS: usize = 4;
/// Timeslots requested for each destination beyond the granted ones: several batches in all, and
/// few enough for the one-byte totals of [`FcpEncoding::ShortMap`].
const WANTED: u16 = 120;
/// Timeslots between two control packets, as in [`onepipe_arbiter::ClientConfig`].
const SEND_INTERVAL_SLOTS: u64 = 64;
/// Fraction (1/n) of a batch by which a packet aims to arrive before the batch is closed, as a
/// client does.
const MARGIN: u64 = 8;

/// Load generator: to an arbiter it looks like an [`onepipe_arbiter::Client`] with a permanent
/// backlog to a few destinations, at a fraction of the cost, as it queues nothing and sends nothing
/// in the timeslots. It sends a control packet every 64 timeslots, at the time that the arbiter
/// requests. Each packet carries the complete state, so no retransmission timers are needed.
pub(super) struct Endpoint {
    own: ProcessId,
    arbiter: ProcessId,
    slot_ns: u64,
    destinations: [u16; DESTINATIONS],
    /// Timeslots granted for each destination, as far as known.
    granted: [u16; DESTINATIONS],
    /// The arbiter's last reset, and the checksum seed derived from it.
    reset: Option<FcpReset>,
    seed: u64,
    /// Whether the next packet acknowledges the reset.
    acks_reset: bool,
    /// Sequence number of the next packet, and the time at which the previous one left.
    sequence: u32,
    sent_at: Mono,
    last_received: u32,
    received_bits: u64,
    /// Time at which the next packet leaves at even spacing; and the last arrival time that suited
    /// a batch, with the length of a batch in ns.
    next_at: Mono,
    slot_phase: Option<(Mono, u64)>,
}

impl Endpoint {
    pub fn new(
        (own, arbiter): (ProcessId, ProcessId),
        destinations: [u32; DESTINATIONS],
        slot_ns: u64,
    ) -> Self {
        Self {
            own,
            arbiter,
            slot_ns,
            destinations: destinations.map(|dst| dst as u16),
            granted: [0; DESTINATIONS],
            reset: None,
            seed: 0,
            acks_reset: false,
            sequence: 1,
            sent_at: Mono::from_ns(0),
            last_received: 0,
            received_bits: u64::MAX,
            next_at: Mono::from_ns(0),
            slot_phase: None,
        }
    }

    /// Handles a control packet of the arbiter.
    pub fn handle_packet(&mut self, now: Now, sequence: u32, payload: &[u8]) {
        let Ok(fcp) = Fcp::parse(sequence, payload) else { return };
        if let Some(reset) = fcp.reset()
            && self.reset.is_none_or(|own| own.time < reset.time)
        {
            self.handle_reset(now, reset);
        }
        if self.reset.is_none() || !fcp.is_in_step(self.seed) || !self.mark_received(sequence) {
            return;
        }
        for part in fcp.parts() {
            match part {
                FcpPart::Grants(grants) => grants.grants().for_each(|grant| {
                    if let Some(granted) = self.granted(grant.dst) {
                        *granted = granted.wrapping_add(1);
                    }
                }),
                FcpPart::Totals(totals) => totals.totals().for_each(|FcpTotal { dst, total }| {
                    if let Some(granted) = self.granted(dst)
                        && total.wrapping_sub(*granted) as i16 > 0
                    {
                        *granted = total;
                    }
                }),
                FcpPart::Arrival(arrival) if fcp.received.wrapping_add(1) == self.sequence => {
                    let batch_ns = u64::from(arrival.batch_slots) * self.slot_ns;
                    let later_ns = (arrival.early_ns + batch_ns - batch_ns / MARGIN) % batch_ns;
                    self.slot_phase = Some((self.sent_at.after_ns(later_ns), batch_ns));
                }
                _ => {}
            }
        }
    }

    fn handle_reset(&mut self, now: Now, reset: FcpReset) {
        (self.reset, self.seed, self.acks_reset) = (Some(reset), seed(reset.time), true);
        (self.sequence, self.last_received, self.received_bits) = (1, 0, u64::MAX);
        (self.granted, self.slot_phase) = ([0; DESTINATIONS], None);
        // Spreads the endpoints over the interval.
        let control_interval_ns = SEND_INTERVAL_SLOTS * self.slot_ns;
        self.next_at = now.mono.after_ns(u64::from(self.own.0) * control_interval_ns / 256);
    }

    fn granted(&mut self, dst: u16) -> Option<&mut u16> {
        let at = self.destinations.iter().position(|own| *own == dst)?;
        Some(&mut self.granted[at])
    }

    /// Marks a packet as received. Returns whether it is not a duplicate.
    fn mark_received(&mut self, sequence: u32) -> bool {
        let ahead = sequence.wrapping_sub(self.last_received) as i32;
        if ahead > 0 {
            self.received_bits = self.received_bits.unbounded_shl(ahead.unsigned_abs()) | 1;
            self.last_received = sequence;
            return true;
        }
        let bit = 1u64.unbounded_shl(ahead.unsigned_abs());
        let is_first = self.received_bits & bit == 0;
        self.received_bits |= bit;
        is_first && bit != 0
    }

    /// Returns whether a control packet is due.
    pub fn is_due(&self, now: Mono) -> bool {
        let Some((slot_phase, batch_ns)) = self.slot_phase else {
            return self.reset.is_some() && self.next_at <= now;
        };
        // The arrival time that suits a batch and is nearest to the even spacing.
        let first_ns = self.next_at.as_ns().saturating_sub(batch_ns / 2);
        let after_ns =
            (first_ns as i64 - slot_phase.as_ns() as i64).rem_euclid(batch_ns as i64) as u64;
        first_ns + (batch_ns - after_ns) % batch_ns <= now.as_ns()
    }

    /// Writes the next control packet as a frame. Returns its length in bytes.
    pub fn write_packet(&mut self, now: Now, slot: &mut [u8]) -> usize {
        let buffer = &mut slot[SHORT_HEADER_LEN..];
        let writer = FcpWriter::new(buffer, self.last_received, self.received_bits);
        let mut writer = writer.expect("a slot holds the header of a packet");
        if let Some(reset) = self.reset.filter(|_| self.acks_reset) {
            writer.reset(reset);
        }
        let mut totals = [FcpTotal { dst: 0, total: 0 }; DESTINATIONS];
        for (at, total) in totals.iter_mut().enumerate() {
            let requested = self.granted[at].wrapping_add(WANTED);
            *total = FcpTotal { dst: self.destinations[at], total: requested };
        }
        let form = FcpEncoding::shortest(&totals, true);
        if form != FcpEncoding::List {
            totals.sort_unstable_by_key(|total| total.dst);
        }
        writer.totals(form, &totals);
        let bytes = writer.finish(self.seed);
        let header = Header::new(Opcode::Fcp, self.own, self.arbiter, Incarnation(1));
        let header = header.with_psn(Psn(self.sequence));
        (self.acks_reset, self.sent_at) = (false, now.mono);
        self.sequence = self.sequence.wrapping_add(1);
        self.next_at = self.next_at.max(now.mono).after_ns(SEND_INTERVAL_SLOTS * self.slot_ns);
        seal(slot, header, bytes)
    }
}

/// Returns the checksum seed that follows from a reset (docs/wire-format.md, Fcp).
const fn seed(time: Timestamp) -> u64 {
    let bits = time.as_ns().wrapping_add(0x9e37_79b9_7f4a_7c15);
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use onepipe_arbiter::{Arbiter, ArbiterConfig, Client, ClientConfig, Core};
    use onepipe_base::{Machine, Port};
    use onepipe_wire::{Frame, parse_header};

    use super::*;

    const NODES: u32 = 8;
    const ARBITER: ProcessId = ProcessId(NODES);
    const SLOT_NS: u64 = 5_000;
    /// One-way delay of a frame, in ns.
    const LINK_DELAY_NS: u64 = 10_000;

    /// A source of requests in a simulation with discrete time steps.
    trait Requester {
        fn handle_packet(&mut self, now: Now, frame: &mut [u8]);
        fn write_packet(&mut self, now: Now, buffer: &mut [u8]) -> Option<usize>;
    }

    impl Requester for Endpoint {
        fn handle_packet(&mut self, now: Now, frame: &mut [u8]) {
            let frame = Frame::parse(frame).expect("sealed");
            Self::handle_packet(self, now, frame.header.psn().0, frame.payload);
        }

        fn write_packet(&mut self, now: Now, buffer: &mut [u8]) -> Option<usize> {
            self.is_due(now.mono).then(|| Self::write_packet(self, now, buffer))
        }
    }

    impl Requester for (Client, [u32; DESTINATIONS]) {
        fn handle_packet(&mut self, now: Now, frame: &mut [u8]) {
            self.0.handle_frame(now, Port(0), frame);
        }

        fn write_packet(&mut self, now: Now, buffer: &mut [u8]) -> Option<usize> {
            let (client, destinations) = self;
            for dst in destinations.map(ProcessId) {
                while client.queued(dst) < WANTED.into() {
                    client.enqueue(dst, &[0; 900]).expect("queue has space");
                }
            }
            if client.poll_timeout().is_some_and(|due| due <= now.mono) {
                client.handle_timeout(now);
            }
            loop {
                let bytes = client.poll_transmit(now, buffer)?.bytes;
                if parse_header(buffer).is_ok_and(|(_, opcode)| opcode == Opcode::Fcp) {
                    return Some(bytes);
                }
            }
        }
    }

    /// Runs the arbiter for 40 ms. Returns packets and bytes received by it, packets sent by it,
    /// and timeslots granted.
    fn serve<A: Requester>(request: impl Fn(u32, [u32; DESTINATIONS]) -> A) -> [u64; 4] {
        let mut config = ArbiterConfig::new(ARBITER, Core::racks(NODES, NODES, 1), SLOT_NS);
        config.lead_ns = 200_000;
        let mut arbiter = Arbiter::new(config).expect("valid configuration");
        let others = |src: u32| std::array::from_fn(|at| (src + at as u32 + 1) % NODES);
        let mut requesters: Vec<A> = (0..NODES).map(|src| request(src, others(src))).collect();
        let (mut in_flight, mut buffer, mut bytes_in) = (VecDeque::new(), vec![0; 2_048], 0);
        for ns in (0..40_000_000).step_by(1_000) {
            let sync = Timestamp::from_ns((1 << 50) + ns);
            let now = Now { mono: Mono::from_ns(ns), sync };
            while in_flight.front().is_some_and(|(at, _)| *at <= ns) {
                let (_, mut frame): (u64, Vec<u8>) = in_flight.pop_front().expect("it exists");
                let dst = parse_header(&frame).expect("sealed").0.dst();
                match requesters.get_mut(dst.index()) {
                    Some(one) => one.handle_packet(now, &mut frame),
                    None => {
                        arbiter.handle_frame(now, Port(0), &mut frame);
                    }
                }
            }
            if arbiter.poll_timeout().is_some_and(|due| due <= now.mono) {
                arbiter.handle_timeout(now);
            }
            while let Some(transmit) = arbiter.poll_transmit(now, &mut buffer) {
                in_flight.push_back((ns + LINK_DELAY_NS, buffer[..transmit.bytes].to_vec()));
            }
            for one in &mut requesters {
                while let Some(bytes) = one.write_packet(now, &mut buffer) {
                    bytes_in += bytes as u64;
                    in_flight.push_back((ns + LINK_DELAY_NS, buffer[..bytes].to_vec()));
                }
            }
        }
        let comm = arbiter.comm_stats();
        assert_eq!((comm.bad, comm.wasted), (0, 0), "{comm:?}");
        [comm.received, bytes_in, comm.sent, arbiter.stats().granted]
    }

    /// The load on the arbiter must match that of real clients, or the benchmark measures nothing.
    #[test]
    fn loads_arbiter_like_real_client() {
        let own = serve(|src, others| Endpoint::new((ProcessId(src), ARBITER), others, SLOT_NS));
        let clients = serve(|src, others| {
            let config = ClientConfig::new(ProcessId(src), NODES, ARBITER, SLOT_NS);
            (Client::new(config).expect("valid configuration"), others)
        });
        let all_slots = u64::from(NODES) * 40_000_000 / SLOT_NS;
        assert!(own[3] > all_slots * 9 / 10, "{own:?} of {all_slots}");
        for (one, other) in own.into_iter().zip(clients) {
            assert!(one.abs_diff(other) * 20 < other, "{own:?} against {clients:?}");
        }
    }
}
