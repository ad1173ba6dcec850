//! A switch of the simulated fabric: the real machine, optionally with a bug around it.

use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Promises, Timestamp, Transmit, Verdict};
use onepipe_switch::{Switch, SwitchEvent};
use onepipe_wire::{Frame, HEADER_LEN, Header, parse_header, rewrite_promises, seal_with_hops};

use crate::bug::{AHEAD_NS, BUG_PERIOD, Bug};

/// A switch with an optional bug.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SimSwitch {
    switch: Switch,
    bug: Option<Bug>,
    /// Highest promise received on any port.
    peak: Option<Promises>,
    opportunities: u32,
}

impl SimSwitch {
    /// Creates a switch, optionally with a bug.
    pub fn new(switch: Switch, bug: Option<Bug>) -> Self {
        Self { switch, bug, peak: None, opportunities: 0 }
    }

    /// Returns the real machine.
    pub fn switch(&self) -> &Switch {
        &self.switch
    }

    fn is_due(&mut self) -> bool {
        self.opportunities += 1;
        self.opportunities.is_multiple_of(BUG_PERIOD)
    }

    /// Passes a frame to the switch, and applies the bug to what the switch does with it.
    #[cold]
    fn handle_with_bug(&mut self, bug: Bug, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        let Ok((header, opcode)) = parse_header(frame) else {
            return self.switch.handle_frame(now, port, frame);
        };
        let received = header.promises(now.sync);
        self.peak = Some(self.peak.map_or(received, |peak| peak.max(received)));
        if bug == Bug::SwitchDropsBeacons && opcode.is_beacon() {
            return Verdict::Consumed;
        }
        let verdict = self.switch.handle_frame(now, port, frame);
        if !matches!(verdict, Verdict::Forward(_) | Verdict::Replicate(_)) {
            return verdict;
        }
        let is_last = matches!(verdict, Verdict::Forward(_));
        match bug {
            Bug::SwitchAdvertisesMaximum => rewrite_promises(frame, self.peak.unwrap_or(received)),
            Bug::SwitchForwardsOwnPromise => rewrite_promises(frame, received),
            // The switch recognises a frame between two of its copies by what is forged here.
            Bug::SwitchForgesPayload if is_last && opcode.has_messages() && self.is_due() => {
                let last = frame.len() - 1;
                frame[last] ^= 0x40;
                forge(frame, None);
            }
            Bug::SwitchForgesReceiver if is_last && opcode.has_messages() && self.is_due() => {
                forge(frame, Some(now.sync));
            }
            _ => {}
        }
        verdict
    }
}

/// Recomputes the checksums of a modified frame. With `swap_near` it also replaces the receiver by
/// the process whose id differs in the lowest bit; the value is the time near which the timestamps
/// of the frame lie.
fn forge(frame: &mut [u8], swap_near: Option<Timestamp>) {
    let Ok((header, _)) = parse_header(frame) else { return };
    let (mut forged, hops, payload) = (header, header.hops(), header.length());
    if let Some(near) = swap_near {
        let Ok(opcode) = header.opcode() else { return };
        let to = ProcessId(header.dst().0 ^ 1);
        let flags = if header.has(onepipe_wire::Flags::END_OF_MESSAGE) { 1 } else { 0 };
        forged = Header::new(opcode, header.src(), to, header.incarnation())
            .stamped(header.message_ts(near), header.promises(near), header.psn())
            .flagged(flags);
    }
    seal_with_hops(frame, forged, payload, hops);
    debug_assert!(Frame::parse(frame).is_ok() && frame.len() >= HEADER_LEN);
}

impl Machine for SimSwitch {
    type Event = SwitchEvent;

    #[inline]
    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        match self.bug {
            None => self.switch.handle_frame(now, port, frame),
            Some(bug) => self.handle_with_bug(bug, now, port, frame),
        }
    }

    fn handle_timeout(&mut self, now: Now) {
        self.switch.handle_timeout(now);
    }

    #[inline]
    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        let transmit = self.switch.poll_transmit(now, slot)?;
        let frame = &mut slot[..transmit.bytes];
        match self.bug {
            Some(Bug::SwitchPromisesAhead) => {
                if let Ok((header, _)) = parse_header(frame) {
                    let barrier = header.promises(now.sync).barrier;
                    rewrite_promises(frame, Promises::both(barrier.wrapping_add_ns(AHEAD_NS)));
                }
            }
            Some(Bug::SwitchAdvertisesMaximum) => {
                if let Some(peak) = self.peak {
                    rewrite_promises(frame, peak);
                }
            }
            _ => {}
        }
        Some(transmit)
    }

    #[inline]
    fn poll_event(&mut self) -> Option<SwitchEvent> {
        self.switch.poll_event()
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Mono> {
        self.switch.poll_timeout()
    }
}
