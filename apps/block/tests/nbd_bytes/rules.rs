//! Single rules of the specification, byte by byte.

use onepipe_block::values::{
    SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, export_flag, option, option_reply, request,
    request_flag,
};
use onepipe_block::{
    BlockSizes, Command, Config, Connection, End, ErrorCode, Export, Extent, Failure, Outcome,
    Range,
};

use crate::properties::{opening, option_bytes, request_bytes};

const SIZE: u64 = 1 << 20;

fn export() -> Export {
    Export {
        name: "disk".into(),
        description: String::new(),
        size: SIZE,
        is_read_only: false,
        is_flush_shared: true,
        knows_allocation: true,
        block_sizes: BlockSizes { minimum: 512, preferred: 4_096, maximum: 65_536 },
    }
}

fn connect(export: Export, config: Config, input: &[u8]) -> Connection {
    let mut connection = Connection::new(export, config).expect("the export is allowed");
    connection.handle_input(input);
    connection
}

/// Returns a connection whose handshake is complete.
fn transmit(export: Export, config: Config, is_structured: bool) -> Connection {
    let mut connection = connect(export, config, &opening(is_structured));
    sent(&mut connection);
    assert!(connection.is_transmitting());
    connection
}

fn sent(connection: &mut Connection) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(bytes) = connection.poll_output() {
        connection.handle_sent(bytes.len());
        all.extend(bytes);
    }
    all
}

fn simple_reply(cookie: u64, error: u32) -> Vec<u8> {
    [&SIMPLE_REPLY_MAGIC.to_be_bytes()[..], &error.to_be_bytes(), &cookie.to_be_bytes()].concat()
}

fn option_reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = 0x0003_e889_0455_65a9_u64.to_be_bytes().to_vec();
    bytes.extend(option.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

#[test]
fn refuses_requests_with_the_error_of_the_protocol() {
    use request::{BLOCK_STATUS, CACHE, FLUSH, READ, RESIZE, TRIM, WRITE, WRITE_ZEROES};
    let read_only = Export { is_read_only: true, ..export() };
    let flag = |bit: u16| 1 << bit;
    let (invalid, no_space) = (ErrorCode::Invalid, ErrorCode::NoSpace);
    for (export, flags, kind, offset, length, code) in [
        (export(), 0, READ, SIZE, 512, invalid),
        (export(), 0, READ, u64::MAX - 511, 512, invalid),
        (export(), 0, WRITE, SIZE - 512, 1_024, no_space),
        (export(), 0, WRITE_ZEROES, SIZE - 512, 1_024, no_space),
        (export(), 0, TRIM, SIZE - 512, 1_024, invalid),
        (export(), 0, CACHE, SIZE, 512, invalid),
        (export(), 0, READ, 1, 512, invalid),
        (export(), 0, WRITE, 512, 100, invalid),
        (export(), 0, READ, 0, 65_536 + 512, invalid),
        (export(), 0, WRITE, 0, 65_536 + 512, invalid),
        (export(), 0, FLUSH, 512, 0, invalid),
        (export(), 0, BLOCK_STATUS, 0, 512, invalid),
        (export(), 0, RESIZE, 0, 0, invalid),
        (export(), 0, 99, 0, 0, invalid),
        (export(), request_flag::DF, READ, 0, 512, invalid),
        (export(), request_flag::NO_HOLE, TRIM, 0, 512, invalid),
        (export(), flag(7), READ, 0, 512, invalid),
        (read_only.clone(), 0, WRITE, 0, 512, ErrorCode::NotPermitted),
        (read_only.clone(), 0, TRIM, 0, 512, ErrorCode::NotPermitted),
        (read_only, 0, WRITE_ZEROES, 0, 512, ErrorCode::NotPermitted),
    ] {
        let mut connection = transmit(export, Config::default(), false);
        let mut bytes = request_bytes(flags, kind, 9, offset, length);
        if kind == WRITE {
            bytes.resize(bytes.len() + length as usize, 1);
        }
        bytes.extend(request_bytes(0, FLUSH, 10, 0, 0));
        connection.handle_input(&bytes);
        assert_eq!(sent(&mut connection), simple_reply(9, code as u32), "command {kind}");
        // The connection goes on, and the device has received nothing of the refused request.
        assert_eq!(connection.poll_request().map(|r| r.command), Some(Command::Flush));
        assert_eq!(connection.end(), None);
    }
}

#[test]
fn executes_in_any_order_and_answers_by_cookie() {
    let mut connection = transmit(export(), Config::default(), true);
    let mut bytes = request_bytes(request_flag::FUA, request::WRITE, 7, 512, 512);
    bytes.extend([5; 512]);
    bytes.extend(request_bytes(request_flag::DF, request::READ, 8, 1_024, 512));
    connection.handle_input(&bytes);
    let [write, read] = [(); 2].map(|()| connection.poll_request().expect("it was accepted"));
    let written = Command::Write { offset: 512, data: vec![5; 512], is_durable: true };
    assert_eq!(write.command, written);
    assert_eq!(read.command, Command::Read(Range { offset: 1_024, length: 512 }));
    connection.handle_reply(read.id, Ok(Outcome::Data(vec![6; 512])));
    connection.handle_reply(write.id, Err(Failure::new(ErrorCode::Io, "worn out")));
    let mut expected = STRUCTURED_REPLY_MAGIC.to_be_bytes().to_vec();
    expected.extend([0, 1, 0, 1]);
    expected.extend(8_u64.to_be_bytes());
    expected.extend((8_u32 + 512).to_be_bytes());
    expected.extend(1_024_u64.to_be_bytes());
    expected.extend([6; 512]);
    expected.extend(STRUCTURED_REPLY_MAGIC.to_be_bytes());
    expected.extend([0, 1, 0x80, 1]);
    expected.extend(7_u64.to_be_bytes());
    expected.extend((6_u32 + 8).to_be_bytes());
    expected.extend(5_u32.to_be_bytes());
    expected.extend([0, 8]);
    expected.extend(b"worn out");
    assert_eq!(sent(&mut connection), expected);
}

#[test]
fn admits_requests_within_the_limits() {
    let config = Config { requests_max: 2, bytes_max: 100_000, ..Config::default() };
    let mut connection = transmit(export(), config, false);
    let read = request_bytes(0, request::READ, 1, 0, 512);
    connection.handle_input(&read.repeat(5));
    let first = connection.poll_request().expect("it was accepted");
    assert!(connection.poll_request().is_some() && connection.poll_request().is_none());
    assert!(!connection.wants_input());
    connection.handle_reply(first.id, Ok(Outcome::Data(vec![0; 512])));
    assert!(connection.poll_request().is_some() && connection.poll_request().is_none());

    // A client that reads nothing: replies that are not sent count.
    let mut connection = transmit(export(), config, false);
    let read = request_bytes(0, request::READ, 1, 0, 65_536);
    for _ in 0..2 {
        assert!(connection.wants_input());
        connection.handle_input(&read);
        let request = connection.poll_request().expect("it was accepted");
        connection.handle_reply(request.id, Ok(Outcome::Data(vec![0; 65_536])));
    }
    assert!(!connection.wants_input() && connection.unsent() == 2 * (65_536 + 16));
    connection.handle_input(&read);
    assert_eq!(connection.poll_request(), None);
    while let Some(bytes) = connection.poll_output() {
        connection.handle_sent(bytes.len());
    }
    assert!(connection.poll_request().is_some() && connection.wants_input());
}

#[test]
fn completes_what_is_in_flight_before_the_end() {
    let flush = request_bytes(0, request::FLUSH, 3, 0, 0);
    let disconnect = request_bytes(0, request::DISC, 0, 0, 0);
    type Case<'a> = (fn(&mut Connection), &'a [u8], End);
    let ends: [Case<'_>; 4] = [
        (|_| (), &disconnect, End::Disconnected),
        (|_| (), &[b'x'; 28], End::WrongMagic),
        (Connection::handle_input_end, &[], End::InputEnded),
        (Connection::handle_shutdown, &[], End::Shutdown),
    ];
    for (finish, bytes, end) in ends {
        let mut connection = transmit(export(), Config::default(), false);
        connection.handle_input(&[&flush, bytes].concat());
        finish(&mut connection);
        assert_eq!((connection.end(), connection.wants_input()), (Some(end), false));
        let request = connection.poll_request().expect("it was accepted");
        assert!(!connection.is_closed());
        connection.handle_reply(request.id, Ok(Outcome::Done));
        assert!(!connection.is_closed(), "the reply is not sent");
        assert_eq!(sent(&mut connection), simple_reply(3, 0));
        assert!(connection.is_closed());
    }
}

#[test]
fn drops_replies_to_a_client_that_is_gone() {
    let mut connection = transmit(export(), Config::default(), false);
    connection.handle_input(&request_bytes(0, request::READ, 3, 0, 65_536).repeat(2));
    let [first, second] = [(); 2].map(|()| connection.poll_request().expect("it was accepted"));
    connection.handle_reply(first.id, Ok(Outcome::Data(vec![0; 65_536])));
    connection.handle_output_end();
    assert!(!connection.is_closed() && connection.unsent() == 0);
    connection.handle_reply(second.id, Ok(Outcome::Data(vec![0; 65_536])));
    assert!(connection.is_closed() && connection.poll_output().is_none());
}

#[test]
fn negotiates_what_it_offers() {
    let flags = [0, 0, 0, 3];
    let mut connection = connect(export(), Config::default(), &flags);
    assert_eq!(sent(&mut connection), b"NBDMAGICIHAVEOPT\0\x03");
    let mut negotiate = |number, data: &[u8]| {
        connection.handle_input(&option_bytes(number, data));
        sent(&mut connection)
    };
    let starttls = 5;
    let extended_headers = 11;
    for unknown in [starttls, extended_headers] {
        let refused = option_reply(unknown, option_reply::ERR_UNSUP, b"the option is unknown");
        assert_eq!(negotiate(unknown, &[]), refused);
    }
    let server = option_reply(option::LIST, option_reply::SERVER, b"\0\0\0\x04disk");
    let ack = |number| option_reply(number, option_reply::ACK, &[]);
    assert_eq!(negotiate(option::LIST, &[]), [server, ack(option::LIST)].concat());
    let text = b"there is no export of this name";
    let unknown = option_reply(option::INFO, option_reply::ERR_UNKNOWN, text);
    assert_eq!(negotiate(option::INFO, b"\0\0\0\x05other\0\0"), unknown);
    let structured = option::STRUCTURED_REPLY;
    let has_unfragmented = |reply: &[u8]| {
        // The first reply has its 20-byte header, the type of the property, the size, the flags.
        u16::from_be_bytes([reply[30], reply[31]]) & export_flag::SEND_DF != 0
    };
    assert!(!has_unfragmented(&negotiate(option::INFO, b"\0\0\0\x04disk\0\0")));
    assert_eq!(negotiate(structured, &[]), ack(structured));
    assert!(has_unfragmented(&negotiate(option::GO, b"\0\0\0\x04disk\0\0")));
    assert!(connection.is_transmitting());
}

#[test]
fn ends_a_handshake_that_goes_wrong() {
    let flags = [0, 0, 0, 1];
    let ends = [
        (vec![0, 0, 0, 4], End::UnknownClientFlags),
        ([&flags[..], b"GET / HTTP/1.1\r\n"].concat(), End::WrongMagic),
        ([&flags[..], &option_bytes(1, b"other")].concat(), End::UnknownExport),
        ([&flags[..], &option_bytes(1, &[b'x'; 20_000])].concat(), End::UnknownExport),
        ([&flags[..], &option_bytes(2, &[])].concat(), End::Disconnected),
        ([&flags[..], &option_bytes(3, &[]).repeat(65)].concat(), End::TooManyOptions),
    ];
    for (input, end) in ends {
        let mut connection = connect(export(), Config::default(), &input);
        assert_eq!(connection.end(), Some(end));
        sent(&mut connection);
        assert!(connection.is_closed());
    }
}

#[test]
fn pads_the_reply_to_the_old_option_on_request() {
    for (flags, zeroes) in [(1, 124), (3, 0)] {
        let mut connection = connect(export(), Config::default(), &[0, 0, 0, flags]);
        sent(&mut connection);
        connection.handle_input(&option_bytes(option::EXPORT_NAME, b"disk"));
        let reply = sent(&mut connection);
        assert_eq!(reply.len(), 10 + zeroes);
        assert_eq!(reply[..8], SIZE.to_be_bytes());
        assert!(connection.is_transmitting());
    }
}

#[test]
fn reports_extents_to_clients_that_ask() {
    let query = |name: &str| {
        let mut data = b"\0\0\0\x04disk\0\0\0\x01".to_vec();
        data.extend((name.len() as u32).to_be_bytes());
        data.extend(name.as_bytes());
        data
    };
    let mut connection = connect(export(), Config::default(), &[0, 0, 0, 3]);
    sent(&mut connection);
    let mut negotiate = |number, data: &[u8]| {
        connection.handle_input(&option_bytes(number, data));
        sent(&mut connection)
    };
    let (list, set) = (option::LIST_META_CONTEXT, option::SET_META_CONTEXT);
    let text = b"request structured replies first";
    let early = option_reply(set, option_reply::ERR_INVALID, text);
    assert_eq!(negotiate(set, &query("base:allocation")), early);
    negotiate(option::STRUCTURED_REPLY, &[]);
    let context = |number, id: u8| {
        let data = [&[0, 0, 0, id], &b"base:allocation"[..]].concat();
        let named = option_reply(number, option_reply::META_CONTEXT, &data);
        [named, option_reply(number, option_reply::ACK, &[])].concat()
    };
    assert_eq!(negotiate(list, &query("base:")), context(list, 0));
    assert_eq!(negotiate(list, b"\0\0\0\0\0\0\0\0"), context(list, 0));
    assert_eq!(negotiate(set, &query("base:allocation")), context(set, 1));
    for unselected in ["base:", "base:other", "qemu:dirty-bitmap:x"] {
        let ack = option_reply(set, option_reply::ACK, &[]);
        assert_eq!(negotiate(set, &query(unselected)), ack);
    }
    let invalid = negotiate(set, &query("base:allocation")[..20]);
    assert_eq!(invalid[12..16], option_reply::ERR_INVALID.to_be_bytes());
    negotiate(set, &query("base:allocation"));
    negotiate(option::GO, b"\0\0\0\x04disk\0\0");

    let status = request::BLOCK_STATUS;
    let states = [(512, true, false), (1_024, false, true)];
    let extents =
        states.map(|(length, is_allocated, is_zero)| Extent { length, is_allocated, is_zero });
    for (flags, count) in [(0, 2), (request_flag::REQ_ONE, 1)] {
        connection.handle_input(&request_bytes(flags, status, 4, 512, 2_048));
        let asked = connection.poll_request().expect("it was accepted");
        assert_eq!(asked.command, Command::Status(Range { offset: 512, length: 2_048 }));
        connection.handle_reply(asked.id, Ok(Outcome::Extents(extents.to_vec())));
        let mut expected = STRUCTURED_REPLY_MAGIC.to_be_bytes().to_vec();
        expected.extend([0, 1, 0, 5]);
        expected.extend(4_u64.to_be_bytes());
        expected.extend((4 + 8 * count as u32).to_be_bytes());
        let fields = [1_u32, 512, 0, 1_024, 3].map(u32::to_be_bytes);
        expected.extend(&fields.as_flattened()[..4 + 8 * count]);
        assert_eq!(sent(&mut connection), expected);
    }
    connection.handle_input(&request_bytes(0, status, 5, 512, 0));
    assert!(sent(&mut connection).ends_with(b"a block status has a length"));
}

#[test]
fn a_failed_selection_replaces_the_earlier_one() {
    let query = b"\0\0\0\x04disk\0\0\0\x01\0\0\0\x0fbase:allocation";
    let input = [
        &[0, 0, 0, 3][..],
        &option_bytes(option::STRUCTURED_REPLY, &[]),
        &option_bytes(option::SET_META_CONTEXT, query),
        &option_bytes(option::SET_META_CONTEXT, &query[..20]),
        &option_bytes(option::GO, b"\0\0\0\x04disk\0\0"),
        &request_bytes(0, request::BLOCK_STATUS, 5, 0, 512),
    ];
    let mut connection = connect(export(), Config::default(), &input.concat());
    assert_eq!(connection.poll_request(), None);
    let text = b"no metadata context was negotiated for a block status";
    assert!(sent(&mut connection).ends_with(text));
}
