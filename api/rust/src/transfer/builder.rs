//! Opening an endpoint of scheduled transfer.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use onepipe_arbiter::{ClientConfig, ConfigError, Transfer as Machine, TransferConfig};
use onepipe_base::ProcessId;
use onepipe_transport_clock::{Clock, SystemClock, start_incarnation};
use onepipe_transport_driver::{Config as DriverConfig, Driver, DriverThread};
use onepipe_transport_udp::{Config as UdpConfig, JoinFailure, JoinerConfig, UdpLink};

use super::Transfer;
use super::shared::Shared;
use super::thread::Thread;
use crate::Idle;
use crate::builder::{CLOCK_FOLLOW_NS, resolve};

/// Settings of an endpoint of scheduled transfer. Every setting except [`TransferBuilder::process`]
/// has a default.
#[derive(Debug)]
pub struct TransferBuilder {
    switch: String,
    process: Option<u32>,
    endpoints: u32,
    arbiters: Vec<u32>,
    slot: Duration,
    idle: Idle,
    wait: Option<Duration>,
    send_bytes_max: usize,
    receive_bytes_max: u64,
}

/// Why an endpoint could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The process id is missing.
    #[error("no process id given: say which of the arbiter's endpoints this is")]
    ProcessNeeded,
    /// The address of the switch is malformed or cannot be resolved.
    #[error("{switch:?} is not the address of a switch (write for example 10.0.0.1:4410)")]
    Address {
        /// The address as given.
        switch: String,
        /// The resolver's error.
        source: io::Error,
    },
    /// The system refuses a socket or a thread.
    #[error("cannot open a socket to the switch at {switch:?}, or a thread")]
    System {
        /// The address as given.
        switch: String,
        /// The system's error.
        source: io::Error,
    },
    /// The switch does not answer, or does not admit this endpoint.
    #[error(transparent)]
    Join(#[from] JoinFailure),
    /// A setting is out of its range.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// How long opening an endpoint with a thread waits for its switch.
const WAIT: Duration = Duration::from_secs(10);

impl TransferBuilder {
    pub(super) fn new() -> Self {
        Self {
            switch: "127.0.0.1:4410".to_owned(),
            process: None,
            endpoints: 64,
            arbiters: vec![1000],
            slot: Duration::from_micros(100),
            idle: Idle::default(),
            wait: None,
            send_bytes_max: 1 << 28,
            receive_bytes_max: 1 << 28,
        }
    }

    /// Sets the address of the switch (`host:port`). Default `127.0.0.1:4410`.
    #[must_use]
    pub fn switch(mut self, switch: impl ToString) -> Self {
        self.switch = switch.to_string();
        self
    }

    /// Sets the process id among the arbiter's endpoints.
    #[must_use]
    pub fn process(mut self, process: u32) -> Self {
        self.process = Some(process);
        self
    }

    /// Sets the number of endpoints that the arbiter serves (`onepipe arbiter --nodes`). Default
    /// 64.
    #[must_use]
    pub fn endpoints(mut self, endpoints: u32) -> Self {
        self.endpoints = endpoints;
        self
    }

    /// Sets the process ids of the arbiters, in order of preference; 1 to 8. Default 1000.
    #[must_use]
    pub fn arbiters(mut self, arbiters: &[u32]) -> Self {
        self.arbiters = arbiters.to_vec();
        self
    }

    /// Sets the length of a timeslot (`onepipe arbiter --slot`). Default 100 us.
    #[must_use]
    pub fn slot(mut self, slot: Duration) -> Self {
        self.slot = slot;
        self
    }

    /// Sets what to do with the core while idle. Default [`Idle::Backoff`].
    #[must_use]
    pub fn idle(mut self, idle: Idle) -> Self {
        self.idle = idle;
        self
    }

    /// Sets how long opening waits for the switch to answer. Default 10 s; zero, which does not
    /// wait, for [`TransferBuilder::embedded`].
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Sets the maximum number of bytes of outgoing objects, each of which counts as at least
    /// [`OBJECT_LEN_MIN`]; a single object is always accepted. Default 256 MiB.
    ///
    /// [`OBJECT_LEN_MIN`]: crate::OBJECT_LEN_MIN
    #[must_use]
    pub fn send_bytes_max(mut self, bytes: usize) -> Self {
        self.send_bytes_max = bytes;
        self
    }

    /// Sets the maximum number of bytes of incoming objects, in transit or not yet received by the
    /// user, each of which counts as at least [`OBJECT_LEN_MIN`]; further objects are refused. An
    /// object that its sender has abandoned is dropped after ten seconds. Default 256 MiB.
    ///
    /// [`OBJECT_LEN_MIN`]: crate::OBJECT_LEN_MIN
    #[must_use]
    pub fn receive_bytes_max(mut self, bytes: u64) -> Self {
        self.receive_bytes_max = bytes;
        self
    }

    /// Opens the endpoint with a thread that drives it.
    ///
    /// # Errors
    /// [`OpenError`]. An arbiter that does not respond is no error: the endpoint waits for it.
    pub fn open(mut self) -> Result<Transfer, OpenError> {
        self.wait.get_or_insert(WAIT);
        let limits = (self.send_bytes_max, self.receive_bytes_max);
        let endpoints = self.endpoints;
        let process = ProcessId(self.process.ok_or(OpenError::ProcessNeeded)?);
        let switch = self.switch.clone();
        let transfer = self.embedded()?;
        let doorbell = transfer.doorbell();
        let shared = Arc::new(Shared::new(process, endpoints, limits, doorbell.clone()));
        let thread = Thread::new(transfer, Arc::clone(&shared));
        let thread = DriverThread::start(format!("transfer-{}", process.0), thread, doorbell)
            .map_err(|source| OpenError::System { switch, source })?;
        Ok(Transfer { shared, thread })
    }

    /// Opens the socket, and makes the driver of the endpoint.
    pub(super) fn driver(self) -> Result<Driver<Machine, UdpLink, SystemClock>, OpenError> {
        let process = ProcessId(self.process.ok_or(OpenError::ProcessNeeded)?);
        let switch = self.switch;
        let address = resolve(&switch)
            .map_err(|source| OpenError::Address { switch: switch.clone(), source })?;
        let [first, ..] = self.arbiters[..] else {
            return Err(ConfigError { name: "arbiters", value: 0 }.into());
        };
        let slot_ns = u64::try_from(self.slot.as_nanos()).unwrap_or(u64::MAX);
        let udp = UdpConfig::default();
        let mut client = ClientConfig::new(process, self.endpoints, ProcessId(first), slot_ns);
        let incarnation = start_incarnation(process.0);
        client.incarnation = incarnation;
        client.arbiters = self.arbiters.iter().copied().map(ProcessId).collect();
        client.frame_len_max = udp.frame_len_max;
        client.take_long_leads();
        let receive_bytes_max = self.receive_bytes_max;
        let config = TransferConfig { receive_bytes_max, ..TransferConfig::new(client) };
        let machine = Machine::new(config)?;
        let link = UdpLink::connect(address, &udp)
            .map_err(|source| OpenError::System { switch, source })?;
        let mut link = link.joining(JoinerConfig::process(process, incarnation));
        let mut clock = SystemClock::calibrated().following_system(CLOCK_FOLLOW_NS);
        link.join(self.wait.unwrap_or_default(), || clock.read())?;
        let config = DriverConfig { idle: self.idle.strategy(), ..DriverConfig::default() };
        Ok(Driver::new(machine, link, clock, config))
    }
}
