//! What goes out.

use onepipe_base::{Instance, Now, Port, ProcessId, Promises, Psn, Transmit};
use onepipe_wire::{Flood, HEADER_LEN, Header, Opcode, seal};

use super::Controller;
use crate::Links;
use crate::broadcast::Owed;

impl Controller {
    pub(super) fn send(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        let slot = slot.get_mut(..self.config.frame_len_max)?;
        if let Some(port) = self.attached.greet.next() {
            let header = self.of_link(now, Opcode::Hello, Port(port));
            return Some(self.finish(slot, header, Port(port), 0));
        }
        self.active?;
        if let Some(owed) = self.broadcast.pop() {
            let bytes = self.broadcast.write(&mut slot[HEADER_LEN..])?;
            let (header, port) = match owed {
                Owed::Flood(port) => (self.of_link(now, Opcode::Flood, port), port),
                Owed::Notice(process) => {
                    let header = self.header(Opcode::Notice, process);
                    (stamp(now, header, Psn::FIRST), self.port_to(process))
                }
            };
            return Some(self.finish(slot, header, port, bytes));
        }
        let letter = self.outbox.pop()?;
        let bytes = letter.payload.len();
        slot[HEADER_LEN..HEADER_LEN + bytes].copy_from_slice(&letter.payload);
        let header = stamp(now, self.header(letter.opcode, letter.to), letter.psn);
        let port = self.port_to(letter.to);
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

    fn of_link(&self, now: Now, opcode: Opcode, port: Port) -> Header {
        let echo: Option<Instance> = self.attached.ends.get(&port).copied();
        Header::hop_only(opcode, self.config.own(), echo, Promises::both(now.sync))
    }

    fn port_to(&self, process: ProcessId) -> Port {
        match self.config.links {
            Links::Uplink => Port(0),
            Links::Mesh(count) => Port(u16::try_from(process.0).unwrap_or(count)),
        }
    }

    /// Tells a process that lives on that its life has failed.
    pub(super) fn tell_about_itself(&mut self, process: ProcessId) {
        if self.active.is_none() {
            return;
        }
        let Some(failure) = self.ledger.about(process) else { return };
        let id = self.broadcast.id_beside();
        let mut payload = alloc::vec![0; self.config.payload_len_max()];
        let written = Flood { id }.write_notice(&mut payload, core::iter::once(failure));
        if let Some((_, bytes)) = written {
            payload.truncate(bytes);
            self.post(Opcode::Notice, process, Psn::FIRST, payload);
        }
    }
}

fn stamp(now: Now, header: Header, psn: Psn) -> Header {
    header.stamped(now.sync, Promises::both(now.sync), psn)
}
