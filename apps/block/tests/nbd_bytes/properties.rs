//! Properties of a connection that receives any bytes. Shared with `verify/fuzz`.

use std::collections::VecDeque;

use onepipe_block::values::{
    OPTION_MAGIC, OPTION_REPLY_MAGIC, REQUEST_MAGIC, SERVER_MAGIC, SIMPLE_REPLY_MAGIC,
    STRUCTURED_REPLY_MAGIC,
};
use onepipe_block::values::{chunk, handshake_flag, option, request};
use onepipe_block::{
    BlockSizes, Command, Config, Connection, ErrorCode, Export, Extent, Failure, Outcome, Range,
    Request,
};

/// Size of the device.
const SIZE: u64 = 4_096;
/// Bit of the mode with which the device is read-only.
const READ_ONLY: u8 = 1;
/// Bit of the mode with which requests must be aligned.
const ALIGNED: u8 = 2;
/// Bit of the mode with which some requests fail.
const FAILS: u8 = 4;
/// Bit of the mode with which the bytes begin with the first request.
const TRANSMITS: u8 = 8;
/// Bit of the mode with which replies are structured, if they begin so.
const STRUCTURED: u8 = 16;
/// Bit of the mode with which the device executes the newest request first.
const NEWEST_FIRST: u8 = 32;

fn export(mode: u8) -> Export {
    let minimum = if mode & ALIGNED != 0 { 512 } else { 1 };
    Export {
        name: "disk".into(),
        description: "a device".into(),
        size: SIZE,
        is_read_only: mode & READ_ONLY != 0,
        is_flush_shared: false,
        knows_allocation: true,
        block_sizes: BlockSizes { minimum, preferred: 512, maximum: 1_024 },
    }
}

/// Limits at which some inputs arrive.
const CONFIG: Config =
    Config { requests_max: 3, bytes_max: 2_000, options_max: 8, option_bytes_max: 64 };

/// Returns a request in the bytes of the protocol.
pub fn request_bytes(flags: u16, kind: u16, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    let mut bytes = REQUEST_MAGIC.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes
}

/// Returns an option in the bytes of the protocol.
pub fn option_bytes(option: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = OPTION_MAGIC.to_be_bytes().to_vec();
    bytes.extend(option.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

/// Returns what a client sends until the transmission begins.
pub fn opening(is_structured: bool) -> Vec<u8> {
    let flags = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;
    let mut bytes = u32::from(flags).to_be_bytes().to_vec();
    if is_structured {
        bytes.extend(option_bytes(option::STRUCTURED_REPLY, &[]));
        let query = b"\0\0\0\0\0\0\0\x01\0\0\0\x0fbase:allocation";
        bytes.extend(option_bytes(option::SET_META_CONTEXT, query));
    }
    bytes.extend(option_bytes(option::GO, &[0; 6]));
    bytes
}

/// A device of [`SIZE`] bytes, checked against the contract of commands.
struct Device {
    mode: u8,
    bytes: Vec<u8>,
    executed: usize,
}

impl Device {
    fn check(&self, offset: u64, length: u64, is_write: bool) {
        assert!(length > 0, "an empty range");
        assert!(offset + length <= SIZE, "{offset} + {length} is beyond the device");
        let minimum = if self.mode & ALIGNED != 0 { 512 } else { 1 };
        assert!(offset.is_multiple_of(minimum) && length.is_multiple_of(minimum), "not aligned");
        assert!(!is_write || self.mode & READ_ONLY == 0, "a write to a read-only device");
    }

    fn slice(&mut self, range: Range) -> &mut [u8] {
        let offset = range.offset as usize;
        &mut self.bytes[offset..offset + range.length as usize]
    }

    fn execute(&mut self, command: Command) -> Result<Outcome, Failure> {
        match &command {
            Command::Read(range) | Command::Cache(range) | Command::Status(range) => {
                self.check(range.offset, range.length.into(), false);
            }
            Command::Write { offset, data, .. } => self.check(*offset, data.len() as u64, true),
            Command::Trim { range, .. } | Command::WriteZeroes { range, .. } => {
                self.check(range.offset, range.length.into(), true);
            }
            Command::Flush => {}
        }
        self.executed += 1;
        if self.mode & FAILS != 0 && self.executed.is_multiple_of(3) {
            return Err(Failure::new(ErrorCode::Io, "ä".repeat(self.executed * 700 % 5_000)));
        }
        match command {
            Command::Read(range) => return Ok(Outcome::Data(self.slice(range).to_vec())),
            Command::Status(range) => {
                let length = range.length.div_ceil(2);
                let extent = Extent { length, is_allocated: true, is_zero: false };
                return Ok(Outcome::Extents(vec![extent]));
            }
            Command::Write { offset, data, .. } => {
                self.slice(Range { offset, length: data.len() as u32 }).copy_from_slice(&data);
            }
            Command::Trim { range, .. } | Command::WriteZeroes { range, .. } => {
                self.slice(range).fill(0);
            }
            Command::Flush | Command::Cache(_) => {}
        }
        Ok(Outcome::Done)
    }
}

/// Passes bytes to a connection in chunks, as a driver does. Returns what the connection sent.
///
/// Each step makes progress: the connection reads, executes, sends, or has ended.
fn drive(mode: u8, bytes: &[u8], chunk: usize) -> Vec<u8> {
    let connection = Connection::new(export(mode), CONFIG);
    let mut connection = connection.expect("the export is allowed");
    let mut device = Device { mode, bytes: vec![7; SIZE as usize], executed: 0 };
    let mut waiting = VecDeque::new();
    let mut sent = Vec::new();
    for bytes in bytes.chunks(chunk) {
        advance(mode, &mut connection, &mut device, &mut waiting, &mut sent);
        if connection.end().is_some() {
            assert!(connection.is_closed() && !connection.wants_input());
            return sent;
        }
        assert!(connection.wants_input(), "the connection neither reads nor ends");
        connection.handle_input(bytes);
    }
    connection.handle_input_end();
    advance(mode, &mut connection, &mut device, &mut waiting, &mut sent);
    assert!(connection.is_closed() && connection.unsent() == 0);
    sent
}

/// Executes and sends until the connection needs input or has ended.
fn advance(
    mode: u8,
    connection: &mut Connection,
    device: &mut Device,
    waiting: &mut VecDeque<Request>,
    sent: &mut Vec<u8>,
) {
    loop {
        waiting.extend(std::iter::from_fn(|| connection.poll_request()));
        assert!(waiting.len() <= CONFIG.requests_max, "requests in flight are limited");
        // One request and its reply may come on top of the limit, and a refusal with its message.
        let memory_max = CONFIG.bytes_max + 1_024 + 4_096 * CONFIG.requests_max + 1_024;
        assert!(connection.unsent() <= memory_max, "{} bytes wait", connection.unsent());
        let next = match mode & NEWEST_FIRST != 0 {
            true => waiting.pop_back(),
            false => waiting.pop_front(),
        };
        if let Some(request) = next {
            let reply = device.execute(request.command);
            connection.handle_reply(request.id, reply);
        } else if let Some(output) = connection.poll_output() {
            sent.extend_from_slice(&output);
            connection.handle_sent(output.len());
        } else {
            return;
        }
    }
}

/// What a server has sent, in parts.
struct Sent<'a>(&'a [u8]);

impl<'a> Sent<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at_checked(count).expect("the reply is complete");
        self.0 = rest;
        taken
    }

    fn number<const N: usize>(&mut self) -> [u8; N] {
        self.take(N).try_into().expect("it has this length")
    }

    /// Takes a chunk of a structured reply. Returns its type, its cookie and its payload.
    fn chunk(&mut self) -> (u16, u64, &'a [u8]) {
        assert_eq!(u32::from_be_bytes(self.number()), STRUCTURED_REPLY_MAGIC);
        assert_eq!(u16::from_be_bytes(self.number()), chunk::DONE);
        let kind = u16::from_be_bytes(self.number());
        let cookie = u64::from_be_bytes(self.number());
        let length = u32::from_be_bytes(self.number());
        (kind, cookie, self.take(length as usize))
    }

    /// Takes the replies of the handshake that the server began, up to the one to the last option.
    fn handshake(&mut self) {
        assert_eq!(u64::from_be_bytes(self.number()), SERVER_MAGIC);
        assert_eq!(u64::from_be_bytes(self.number()), OPTION_MAGIC);
        self.take(2);
        while self.0.starts_with(&OPTION_REPLY_MAGIC.to_be_bytes()) {
            self.take(16);
            let length = u32::from_be_bytes(self.number());
            self.take(length as usize);
        }
    }
}

/// Checks that the replies of a transmission with structured replies are whole and valid, and each
/// request has one: `cookies` has those of the requests.
fn check_chunks(mut sent: Sent<'_>, cookies: &[u64]) {
    let mut open = cookies.to_vec();
    while !sent.0.is_empty() {
        let (kind, cookie, payload) = sent.chunk();
        let index = open.iter().position(|other| *other == cookie).expect("a request's cookie");
        open.swap_remove(index);
        match kind {
            chunk::NONE => assert!(payload.is_empty()),
            chunk::BLOCK_STATUS => assert_eq!(payload.len(), 12),
            chunk::OFFSET_DATA => assert!(payload.len() > 8),
            chunk::ERROR => {
                let length = u16::from_be_bytes([payload[4], payload[5]]);
                assert!(length <= 4_096 && payload.len() == 6 + usize::from(length));
                assert!(std::str::from_utf8(&payload[6..]).is_ok());
            }
            kind => panic!("chunk type {kind}"),
        }
    }
    assert!(open.is_empty(), "requests {open:?} have no reply");
}

/// Returns the cookies of the whole requests at the beginning of `bytes`.
fn cookies(mut bytes: &[u8]) -> Vec<u64> {
    let mut cookies = Vec::new();
    while let Some((header, rest)) = bytes.split_at_checked(28) {
        let mut fields = Sent(header);
        if u32::from_be_bytes(fields.number()) != REQUEST_MAGIC {
            break;
        }
        fields.take(2);
        let kind = u16::from_be_bytes(fields.number());
        let cookie = u64::from_be_bytes(fields.number());
        fields.take(8);
        let length = u32::from_be_bytes(fields.number()) as usize;
        let payload = if kind == request::WRITE { length } else { 0 };
        if kind == request::DISC || rest.len() < payload {
            break;
        }
        cookies.push(cookie);
        bytes = &rest[payload..];
    }
    cookies
}

/// Checks a connection that receives `bytes`, of which the first chooses the device: it never
/// panics, the device receives only what it allows, each request has one reply, and what is sent
/// does not depend on how the bytes are divided.
pub fn check_connection(bytes: &[u8]) {
    let Some((mode, bytes)) = bytes.split_first() else { return };
    let is_structured = mode & STRUCTURED != 0;
    let opening = if mode & TRANSMITS != 0 { opening(is_structured) } else { Vec::new() };
    let all = [&opening, bytes].concat();
    let outputs = [1, 7, 1_000].map(|chunk| drive(*mode, &all, chunk));
    for sent in &outputs {
        let mut sent = Sent(sent);
        sent.handshake();
        if mode & TRANSMITS == 0 {
            continue;
        }
        let cookies = cookies(bytes);
        if is_structured {
            check_chunks(sent, &cookies);
        } else if cookies.is_empty() {
            assert_eq!(sent.0.len(), 0, "a reply without a request");
        } else {
            assert!(sent.0.starts_with(&SIMPLE_REPLY_MAGIC.to_be_bytes()));
        }
    }
    // With more bytes at once, more requests are in flight, and the order of replies differs.
    if mode & NEWEST_FIRST == 0 && mode & FAILS == 0 {
        let mut lengths = outputs.each_ref().map(Vec::len);
        lengths.sort_unstable();
        assert_eq!(lengths[0], lengths[2], "the replies depend on the division of the input");
    }
}
