//! Sends acknowledgements to the processes of a host together.

use onepipe_base::mistake::{Mistake, makes};
use onepipe_base::{Mono, Port, Promises, Psn, Transmit, Verdict};
use onepipe_topology::FlowKey;
use onepipe_wire::{AckBundle, BundledAck, HEADER_LEN, HOPS_MAX, Header, Opcode, seal_with_hops};

use crate::Switch;
use crate::clock::Time;

impl Switch {
    //= spec/ordering.md#R91
    /// Returns whether the acknowledgement in `frame`, which came from a process, leaves later in a
    /// bundle.
    #[inline(never)]
    pub(super) fn bundles_ack(
        &mut self,
        now: Mono,
        input: Port,
        flow: FlowKey,
        frame: &[u8],
    ) -> bool {
        let Ok(output) = self.output(Some(input), flow) else { return false };
        let Some(host) = self.config.route.host_of(flow.dst) else { return false };
        if self.aggregator.is_upper(input)
            || self.links.is_switch_at(input)
            || !self.leads_to_chip(output)
        {
            return false;
        }
        let Some(bundles) = &mut self.ack_bundles else { return false };
        let is_added = BundledAck::of_frame(frame).is_some_and(|ack| bundles.add(now, host, ack));
        self.stats.acks_bundled += u64::from(is_added);
        is_added
    }

    /// Writes the next bundle that is due.
    pub(super) fn poll_ack_bundle(&mut self, time: Time, slot: &mut [u8]) -> Option<Transmit> {
        let mut acks = core::mem::take(&mut self.due_acks);
        let mut transmit = None;
        // A bundle to a host without a route is dropped, as its acknowledgements would be alone.
        while transmit.is_none()
            && let Some(bundles) = &mut self.ack_bundles
            && bundles.take_due(time.mono, &mut acks)
        {
            transmit = self.write_ack_bundle(time, &acks, slot);
            acks.clear();
        }
        self.due_acks = acks;
        transmit
    }

    fn write_ack_bundle(
        &mut self,
        time: Time,
        acks: &[BundledAck],
        slot: &mut [u8],
    ) -> Option<Transmit> {
        let BundledAck { from, to, ack } = *acks.first()?;
        let flow = FlowKey { src: from.process, dst: to, psn: Psn::FIRST };
        let output = self.output(None, flow).ok()?;
        let promises = Promises::both(time.reference);
        let header = |opcode| {
            Header::new(opcode, from.process, to, from.incarnation).stamped(
                time.reference,
                promises,
                Psn::FIRST,
            )
        };
        let payload = &mut slot[HEADER_LEN..];
        let bytes = match acks {
            [_] => {
                payload.get_mut(..ack.len())?.copy_from_slice(&ack);
                seal_with_hops(slot, header(Opcode::ReliableAck), ack.len(), HOPS_MAX)
            }
            _ => {
                let own = |ack: &BundledAck| match makes(Mistake::BundledAcksMixed) {
                    true => BundledAck { from, ..*ack },
                    false => *ack,
                };
                let len = AckBundle::write(payload, acks.iter().map(own))?;
                let header = header(Opcode::ReliableAckBundle).unaddressed();
                seal_with_hops(slot, header, len, HOPS_MAX)
            }
        };
        self.stats.ack_bundles_sent += u64::from(acks.len() > 1);
        match self.forward(time.reference, output, &mut slot[..bytes]) {
            Verdict::Forward(port) => Some(Transmit { port, bytes }),
            _ => None,
        }
    }
}
