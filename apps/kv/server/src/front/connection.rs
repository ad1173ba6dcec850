//! The machine of a connection: bytes in, transactions and bytes out.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::BytesMut;
use onepipe_kv::{Command, CommandError, Value};

use super::commands::{self, Name, error, has_arity, wrong_arity};
use super::execute::execute;
use super::peer::Peer;
use super::reply;
use super::request::{LINE_MAX, Request, RequestReader, TooLarge};
use super::service::Service;
use super::transaction::{Batch, Block, InFlight, Queued, data_count, wrong_count};
use crate::backend::{BackendError, Replies};

/// A connection without its socket.
///
/// The driver passes received bytes to [`handle_input`](Self::handle_input). It then calls
/// [`poll_transaction`](Self::poll_transaction) until that returns `None`, begins each returned
/// transaction, and passes the replies to [`handle_replies`](Self::handle_replies). Bytes to send
/// are in [`output`](Self::output). After each of these calls the connection may have a further
/// transaction, further bytes, or be closed.
pub struct Connection {
    peer: Peer,
    reader: RequestReader,
    input: BytesMut,
    /// A request that waits until the transaction before it has its replies.
    next: Option<Request>,
    block: Option<Block>,
    in_flight: Option<InFlight>,
    output: Vec<u8>,
    /// Number of bytes at the front of `output` that have been sent.
    sent: usize,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// No further request is executed. The output is sent.
    Closed,
    /// The client has not read replies, which have been dropped.
    Overflowed,
}

impl Connection {
    /// Makes the connection of a client at `address`; `None` if there are already `clients_max`.
    pub fn open(service: &Arc<Service>, address: SocketAddr) -> Option<Self> {
        let clients_max = service.options.clients_max;
        let Some(client) = service.clients.add(address, service.local_address, clients_max) else {
            service.counters.rejected_connections.add(1);
            return None;
        };
        service.counters.connections.add(1);
        Some(Self {
            peer: Peer::new(service.clone(), client),
            reader: RequestReader::new(&service.options),
            input: BytesMut::new(),
            next: None,
            block: None,
            in_flight: None,
            output: Vec::new(),
            sent: 0,
            state: State::Open,
        })
    }

    /// Returns whether the driver may read from the socket. If not, the connection first needs
    /// replies, or has to send.
    pub fn wants_input(&self) -> bool {
        // The longest unfinished line has to fit, otherwise the connection would never proceed.
        let input_max = self.peer.service.options.input_max.max(LINE_MAX + 1);
        !self.is_closed() && self.input.len() < input_max
    }

    /// Handles received bytes.
    pub fn handle_input(&mut self, bytes: &[u8]) {
        if !self.is_closed() {
            self.peer.service.counters.input_bytes.add(bytes.len());
            self.input.extend_from_slice(bytes);
        }
    }

    /// Executes the commands of the connection that are next, and returns the commands of the next
    /// transaction. Returns `None` while a transaction is in flight, while much is unsent, and if
    /// no complete request is left.
    pub fn poll_transaction(&mut self) -> Option<Vec<Command>> {
        let mut batch = Batch::default();
        while let Some(request) = self.next_request() {
            match self.gather(&mut batch, request) {
                Ok(()) => {}
                Err(request) if batch.commands.is_empty() => {
                    if let Some(commands) = self.handle_request(request) {
                        return Some(commands);
                    }
                }
                Err(request) => {
                    self.next = Some(request);
                    break;
                }
            }
        }
        if self.input.is_empty() {
            // A connection that waits for its client has no buffer.
            self.input = BytesMut::new();
        }
        (!batch.commands.is_empty())
            .then(|| self.begin(InFlight::Batch(batch.commands.len()), batch.commands))
    }

    /// Handles the replies to the last transaction.
    pub fn handle_replies(&mut self, replies: Replies) {
        let Some(in_flight) = self.in_flight.take() else {
            debug_assert!(false, "there are replies without a transaction");
            return;
        };
        let expected = match &in_flight {
            InFlight::Batch(count) => *count,
            InFlight::Block(queued) => data_count(queued),
        };
        let replies = replies.map_err(|error| error_text(&error)).and_then(|replies| {
            match replies.len() == expected {
                true => Ok(replies),
                false => Err(wrong_count(expected, &replies)),
            }
        });
        match (in_flight, replies) {
            (InFlight::Batch(_), Ok(replies)) => {
                replies.iter().for_each(|reply| self.write(reply));
            }
            (InFlight::Block(queued), Ok(replies)) => self.finish_block(queued, replies),
            (InFlight::Batch(count), Err(text)) => {
                self.peer.service.counters.failed_transactions.add(1);
                (0..count).for_each(|_| self.write(&error(text.clone())));
            }
            (InFlight::Block(_), Err(text)) => {
                self.peer.service.counters.failed_transactions.add(1);
                self.write(&error(text));
            }
        }
    }

    /// Returns the bytes to send.
    pub fn output(&self) -> &[u8] {
        &self.output[self.sent..]
    }

    /// Removes bytes that have been sent from the front of the output.
    ///
    /// # Panics
    /// If the output has fewer than `count` bytes.
    pub fn handle_sent(&mut self, count: usize) {
        assert!(count <= self.output().len(), "no more than the output was sent");
        self.peer.service.counters.output_bytes.add(count);
        self.sent += count;
        if self.sent == self.output.len() {
            self.sent = 0;
            match self.output.capacity() > OUTPUT_RETAINED_MAX {
                true => self.output = Vec::new(),
                false => self.output.clear(),
            }
        }
    }

    /// Returns whether a transaction was returned whose replies are missing.
    pub fn is_in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Returns whether the connection has ended. The driver sends the output and closes the socket.
    pub fn is_closed(&self) -> bool {
        self.state != State::Open
    }

    /// Returns whether the connection has ended because the client does not read its replies.
    pub(super) fn has_overflowed(&self) -> bool {
        self.state == State::Overflowed
    }

    fn next_request(&mut self) -> Option<Request> {
        let is_paused = self.output().len() >= self.peer.service.options.output_pause;
        if self.is_closed() || self.in_flight.is_some() || is_paused {
            return None;
        }
        let next = self.next.take();
        next.or_else(|| self.reader.next(&mut self.input, self.peer.is_authenticated))
    }

    /// Adds a data command to the batch. Any other request, and one that would make the batch too
    /// large, is returned.
    fn gather(&self, batch: &mut Batch, request: Request) -> Result<(), Request> {
        let options = &self.peer.service.options;
        let (arguments, bytes) = match &request {
            Request::Command { arguments, bytes } => (arguments, *bytes),
            Request::TooLarge(_) | Request::Invalid(_) => return Err(request),
        };
        let is_full = batch.commands.len() >= options.batch_commands_max
            || batch.bytes.saturating_add(bytes) > options.batch_bytes_max;
        let is_data = self.peer.is_authenticated
            && self.block.is_none()
            && (batch.commands.is_empty() || !is_full)
            && commands::find(&arguments[0]).is_none();
        match is_data.then(|| Command::parse(arguments)) {
            Some(Ok(command)) => {
                batch.bytes += bytes;
                batch.commands.push(command);
                Ok(())
            }
            _ => Err(request),
        }
    }

    fn begin(&mut self, in_flight: InFlight, commands: Vec<Command>) -> Vec<Command> {
        self.peer.service.counters.transactions.add(1);
        if let InFlight::Batch(count) = in_flight {
            self.peer.service.counters.commands.add(count);
        }
        if let Some(last) = commands.last() {
            self.note_command(last.name());
        }
        self.in_flight = Some(in_flight);
        commands
    }

    /// Handles a request that is not gathered into a batch. Returns a transaction if it is `EXEC`.
    fn handle_request(&mut self, request: Request) -> Option<Vec<Command>> {
        let (arguments, bytes) = match request {
            Request::Command { arguments, bytes } => (arguments, bytes),
            Request::TooLarge(too_large) => {
                self.refuse(&error(too_large.to_string()));
                return None;
            }
            Request::Invalid(invalid) => {
                self.write(&error(invalid.to_string()));
                self.close();
                return None;
            }
        };
        self.peer.service.counters.commands.add(1);
        let Some(spec) = commands::find(&arguments[0]) else {
            self.handle_data(&arguments, bytes);
            return None;
        };
        self.note_command(spec.name);
        if !has_arity(spec.arity, arguments.len()) {
            self.refuse(&wrong_arity(spec.name));
            return None;
        }
        let needs_no_password =
            matches!(spec.command, Name::Auth | Name::Hello | Name::Quit | Name::Reset);
        if !self.peer.is_authenticated && !needs_no_password {
            self.refuse(&error(NO_AUTH));
            return None;
        }
        match spec.command {
            Name::Exec => return self.exec(),
            Name::Multi if self.block.is_some() => {
                self.write(&error("ERR MULTI calls can not be nested"));
            }
            Name::Multi => {
                self.block = Some(Block::default());
                self.write(&Value::Ok);
            }
            Name::Discard => {
                let reply = match self.block.take() {
                    Some(_) => Value::Ok,
                    None => error("ERR DISCARD without MULTI"),
                };
                self.write(&reply);
            }
            Name::Watch if self.block.is_some() => {
                self.write(&error("ERR WATCH inside MULTI is not allowed"));
            }
            Name::Quit => {
                self.write(&Value::Ok);
                self.close();
            }
            Name::Reset => {
                self.block = None;
                self.peer.reset();
                self.write(&Value::Simple("RESET".into()));
            }
            _ if self.block.is_some() => {
                self.queue(Queued::Connection(spec, arguments), None, bytes);
            }
            _ => {
                let reply = execute(&mut self.peer, spec, &arguments);
                self.write(&reply);
            }
        }
        None
    }

    /// Handles a data command that is in a block, or that cannot be executed.
    fn handle_data(&mut self, arguments: &[Vec<u8>], bytes: usize) {
        let parsed = Command::parse(arguments);
        match parsed {
            Err(unknown @ CommandError::Unknown { .. }) => {
                self.refuse(&error(unknown.to_string()));
            }
            Err(arity @ CommandError::Arity(_)) if !has_arity_of_spec(arguments) => {
                self.refuse(&error(arity.to_string()));
            }
            _ if !self.peer.is_authenticated => self.refuse(&error(NO_AUTH)),
            _ if self.block.is_some() => match parsed {
                Ok(command) => self.queue(Queued::Data, Some(command), bytes),
                Err(failed) => self.queue(Queued::Failed(failed.to_string()), None, bytes),
            },
            Err(failed) => self.write(&error(failed.to_string())),
            Ok(_) => {
                debug_assert!(false, "the command belongs to a batch");
                self.write(&error("ERR the command was not executed"));
            }
        }
    }

    /// Adds a command to the block.
    fn queue(&mut self, queued: Queued, command: Option<Command>, bytes: usize) {
        let options = &self.peer.service.options;
        let Some(block) = &mut self.block else { return };
        block.bytes = block.bytes.saturating_add(bytes);
        if block.bytes > options.transaction_bytes_max {
            let too_large = TooLarge::Command { max: options.transaction_bytes_max };
            self.refuse(&error(too_large.to_string()));
        } else if block.queued.len() >= options.transaction_commands_max {
            self.refuse(&error(format!(
                "ERR the transaction exceeds the limit of {} commands (transaction_commands_max)",
                options.transaction_commands_max
            )));
        } else {
            block.queued.push(queued);
            block.commands.extend(command);
            self.write(&Value::Simple("QUEUED".into()));
        }
    }

    fn exec(&mut self) -> Option<Vec<Command>> {
        let Some(block) = self.block.take() else {
            self.write(&error("ERR EXEC without MULTI"));
            return None;
        };
        if block.is_aborted {
            self.write(&error("EXECABORT Transaction discarded because of previous errors."));
            return None;
        }
        if block.commands.is_empty() {
            self.finish_block(block.queued, Vec::new());
            return None;
        }
        Some(self.begin(InFlight::Block(block.queued), block.commands))
    }

    /// Writes the reply to `EXEC`. The connection executes its own commands now.
    fn finish_block(&mut self, queued: Vec<Queued>, replies: Vec<Value>) {
        let mut replies = replies.into_iter();
        reply::begin_array(queued.len(), &mut self.output);
        for queued in queued {
            let reply = match queued {
                Queued::Data => replies.next().unwrap_or(Value::Null),
                Queued::Failed(text) => error(text),
                Queued::Connection(spec, arguments) => execute(&mut self.peer, spec, &arguments),
            };
            self.write(&reply);
        }
    }

    /// Replies with an error. If the command belongs to a block, `EXEC` executes nothing.
    fn refuse(&mut self, reply: &Value) {
        if let Some(block) = &mut self.block {
            *block = Block { is_aborted: true, ..Block::default() };
        }
        self.write(reply);
    }

    fn write(&mut self, reply: &Value) {
        if self.state == State::Overflowed {
            return;
        }
        reply::encode(reply, self.peer.protocol, &mut self.output);
        if self.output().len() > self.peer.service.options.output_max {
            self.peer.service.counters.closed_at_output_max.add(1);
            self.output = Vec::new();
            self.sent = 0;
            self.close();
            self.state = State::Overflowed;
        }
    }

    fn close(&mut self) {
        self.state = State::Closed;
        self.input = BytesMut::new();
        self.next = None;
        self.block = None;
    }

    fn note_command(&self, name: &'static str) {
        self.peer.client.labels().last_command = name;
    }
}

/// Capacity of an output buffer that is retained after its bytes have been sent.
const OUTPUT_RETAINED_MAX: usize = 64 << 10;

const NO_AUTH: &str = "NOAUTH Authentication required.";

/// Returns the error reply for a transaction without replies. A client may repeat a transaction
/// after `TRYAGAIN`, because it was not begun.
fn error_text(error: &BackendError) -> String {
    match error {
        BackendError::Unavailable(_) => format!("CLUSTERDOWN {error}"),
        BackendError::Busy(_) => format!("TRYAGAIN {error}"),
        BackendError::Disk(reason) => format!("MISCONF Errors writing to the AOF file: {reason}"),
        BackendError::Restarted
        | BackendError::TooLarge
        | BackendError::Ended(_)
        | BackendError::Results(_) => {
            format!("ERR {error}")
        }
    }
}

/// Returns whether the arguments of a data command are as many as its specification says. If so,
/// Redis reports errors in them when the command is executed, not when it is queued.
fn has_arity_of_spec(arguments: &[Vec<u8>]) -> bool {
    let spec =
        Command::specs().find(|spec| arguments[0].eq_ignore_ascii_case(spec.name.as_bytes()));
    spec.is_some_and(|spec| has_arity(spec.arity, arguments.len()))
}

#[cfg(test)]
mod tests;
