//! Incoming objects from all senders, and the reports to them.

use alloc::vec::Vec;

use onepipe_base::{Incarnation, Mono, ProcessId};
use onepipe_reliability::IndexQueue;
use onepipe_wire::{Piece, PieceAckState};

use super::config::{TransferConfig, TransferStats};
use super::incoming::Incoming;
use super::remote_sender::{ObjectState, RemoteSender};
use crate::client::Client;

/// Number of pieces between two reports.
const PIECES_PER_REPORT: u32 = 32;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Receiving {
    senders: Vec<RemoteSender>,
    /// Senders with a pending report.
    waiting: IndexQueue,
    /// Memory charge of incomplete objects, and its maximum, in bytes.
    bytes: u64,
    pub bytes_max: u64,
    reassembly_timeout_ns: u64,
    report_delay_ns: u64,
    /// Earliest time at which an incomplete object may expire.
    expire_at: Option<Mono>,
}

impl Receiving {
    pub fn new(config: &TransferConfig) -> Self {
        let nodes = config.client.nodes as usize;
        Self {
            senders: (0..nodes).map(|_| RemoteSender::new(Incarnation(0))).collect(),
            waiting: IndexQueue::new(nodes),
            bytes: 0,
            bytes_max: config.receive_bytes_max,
            reassembly_timeout_ns: config.reassembly_timeout_ns,
            report_delay_ns: config.report_delay_ns,
            expire_at: None,
        }
    }

    /// Asserts that the memory charge is that of the open objects.
    pub fn check_invariants(&self) {
        self.waiting.check_invariants();
        let mut bytes = 0;
        for (src, sender) in self.senders.iter().enumerate() {
            sender.check_invariants();
            bytes += sender.open.iter().map(Incoming::charge).sum::<u64>();
            let has_report = sender.report_at.is_some() || !sender.final_reports.is_empty();
            let is_waiting = self.waiting.contains(src as u16);
            assert!(is_waiting || !has_report, "a report is sent to {src}");
        }
        assert_eq!(bytes, self.bytes, "the memory charge of incomplete objects");
        assert!(bytes == 0 || self.expire_at.is_some(), "an incomplete object expires");
    }

    /// Starts a new incarnation of `src`. Objects of the previous one are dropped.
    pub fn restart(&mut self, src: ProcessId, incarnation: Incarnation) {
        let previous = self.senders[src.index()].restart(incarnation);
        self.bytes -= previous.iter().map(Incoming::charge).sum::<u64>();
    }

    /// Handles a piece. Returns the object if it is complete.
    pub fn on_piece(
        &mut self,
        now: Mono,
        src: ProcessId,
        piece: &Piece,
        bytes: &[u8],
        stats: &mut TransferStats,
    ) -> Option<Vec<u8>> {
        let sender = &mut self.senders[src.index()];
        sender.on_serial(piece);
        // There is, or may be, something to report.
        self.waiting.push(src.0 as u16, ());
        let used = &mut self.bytes;
        let index = match sender.lookup(piece, |open| *used -= open.charge()) {
            ObjectState::Open(index) => index,
            ObjectState::New => {
                let all = used.saturating_add(Incoming::charge_of(piece));
                //= spec/arbiter.md#R36
                let has_space = all <= self.bytes_max;
                let Some(open) = has_space.then(|| Incoming::new(now, piece)).flatten() else {
                    stats.refused += 1;
                    sender.end(piece.object, PieceAckState::Refused);
                    return None;
                };
                *used = all;
                self.expire_at =
                    Mono::earlier(self.expire_at, Some(now.after_ns(self.reassembly_timeout_ns)));
                sender.open.push(open);
                sender.open.len() - 1
            }
            ObjectState::Ended => {
                stats.pieces_duplicate += 1;
                return None;
            }
            ObjectState::Stale => {
                stats.dropped += 1;
                return None;
            }
        };
        let open = &mut sender.open[index];
        match open.on_piece(now, piece, bytes) {
            Some(true) => stats.pieces_received += 1,
            Some(false) => stats.pieces_duplicate += 1,
            None => {
                stats.dropped += 1;
                return None;
            }
        }
        sender.unreported += 1;
        if sender.report_at.is_none() {
            sender.report_at = Some(now.after_ns(self.report_delay_ns));
        }
        if !sender.open[index].is_complete() {
            return None;
        }
        let whole = sender.open.swap_remove(index);
        sender.end(piece.object, PieceAckState::Whole);
        *used -= whole.charge();
        Some(whole.into_bytes())
    }

    /// Queues due reports at the endpoint.
    pub fn report(
        &mut self,
        now: Mono,
        client: &mut Client,
        packet: &mut [u8],
        stats: &mut TransferStats,
    ) {
        for _ in 0..self.waiting.len() {
            let Some((src, ())) = self.waiting.pop() else { return };
            let (dst, sender) = (ProcessId(src.into()), &mut self.senders[usize::from(src)]);
            while let Some((object, state)) = sender.final_reports.front().copied() {
                let report = sender.report(object, state, 0);
                let bytes = report.write(packet, core::iter::empty());
                let bytes = bytes.expect("the frame length was checked by new");
                if client.enqueue(dst, &packet[..bytes]).is_err() {
                    break;
                }
                sender.final_reports.pop();
                stats.reports_sent += 1;
            }
            let is_due = sender.report_at.is_some_and(|at| at <= now);
            if is_due || sender.unreported >= PIECES_PER_REPORT {
                (sender.report_at, sender.unreported) = (None, 0);
                for open in &sender.open {
                    let (cumulative, words) = open.report();
                    let report = sender.report(open.object, PieceAckState::Partial, cumulative);
                    let bytes = report.write(packet, words);
                    let bytes = bytes.expect("the frame length was checked by new");
                    // Without space the report is skipped: the sender's timeout triggers another.
                    if client.enqueue(dst, &packet[..bytes]).is_ok() {
                        stats.reports_sent += 1;
                    }
                }
            }
            if sender.report_at.is_some() || !sender.final_reports.is_empty() {
                self.waiting.push(src, ());
            }
        }
    }

    //= spec/arbiter.md#R36
    /// Drops incomplete objects after the reassembly timeout. A sender that is still alive learns
    /// it from the next report, and restarts the object.
    pub fn expire(&mut self, now: Mono, stats: &mut TransferStats) {
        if self.expire_at.is_none_or(|at| at > now) {
            return;
        }
        self.expire_at = None;
        for sender in &mut self.senders {
            sender.open.retain(|open| {
                let at = open.last_received.after_ns(self.reassembly_timeout_ns);
                if at > now {
                    self.expire_at = Mono::earlier(self.expire_at, Some(at));
                    return true;
                }
                self.bytes -= open.charge();
                stats.expired += 1;
                false
            });
        }
    }

    /// Returns the time of the next action.
    pub fn due(&self) -> Option<Mono> {
        let waiting = self.waiting.iter().map(|(src, ())| &self.senders[usize::from(src)]);
        let reports = waiting.filter_map(|sender| sender.report_at).min();
        Mono::earlier(reports, self.expire_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ClientConfig;

    #[test]
    fn objects_beyond_the_window_release_memory() {
        let config = TransferConfig::new(ClientConfig::new(ProcessId(0), 4, ProcessId(9), 1_250));
        let (mut receiving, mut stats) = (Receiving::new(&config), TransferStats::default());
        let each = 40_000;
        let mut open_object = |receiving: &mut Receiving, object| {
            let piece = Piece { object, bytes: each, piece_len: 1_000, index: 0, serial: object };
            let none =
                receiving.on_piece(Mono::from_ns(0), ProcessId(1), &piece, &[7; 1_000], &mut stats);
            assert_eq!(none, None, "not complete yet");
        };
        (0..64).for_each(|object| open_object(&mut receiving, object));
        assert_eq!(receiving.bytes, 64 * each);
        // With at most 64 objects in flight, the first two have ended for their sender.
        open_object(&mut receiving, 65);
        assert_eq!(receiving.bytes, 63 * each);
        receiving.restart(ProcessId(1), Incarnation(2));
        assert_eq!(receiving.bytes, 0);
    }
}
