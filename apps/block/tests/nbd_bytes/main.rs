//! Connections that receive any bytes: random ones, and the fuzzer's corpus.

mod properties;
mod rules;

use onepipe_block::values::{option, request};
use proptest::prelude::*;

use properties::{option_bytes, request_bytes};

/// Requests of which many are right.
fn request() -> impl Strategy<Value = Vec<u8>> {
    let flags = prop_oneof![4 => Just(0), 2 => 0u16..32, 1 => any::<u16>()];
    let kind = prop_oneof![9 => 0u16..9, 1 => any::<u16>()];
    let offset = prop_oneof![
        4 => (0u64..9).prop_map(|block| block * 512),
        2 => 0u64..4_200,
        1 => any::<u64>(),
    ];
    let length = prop_oneof![
        4 => prop::sample::select(vec![0u32, 512, 1_024]),
        2 => 0u32..1_200,
        1 => any::<u32>(),
    ];
    (flags, kind, any::<u64>(), offset, length).prop_map(|(flags, kind, cookie, offset, length)| {
        let mut bytes = request_bytes(flags, kind, cookie, offset, length);
        if kind == request::WRITE {
            bytes.resize(bytes.len() + length.min(1_200) as usize, 1);
        }
        bytes
    })
}

/// Options of which many are right.
fn option() -> impl Strategy<Value = Vec<u8>> {
    let query = |name: &str, wanted: &[u16]| {
        let mut data = (name.len() as u32).to_be_bytes().to_vec();
        data.extend(name.as_bytes());
        data.extend((wanted.len() as u16).to_be_bytes());
        data.extend(wanted.iter().flat_map(|kind| kind.to_be_bytes()));
        data
    };
    let string = |text: &str| [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat();
    let context = |name: &str, queries: &[&str]| {
        let mut data = string(name);
        data.extend((queries.len() as u32).to_be_bytes());
        data.extend(queries.iter().flat_map(|query| string(query)));
        data
    };
    let options = [
        option_bytes(option::LIST, &[]),
        option_bytes(option::LIST, &[1]),
        option_bytes(option::STRUCTURED_REPLY, &[]),
        option_bytes(option::INFO, &query("disk", &[0, 1, 2, 3, 9])),
        option_bytes(option::INFO, &query("other", &[])),
        option_bytes(option::GO, &query("", &[3])),
        option_bytes(option::GO, &query("disk", &[])[..9]),
        option_bytes(option::EXPORT_NAME, b"disk"),
        option_bytes(option::EXPORT_NAME, b"other"),
        option_bytes(option::SET_META_CONTEXT, &context("disk", &["base:allocation"])),
        option_bytes(option::SET_META_CONTEXT, &context("disk", &["base:", "x-y:"])),
        option_bytes(option::LIST_META_CONTEXT, &context("", &[])),
        option_bytes(option::LIST_META_CONTEXT, &context("", &["base:"])[..14]),
        option_bytes(option::ABORT, &[]),
        option_bytes(5, &[]),
        option_bytes(77, &[0; 100]),
    ];
    prop_oneof![
        8 => prop::sample::select(options.to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..20),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]
    #[test]
    fn arbitrary_bytes_are_safe(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        properties::check_connection(&bytes);
    }

    #[test]
    fn arbitrary_requests_are_safe(
        mode in any::<u8>(), requests in prop::collection::vec(request(), 0..12),
    ) {
        let mut bytes = vec![mode | 8];
        bytes.extend(requests.concat());
        properties::check_connection(&bytes);
    }

    #[test]
    fn arbitrary_options_are_safe(
        mode in any::<u8>(), options in prop::collection::vec(option(), 0..12),
        requests in prop::collection::vec(request(), 0..4),
    ) {
        let mut bytes = vec![mode & !8, 0, 0, 0, mode & 3];
        bytes.extend(options.concat());
        bytes.extend(requests.concat());
        properties::check_connection(&bytes);
    }
}

#[test]
fn corpus_bytes_are_safe() {
    onepipe_verify_testing::check_corpus("nbd", properties::check_connection);
}
