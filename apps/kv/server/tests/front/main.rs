//! A front over sockets, used by the clients that people use. The backend is in this process.

mod hostile;
mod measure;
mod memory;
mod python;
mod redis_cli;
mod rust_client;
mod tools;
