//! A device over sockets, used by the clients that people use. The server is in this process.

mod asynchronous;
mod away;
mod ext4;
mod fio;
mod full_disk;
mod harness;
mod hostile;
mod libnbd;
mod qemu;
mod replicated;
#[path = "../../../../kv/server/tests/front/tools.rs"]
mod tools;
