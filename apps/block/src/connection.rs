//! A connection: the handshake, then the transmission.

use alloc::vec::Vec;

use crate::command::{Outcome, Request, RequestId};
use crate::config::Config;
use crate::end::End;
use crate::export::{Export, ExportError};
use crate::failure::Failure;
use crate::handshake::{self, Handshake};
use crate::input::Input;
use crate::output::Output;
use crate::transmission::{self, Transmission};

/// The server's end of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Connection {
    export: Export,
    config: Config,
    phase: Phase,
    input: Input,
    output: Output,
    /// Whether the client sends no more.
    is_input_ended: bool,
    end: Option<End>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Handshake(Handshake),
    Transmission(Transmission),
}

impl Connection {
    /// Begins the handshake.
    ///
    /// # Errors
    /// If the protocol does not allow such an export.
    pub fn new(export: Export, config: Config) -> Result<Connection, ExportError> {
        export.check()?;
        let mut output = Output::default();
        let phase = Phase::Handshake(Handshake::begin(&mut output));
        Ok(Connection {
            export,
            config,
            phase,
            input: Input::default(),
            output,
            is_input_ended: false,
            end: None,
        })
    }

    /// Returns whether to read from the client. If not, a reply, sent bytes or the end come first.
    pub fn wants_input(&self) -> bool {
        !self.is_input_ended && self.has_capacity()
    }

    /// Returns whether the limits admit to parse more.
    fn has_capacity(&self) -> bool {
        self.end.is_none()
            && match &self.phase {
                Phase::Handshake(_) => self.output.unsent() < self.config.bytes_max,
                Phase::Transmission(transmission) => {
                    transmission.has_capacity(&self.config, &self.output)
                }
            }
    }

    /// Returns whether the client has chosen the export.
    pub fn is_transmitting(&self) -> bool {
        matches!(self.phase, Phase::Transmission(_))
    }

    /// Parses received bytes. A driver calls this only while [`wants_input`](Self::wants_input), so
    /// that at most one of its buffers is queued.
    pub fn handle_input(&mut self, mut bytes: &[u8]) {
        if self.end.is_some() {
            return;
        }
        if let Phase::Transmission(transmission) = &mut self.phase {
            // While a payload is received, nothing is queued before it.
            bytes = transmission.handle_payload(bytes);
        }
        self.input.push(bytes);
        self.advance();
    }

    /// Takes note that the client sends no more. Whole requests that were received are completed.
    pub fn handle_input_end(&mut self) {
        self.is_input_ended = true;
        self.advance();
    }

    /// Takes note that nothing can be sent to the client any more.
    pub fn handle_output_end(&mut self) {
        self.output.close();
        self.finish(End::InputEnded);
    }

    /// Accepts no further request. What is in flight is completed.
    pub fn handle_shutdown(&mut self) {
        self.finish(End::Shutdown);
    }

    /// Returns the next request to execute.
    pub fn poll_request(&mut self) -> Option<Request> {
        match &mut self.phase {
            Phase::Handshake(_) => None,
            Phase::Transmission(transmission) => transmission.poll_request(),
        }
    }

    /// Replies to a request, in any order.
    ///
    /// # Panics
    /// If the request is not in flight, or the outcome is not that of its command: a read returns
    /// as many bytes as it was asked for, a status at least one extent.
    pub fn handle_reply(&mut self, id: RequestId, result: Result<Outcome, Failure>) {
        let Phase::Transmission(transmission) = &mut self.phase else {
            panic!("there are no requests in the handshake");
        };
        transmission.handle_reply(id, result, &mut self.output);
        self.advance();
    }

    /// Returns the next bytes to send.
    pub fn poll_output(&mut self) -> Option<Vec<u8>> {
        self.output.poll()
    }

    /// Takes note that polled bytes were sent, which frees memory for further requests.
    ///
    /// # Panics
    /// If fewer bytes were polled.
    pub fn handle_sent(&mut self, count: usize) {
        self.output.handle_sent(count);
        self.advance();
    }

    /// Returns why the session ends, once it ends.
    pub fn end(&self) -> Option<End> {
        self.end
    }

    /// Returns whether the session has ended, all requests are complete, and all replies are sent.
    pub fn is_closed(&self) -> bool {
        let is_in_flight = match &self.phase {
            Phase::Handshake(_) => false,
            Phase::Transmission(transmission) => transmission.is_in_flight(),
        };
        self.end.is_some() && !is_in_flight && self.output.unsent() == 0
    }

    /// Returns the bytes of memory that are queued to be sent or are polled and not sent.
    pub fn unsent(&self) -> usize {
        self.output.unsent()
    }

    /// Parses what is queued, as far as the limits admit.
    fn advance(&mut self) {
        while self.has_capacity() {
            let Connection { export, config, input, output, .. } = self;
            match &mut self.phase {
                Phase::Handshake(handshake) => {
                    match handshake.advance(input, export, config, output) {
                        handshake::Step::Waits => return self.finish_if_input_ended(),
                        handshake::Step::Continues => {}
                        handshake::Step::Transmits(negotiated) => {
                            self.phase = Phase::Transmission(Transmission::new(negotiated));
                        }
                        handshake::Step::Ends(end) => self.finish(end),
                    }
                }
                Phase::Transmission(transmission) => {
                    match transmission.advance(input, export, output) {
                        transmission::Step::Waits => return self.finish_if_input_ended(),
                        transmission::Step::Continues => {}
                        transmission::Step::Ends(end) => self.finish(end),
                    }
                }
            }
        }
    }

    /// Ends the session if what it waits for does not come.
    fn finish_if_input_ended(&mut self) {
        if self.is_input_ended {
            self.finish(End::InputEnded);
        }
    }

    fn finish(&mut self, end: End) {
        self.end.get_or_insert(end);
        self.input.clear();
    }
}
