//! The end of the pipe: ordered scattering as a sans-IO state machine.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod config;
mod receive;
mod scattering;

pub use config::{Config, ConfigError, Links};
pub use scattering::{
    Delivery, Event, MESSAGE_CHARGE_OCTETS, Message, Outcome, SendError, SendFailed,
};
