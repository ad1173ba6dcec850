//! Transmission of frames.

use alloc::vec::Vec;

use onepipe_base::{Now, Port, ProcessId, Promises, Psn, Transmit};
use onepipe_wire::{DECISION_TIP_LEN, DecisionTip, Flood, HEADER_LEN, Header, Opcode, seal};

use super::Controller;
use crate::Links;
use crate::broadcast::Outgoing;

impl Controller {
    pub(super) fn send(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        let slot = slot.get_mut(..self.config.frame_len_max)?;
        if let Some(port) = self.own_links.pop_hello() {
            let header = self.hop_only_header(now, Opcode::Hello, port);
            return Some(self.finish(slot, header, port, 0));
        }
        self.term.epoch()?;
        if let Some(outgoing) = self.broadcast.pop() {
            let bytes = self.broadcast.write(&mut slot[HEADER_LEN..], self.compared_tip())?;
            let (header, port) = match outgoing {
                Outgoing::Flood(port) => (self.hop_only_header(now, Opcode::Flood, port), port),
                Outgoing::Notice(process) => {
                    let header = self.header(Opcode::Notice, process);
                    (stamp(now, header, Psn::FIRST), self.port_to(process))
                }
            };
            return Some(self.finish(slot, header, port, bytes));
        }
        let frame = self.send_queue.pop()?;
        let bytes = frame.payload.len();
        slot[HEADER_LEN..HEADER_LEN + bytes].copy_from_slice(&frame.payload);
        let header = stamp(now, self.header(frame.opcode, frame.to), frame.psn);
        let port = self.port_to(frame.to);
        Some(self.finish(slot, header, port, bytes))
    }

    fn finish(
        &mut self,
        slot: &mut [u8],
        header: Header,
        port: Port,
        payload_len: usize,
    ) -> Transmit {
        self.stats.frames_sent += 1;
        Transmit { port, bytes: seal(slot, header, payload_len) }
    }

    fn hop_only_header(&self, now: Now, opcode: Opcode, port: Port) -> Header {
        let peer = self.own_links.peer(port);
        Header::hop_only(opcode, self.config.own(), peer, Promises::both(now.sync))
    }

    fn port_to(&self, process: ProcessId) -> Port {
        match self.config.links {
            Links::Uplink => Port(0),
            Links::Mesh(count) => Port(u16::try_from(process.0).unwrap_or(count)),
        }
    }

    //= spec/failure.md#R60
    /// Returns the payload of an acknowledgement: the end of the log, if it may be sent.
    pub(super) fn tip_payload(&self) -> Vec<u8> {
        let mut payload = alloc::vec![0; DECISION_TIP_LEN];
        let written = self.compared_tip().and_then(|tip| tip.write(&mut payload));
        payload.truncate(written.unwrap_or(0));
        payload
    }

    fn compared_tip(&self) -> Option<DecisionTip> {
        self.term.compared_tip(&self.config, &self.decisions)
    }

    /// Sends a process that is alive the notice of its own failure.
    pub(super) fn notify_own_failure(&mut self, process: ProcessId) {
        if !self.term.is_active() {
            return;
        }
        let Some(failure) = self.decisions.latest_failure(process) else { return };
        let id = self.broadcast.id_for_unicast();
        let mut payload = alloc::vec![0; self.config.payload_len_max()];
        let written = Flood { id }.write_notice(&mut payload, core::iter::once(failure));
        let tip = self.compared_tip();
        let written = written.map(|(_, bytes)| match tip {
            Some(tip) => tip.append_to_flood(&mut payload, bytes).unwrap_or(bytes),
            None => bytes,
        });
        if let Some(bytes) = written {
            payload.truncate(bytes);
            self.enqueue_frame(Opcode::Notice, process, Psn::FIRST, payload);
        }
    }
}

fn stamp(now: Now, header: Header, psn: Psn) -> Header {
    header.stamped(now.sync, Promises::both(now.sync), psn)
}
