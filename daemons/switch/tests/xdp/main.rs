//! The kernel's switch between hosts in network namespaces, with real endpoints.
#![cfg(feature = "xdp")]

mod hosts;
mod order;
