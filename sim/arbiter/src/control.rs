//! Counters of control packets that leave hosts, by content.

use onepipe_base::ProcessId;
use onepipe_wire::{FCP_HEADER_LEN, Fcp, FcpPart, Frame, Opcode, SHORT_HEADER_LEN};

/// Control packets in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ControlTraffic {
    /// Number of packets.
    pub packets: u64,
    /// Packets that carry only an acknowledgement.
    pub acks: u64,
    /// Packets with a reset.
    pub resets: u64,
    /// Bytes of their frames, without link overhead.
    pub bytes: u64,
    /// Bytes of parts, behind the headers of the frame and of the packet.
    pub part_len: u64,
    /// Totals requested; from arbiters, totals resent after a loss.
    pub totals: u64,
    /// Timeslots granted.
    pub slots: u64,
}

impl ControlTraffic {
    /// Returns the bytes of all frame headers, and of all packet headers.
    pub const fn front_len(&self) -> (u64, u64) {
        let all = self.packets;
        (all * SHORT_HEADER_LEN as u64, all * FCP_HEADER_LEN as u64)
    }

    /// Returns the difference to an earlier state.
    #[must_use]
    pub const fn since(&self, before: &Self) -> Self {
        Self {
            packets: self.packets - before.packets,
            acks: self.acks - before.acks,
            resets: self.resets - before.resets,
            bytes: self.bytes - before.bytes,
            part_len: self.part_len - before.part_len,
            totals: self.totals - before.totals,
            slots: self.slots - before.slots,
        }
    }

    fn note(&mut self, frame: &Frame<'_>, fcp: &Fcp<'_>) {
        self.packets += 1;
        self.bytes += (SHORT_HEADER_LEN + frame.payload.len()) as u64;
        self.part_len += (frame.payload.len() - FCP_HEADER_LEN) as u64;
        self.acks += u64::from(fcp.parts().next().is_none());
        self.resets += u64::from(fcp.reset().is_some());
        for part in fcp.parts() {
            match part {
                FcpPart::Reset(_) | FcpPart::Arrival(_) => {}
                FcpPart::Totals(totals) => self.totals += totals.totals().count() as u64,
                FcpPart::Grants(grants) => self.slots += u64::from(grants.slots().count_ones()),
            }
        }
    }
}

/// Control packets in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Control {
    /// From endpoints.
    pub requests: ControlTraffic,
    /// From arbiters.
    pub grants: ControlTraffic,
}

impl Control {
    /// Returns the difference to an earlier state.
    #[must_use]
    pub const fn since(&self, before: &Self) -> Self {
        Self {
            requests: self.requests.since(&before.requests),
            grants: self.grants.since(&before.grants),
        }
    }

    /// Counts a frame that leaves a host. Endpoints are the hosts below `endpoints`.
    pub(crate) fn observe(&mut self, frame: &[u8], endpoints: u32) {
        let frame = Frame::parse(frame).ok().filter(|frame| frame.opcode == Opcode::Fcp);
        let Some(frame) = frame else { return };
        let Ok(fcp) = Fcp::parse(frame.header.psn().0, frame.payload) else { return };
        let is_request = frame.header.src() < ProcessId(endpoints);
        let direction = if is_request { &mut self.requests } else { &mut self.grants };
        direction.note(&frame, &fcp);
    }
}
