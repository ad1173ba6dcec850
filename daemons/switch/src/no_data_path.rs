//! Stands for the kernel's switch in builds without the feature `xdp`: there is none.

use std::net::SocketAddr;

use onepipe_base::{Instance, Now, Port, Promises};
use onepipe_topology::Route;

use crate::{Config, StartError};

/// No value of this type exists.
#[derive(Debug)]
pub(crate) enum DataPath {}

/// No frame passes through a program.
pub(crate) type Detoured = core::convert::Infallible;

impl DataPath {
    pub(crate) fn of(config: &Config) -> Result<Option<Self>, StartError> {
        if config.xdp.is_empty() { Ok(None) } else { Err(StartError::NoXdp) }
    }

    pub(crate) fn set_processes_max(&mut self, _: u32) -> Result<(), StartError> {
        match *self {}
    }

    pub(crate) fn can_reach(&mut self, _: SocketAddr) -> bool {
        match *self {}
    }

    pub(crate) fn connect(&mut self, _: Port, _: SocketAddr, _: Option<Instance>) {
        match *self {}
    }

    pub(crate) fn has(&self, _: Port) -> bool {
        match *self {}
    }

    pub(crate) fn disconnect(&mut self, _: Port) {
        match *self {}
    }

    pub(crate) fn set_live(&mut self, _: Port, _: bool) {
        match *self {}
    }

    pub(crate) fn send(&mut self, _: Port, _: &[u8]) -> bool {
        match *self {}
    }

    pub(crate) fn take_stamp(&self, _: Port, _: &mut [u8], _: Now) -> Option<Detoured> {
        match *self {}
    }

    pub(crate) fn release(&mut self, _: Port, _: Detoured) {
        match *self {}
    }

    pub(crate) fn note_empty(&mut self, _: Now) {
        match *self {}
    }

    pub(crate) fn poll_promises(&mut self, _: Now, _: impl FnMut(Port, Promises)) {
        match *self {}
    }

    pub(crate) fn copy_routes(&mut self, _: &Route, _: bool) {
        match *self {}
    }

    pub(crate) fn counters(&self) -> Vec<(&'static str, u64)> {
        match *self {}
    }

    pub(crate) fn refusals(&self) -> (u64, Option<String>) {
        match *self {}
    }
}
