//! What a link to one switch has to do with joining.

use std::net::SocketAddr;
use std::time::Duration;

use onepipe_base::{Machine, Now, Port};
use onepipe_join::{Event, Joiner, JoinerConfig, Roster};
use onepipe_wire::Terms;

use crate::handshake::{Handshake, Refusal};
use crate::{BatchSocket, JoinFailure};

/// The switch or the aggregator at the other end of a link: the handshake with it, and the
/// processes that it knows.
#[derive(Debug)]
pub(crate) struct Uplink {
    /// The command that runs there: `switch` or `aggregator`.
    above: &'static str,
    address: SocketAddr,
    /// The socket's destination for frames to it.
    destination: usize,
    /// `None`: the other end admits without being asked.
    handshake: Option<(Handshake, JoinerConfig)>,
    /// `None`: not wanted, or the terms are not known yet.
    roster: Option<Roster>,
}

/// The port of the switch.
const UP: Port = Port(0);

impl Uplink {
    pub fn new(above: &'static str, address: SocketAddr, destination: usize) -> Self {
        Self { above, address, destination, handshake: None, roster: None }
    }

    /// Returns whether `frame` is for the link, and not for the machine behind it.
    #[inline]
    pub fn takes(&self, frame: &[u8]) -> bool {
        self.handshake.is_some() && (Joiner::takes(frame) || Roster::takes(frame))
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Asks for admission from now on.
    pub fn start_joining(&mut self, joiner: JoinerConfig) {
        self.handshake = Some((Handshake::new(joiner), joiner));
    }

    /// See [`crate::UdpLink::join`].
    pub fn join(
        &mut self,
        socket: &mut BatchSocket,
        wait: Duration,
        read: impl FnMut() -> Now,
    ) -> Result<Option<Terms>, JoinFailure> {
        let Some((handshake, _)) = self.handshake.as_mut().filter(|_| !wait.is_zero()) else {
            return Ok(None);
        };
        let above = (self.above, self.address);
        let terms = handshake.ask(socket, self.destination, above, wait, read)?;
        self.on_terms(&terms);
        Ok(Some(terms))
    }

    fn on_terms(&mut self, terms: &Terms) {
        if let Some((_, JoinerConfig { own, wants_members: true, .. })) = self.handshake
            && self.roster.is_none()
        {
            self.roster = Some(Roster::of_process(own, terms.processes_max));
        }
    }

    pub fn refusal(&self) -> Option<Refusal> {
        self.handshake.as_ref()?.0.refusal()
    }

    /// Returns the present refusal as an error, if it will not pass by itself.
    pub fn failure(&self) -> Option<JoinFailure> {
        Some(self.refusal().filter(Refusal::is_final)?.at(self.address))
    }

    /// Returns the other processes, as far as known.
    pub fn roster(&self) -> Option<&Roster> {
        self.roster.as_ref()
    }

    /// Handles a frame from the switch for which [`Uplink::takes`] holds.
    #[cold]
    pub fn on_frame(&mut self, now: Now, frame: &mut [u8]) {
        if Roster::takes(frame) {
            if let Some(roster) = &mut self.roster {
                roster.handle_frame(now, UP, frame);
            }
            return;
        }
        let Some((handshake, _)) = &mut self.handshake else { return };
        match handshake.on_frame(now, frame) {
            Some(Event::Invited(terms) | Event::Accepted(terms)) => self.on_terms(&terms),
            Some(Event::Forgotten) => {
                self.roster.iter_mut().for_each(|roster| roster.forget(now, UP));
            }
            _ => {}
        }
    }

    /// Sends the request if it is due, and acknowledgements.
    #[inline]
    pub fn send(&mut self, now: Now, socket: &mut BatchSocket) {
        if let Some((handshake, _)) = &mut self.handshake {
            handshake.send(now, socket, self.destination);
        }
        if let Some(roster) = &mut self.roster
            && roster.wants_transmit(now.mono)
        {
            send_members(roster, now, socket, |_| self.destination);
        }
    }

    /// Returns how long the link may wait.
    pub fn limit_wait(&self, timeout_ns: u64) -> u64 {
        let limit = |(handshake, _): &(Handshake, _)| handshake.limit_wait(timeout_ns);
        self.handshake.as_ref().map_or(timeout_ns, limit)
    }
}

/// Sends what `roster` has to send at `now`, through `socket` to the destination of each port.
#[cold]
pub fn send_members(
    roster: &mut Roster,
    now: Now,
    socket: &mut BatchSocket,
    destination: impl Fn(Port) -> usize,
) {
    while let Some(slot) = socket.slot()
        && let Some(transmit) = roster.poll_transmit(now, socket.frame(slot))
    {
        let frame = socket.keep(slot, transmit.bytes);
        socket.send(destination(transmit.port), frame);
    }
    socket.flush();
}
