//! Properties that hold for arbitrary bytes: the sources that `cargo test` runs over the seeds.

#![forbid(unsafe_code)]

#[path = "../../../protocol/wire/tests/frames/properties.rs"]
pub mod wire;

#[path = "../../../protocol/amcast/tests/amcast/sequence/properties.rs"]
pub mod amcast;
#[path = "../../../protocol/bulk/tests/bulk/sequence/properties.rs"]
pub mod bulk;
#[path = "../../../protocol/endpoint/tests/endpoint/sequence/properties.rs"]
pub mod endpoint;
#[path = "../../../protocol/memory/tests/memory/message_bytes/properties.rs"]
pub mod memory;
#[path = "../../../protocol/switch/tests/switch/sequence/properties.rs"]
pub mod switch;

#[path = "../../../protocol/arbiter/tests/arbiter/sequence/properties.rs"]
pub mod arbiter;

#[path = "../../../transport/pages/tests/page_locations/properties.rs"]
pub mod page_locations;

#[path = "../../../apps/journal/tests/log_bytes/properties.rs"]
pub mod journal;

#[path = "../../../apps/block/replica/tests/image_bytes/properties.rs"]
pub mod image;
#[path = "../../../apps/block/tests/nbd_bytes/properties.rs"]
pub mod nbd;

#[path = "../../../apps/kv/server/tests/server/resp_bytes/properties.rs"]
pub mod resp;

#[path = "../../../apps/history/tests/history/history_bytes/properties.rs"]
pub mod history;
#[path = "../../../apps/kv/tests/store_bytes/properties.rs"]
pub mod store;
#[path = "../../../apps/log/tests/message_bytes/properties.rs"]
pub mod log;
#[path = "../../../apps/tpcc/tests/state_bytes/properties.rs"]
pub mod tpcc;
#[path = "../../../apps/transaction/tests/transaction/message_bytes/properties.rs"]
pub mod transaction;
