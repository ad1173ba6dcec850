//! A switch that only forwards, optionally with the sequencer in it.

use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Psn, Transmit, Verdict};
use onepipe_rivals::Rival;
use onepipe_sim_traffic::{Forwarder, RateLimited};
use onepipe_wire::parse_header;

use super::sequencer_route::SequencerPorts;

/// A forwarding switch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PlainSwitch {
    pub forwarder: Forwarder,
    /// The ports towards the sequencer.
    pub sequencer: Option<SequencerPorts>,
    /// The sequencer, if it runs in this switch.
    pub local_sequencer: Option<Box<RateLimited<Rival>>>,
}

impl PlainSwitch {
    fn port(&self, src: ProcessId, dst: ProcessId, psn: Psn) -> Option<Port> {
        let to_sequencer = self.sequencer.as_ref().and_then(|ports| ports.port(src, dst));
        to_sequencer.or_else(|| self.forwarder.port(src, dst, psn))
    }
}

impl Machine for PlainSwitch {
    type Event = ();

    #[inline]
    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        let Ok((header, _)) = parse_header(frame) else { return Verdict::Dropped };
        let (src, dst, psn) = (header.src(), header.dst(), header.psn());
        if let Some(local_sequencer) = &mut self.local_sequencer
            && dst == local_sequencer.machine.config().process
        {
            return local_sequencer.handle_frame(now, port, frame);
        }
        self.port(src, dst, psn).map_or(Verdict::Dropped, Verdict::Forward)
    }

    fn handle_timeout(&mut self, now: Now) {
        if let Some(local_sequencer) = &mut self.local_sequencer {
            local_sequencer.handle_timeout(now);
        }
    }

    #[inline]
    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        let transmit = self.local_sequencer.as_mut()?.poll_transmit(now, slot)?;
        let (header, _) = parse_header(&slot[..transmit.bytes]).ok()?;
        let port = self.port(header.src(), header.dst(), header.psn())?;
        Some(Transmit { port, ..transmit })
    }

    fn poll_event(&mut self) -> Option<()> {
        None
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Mono> {
        self.local_sequencer.as_ref()?.poll_timeout()
    }
}
