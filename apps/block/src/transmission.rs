//! The transmission phase: requests in, replies out (NBD's specification, section "Transmission").

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::command::{Command, Outcome, Request, RequestId};
use crate::config::Config;
use crate::end::End;
use crate::export::Export;
use crate::failure::Failure;
use crate::handshake::Negotiated;
use crate::input::Input;
use crate::output::Output;
use crate::reply::ReplyForm;
use crate::request::{HEADER_LEN, Header};
use crate::values::{request, request_flag};

/// Requests in flight, and the one that is being received.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Transmission {
    negotiated: Negotiated,
    form: ReplyForm,
    receives: Receives,
    /// Requests that were accepted and not polled.
    ready: VecDeque<Request>,
    in_flight: BTreeMap<RequestId, InFlight>,
    /// Bytes that the requests in flight hold, with the payload that is being received.
    bytes: usize,
    next_id: u64,
}

/// What the client sends next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Receives {
    Header,
    Payload {
        header: Header,
        data: Vec<u8>,
    },
    /// The payload of a write that is refused.
    Refused {
        cookie: u64,
        remaining: u32,
        failure: Failure,
    },
}

/// What the reply to a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct InFlight {
    cookie: u64,
    /// Bytes of memory that the request may hold.
    bytes: usize,
    wants: Wants,
}

/// What a request wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Wants {
    Nothing,
    Data { offset: u64, length: u32 },
    Extents { length: u32, is_single: bool },
}

/// What a step of the transmission led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// More bytes are needed.
    Waits,
    /// There may be more to parse.
    Continues,
    /// The session ends.
    Ends(End),
}

impl Transmission {
    /// Begins without requests.
    pub fn new(negotiated: Negotiated) -> Transmission {
        Transmission {
            negotiated,
            form: ReplyForm { is_structured: negotiated.is_structured },
            receives: Receives::Header,
            ready: VecDeque::new(),
            in_flight: BTreeMap::new(),
            bytes: 0,
            next_id: 0,
        }
    }

    /// Returns whether the limits admit the next request.
    pub fn has_capacity(&self, config: &Config, output: &Output) -> bool {
        let is_receiving = self.receives != Receives::Header;
        let has_requests = self.in_flight.len() < config.requests_max;
        is_receiving || (has_requests && self.bytes + output.unsent() < config.bytes_max)
    }

    /// Returns whether requests are in flight.
    pub fn is_in_flight(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Returns the next request to execute.
    pub fn poll_request(&mut self) -> Option<Request> {
        self.ready.pop_front()
    }

    /// Takes payload bytes as they arrive, without queueing them. Returns the rest.
    pub fn handle_payload<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let Receives::Payload { header, data } = &mut self.receives else { return bytes };
        let missing = header.length as usize - data.len();
        let (payload, rest) = bytes.split_at(missing.min(bytes.len()));
        data.extend_from_slice(payload);
        rest
    }

    /// Parses the next part of a request, if it has arrived. The caller sees to it that the limits
    /// admit a request.
    pub fn advance(&mut self, input: &mut Input, export: &Export, output: &mut Output) -> Step {
        match &mut self.receives {
            Receives::Header => match input.take(HEADER_LEN).map(Header::parse) {
                Some(Some(header)) if header.kind == request::DISC => Step::Ends(End::Disconnected),
                Some(Some(header)) => {
                    self.handle_header(header, export, output);
                    Step::Continues
                }
                Some(None) => Step::Ends(End::WrongMagic),
                None => Step::Waits,
            },
            Receives::Payload { header, data } => {
                let missing = header.length as usize - data.len();
                data.extend_from_slice(input.take_up_to(missing));
                if data.len() < header.length as usize {
                    return Step::Waits;
                }
                let (header, data) = (*header, core::mem::take(data));
                self.receives = Receives::Header;
                self.bytes -= data.len();
                let is_durable = header.has(request_flag::FUA);
                self.accept(header, Command::Write { offset: header.offset, data, is_durable });
                Step::Continues
            }
            Receives::Refused { cookie, remaining, failure } => {
                // At most `remaining`, so that it fits.
                *remaining -= input.take_up_to(*remaining as usize).len() as u32;
                if *remaining > 0 {
                    return Step::Waits;
                }
                self.form.push_failure(*cookie, failure, output);
                self.receives = Receives::Header;
                Step::Continues
            }
        }
    }

    fn handle_header(&mut self, header: Header, export: &Export, output: &mut Output) {
        let Header { cookie, length, .. } = header;
        if let Err(failure) = header.check(export, self.negotiated) {
            let remaining = header.payload_len();
            self.receives = Receives::Refused { cookie, remaining, failure };
            return;
        }
        let (range, is_durable) = (header.range(), header.has(request_flag::FUA));
        let command = match header.kind {
            request::FLUSH => Command::Flush,
            // The protocol leaves open what a range without bytes does; here it does nothing.
            _ if length == 0 => return self.form.push_done(cookie, output),
            request::WRITE => {
                self.bytes += length as usize;
                self.receives = Receives::Payload { header, data: Vec::new() };
                return;
            }
            request::READ => Command::Read(range),
            request::TRIM => Command::Trim { range, is_durable },
            request::CACHE => Command::Cache(range),
            request::BLOCK_STATUS => Command::Status(range),
            request::WRITE_ZEROES => Command::WriteZeroes {
                range,
                is_durable,
                may_deallocate: !header.has(request_flag::NO_HOLE),
                must_be_fast: header.has(request_flag::FAST_ZERO),
            },
            kind => unreachable!("`check` refuses command {kind}"),
        };
        self.accept(header, command);
    }

    fn accept(&mut self, header: Header, command: Command) {
        let Header { cookie, offset, length, .. } = header;
        let wants = match command {
            Command::Read(_) => Wants::Data { offset, length },
            Command::Status(_) => {
                Wants::Extents { length, is_single: header.has(request_flag::REQ_ONE) }
            }
            _ => Wants::Nothing,
        };
        let bytes = match &command {
            Command::Write { data, .. } => data.len(),
            Command::Read(range) => range.length as usize,
            _ => 0,
        };
        let id = RequestId(self.next_id);
        self.next_id += 1;
        self.bytes += bytes;
        self.in_flight.insert(id, InFlight { cookie, bytes, wants });
        self.ready.push_back(Request { id, command });
    }

    /// Sends the reply to a request.
    ///
    /// # Panics
    /// If the request is not in flight, or the outcome is not that of its command.
    pub fn handle_reply(
        &mut self,
        id: RequestId,
        result: Result<Outcome, Failure>,
        output: &mut Output,
    ) {
        let InFlight { cookie, bytes, wants } =
            self.in_flight.remove(&id).expect("a request has one reply");
        self.bytes -= bytes;
        match (result, wants) {
            (Ok(Outcome::Done), Wants::Nothing) => self.form.push_done(cookie, output),
            (Ok(Outcome::Data(data)), Wants::Data { offset, length }) => {
                assert_eq!(data.len(), length as usize, "a read returns what it was asked for");
                self.form.push_data(cookie, offset, data, output);
            }
            (Ok(Outcome::Extents(extents)), Wants::Extents { length, is_single }) => {
                let total: u64 = extents.iter().map(|extent| u64::from(extent.length)).sum();
                let has_empty = extents.iter().any(|extent| extent.length == 0);
                assert!(!extents.is_empty() && !has_empty, "a status has extents");
                assert!(total <= u64::from(length), "a status ends where its range ends");
                let count = if is_single { 1 } else { extents.len() };
                self.form.push_extents(cookie, &extents[..count], output);
            }
            (Ok(other), wants) => panic!("{other:?} is no outcome of a request for {wants:?}"),
            (Err(failure), _) => self.form.push_failure(cookie, &failure, output),
        }
    }
}
