//! The switch for rivals: plain forwarding, with or without the sequencer in it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Result;
use onepipe_base::{Machine, Now, Port, ProcessId};
use onepipe_rivals::{Links, Rival};
use onepipe_transport_clock::{Clock, SystemClock};
use onepipe_transport_driver::Idle;
use onepipe_transport_udp::{BatchSocket, Config};
use onepipe_wire::parse_header;

use super::delivery_log::{TIMEOUT, cpu_seconds};
use super::{Job, Outcome, RivalMethod, rival};

/// Forwards frames until idle for a second.
pub(super) fn relay(
    job: &Job,
    bind: &str,
    frame_len: usize,
    method: RivalMethod,
) -> Result<Outcome> {
    let config =
        Config { bind: Some(bind.parse()?), frame_len_max: frame_len, ..Config::default() };
    let sequencer_id = ProcessId(job.processes);
    let sequencer = Job { process: sequencer_id.0, ..job.clone() };
    let sequencer = (method == RivalMethod::SwitchSequencer)
        .then(|| rival::new_rival(&sequencer, method, Links::Uplink, frame_len))
        .transpose()?;
    // The members, and a sequencer at a host.
    let nodes = job.processes as usize + 1;
    let mut relay = Relay {
        socket: BatchSocket::bind(&config, nodes)?,
        addresses: vec![None; nodes],
        sequencer_id,
        sequencer,
        clock: SystemClock::calibrated(),
        frames: 0,
    };
    let mut last_frame_at = Instant::now();
    let is_spinning = job.idle() == Idle::Spin;
    while last_frame_at.elapsed() < if relay.frames == 0 { TIMEOUT } else { Duration::from_secs(1) }
    {
        let before = relay.frames;
        relay.turn();
        if relay.frames > before {
            last_frame_at = Instant::now();
        } else if !is_spinning {
            std::thread::yield_now();
        }
    }
    let delivered = relay.frames;
    Ok(Outcome { delivered, cpu_seconds: cpu_seconds(), ..Outcome::default() })
}

struct Relay {
    socket: BatchSocket,
    /// Address from which each process last sent.
    addresses: Vec<Option<SocketAddr>>,
    sequencer_id: ProcessId,
    sequencer: Option<Rival>,
    clock: SystemClock,
    frames: u64,
}

impl Relay {
    fn turn(&mut self) {
        let batches = self.socket.receive();
        let now = self.clock.read();
        for batch in 0..batches {
            let from = self.socket.source(batch);
            for index in self.socket.frames(batch) {
                self.frames += 1;
                let frame = self.socket.frame(index);
                let Ok((header, opcode)) = parse_header(frame) else { continue };
                let (src, dst) = (header.src(), header.dst());
                if opcode.is_hop_only() {
                    // An announcement: only the sender's address matters.
                } else if dst == self.sequencer_id
                    && let Some(sequencer) = &mut self.sequencer
                {
                    sequencer.handle_frame(now, Port(0), frame);
                } else {
                    self.socket.send(dst.index(), index);
                }
                self.learn_address(src, from);
            }
        }
        self.send_from_sequencer(now);
        // Frames without buffer space are dropped; their senders retransmit.
        self.socket.flush();
    }

    fn learn_address(&mut self, process: ProcessId, from: Option<SocketAddr>) {
        let Some(address) = self.addresses.get_mut(process.index()) else { return };
        if *address != from {
            *address = from;
            self.socket.set_destination(process.index(), from);
        }
    }

    /// Sends the frames of the built-in sequencer.
    fn send_from_sequencer(&mut self, now: Now) {
        let Some(sequencer) = &mut self.sequencer else { return };
        if sequencer.poll_timeout().is_some_and(|due| due <= now.mono) {
            sequencer.handle_timeout(now);
        }
        while sequencer.poll_event().is_some() {}
        while let Some(slot) = self.socket.slot() {
            let Some(transmit) = sequencer.poll_transmit(now, self.socket.frame(slot)) else {
                break;
            };
            let index = self.socket.keep(slot, transmit.bytes);
            let to = parse_header(self.socket.frame(index)).map(|(header, _)| header.dst().index());
            if let Ok(to) = to {
                self.socket.send(to, index);
            }
        }
    }
}
