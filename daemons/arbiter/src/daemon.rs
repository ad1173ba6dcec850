//! An arbiter one can start.

use std::sync::atomic::{AtomicBool, Ordering};

use onepipe_arbiter::{Arbiter, ArbiterEvent};
use onepipe_transport_clock::{SystemClock, begin_life, sharpen_timers};
use onepipe_transport_driver::{Config as DriverConfig, Doorbell, Driver, Progress};
use onepipe_transport_udp::{Config as UdpConfig, UdpLink};

use crate::{Config, Report, StartError};

/// How often the clock is brought back to the machine's own, which others share, in ns.
const CLOCK_FOLLOW_NS: u64 = 10_000_000;

/// An arbiter: one thread, one socket.
#[derive(Debug)]
pub struct ArbiterDaemon {
    driver: Driver<Arbiter, UdpLink, SystemClock>,
}

impl ArbiterDaemon {
    /// An arbiter that has its socket, and does nothing else before it gets its turns.
    ///
    /// # Errors
    /// [`StartError`]: numbers out of range, or the system refuses. A switch that does not answer
    /// is no error: it is waited for.
    pub fn new(config: &Config) -> Result<Self, StartError> {
        let udp = UdpConfig::default();
        let mut machine = config.machine.clone();
        machine.comm.frame_octets_max = udp.frame_octets_max;
        let own = machine.comm.process;
        // Its watchdogs go to itself, too, and end at the switch: from them the switch learns where
        // it sits, before anybody has asked it for anything and when it is alone.
        if !machine.failover.peers.contains(&own) {
            machine.failover.peers.push(own);
        }
        machine.comm.incarnation = begin_life();
        let arbiter = Arbiter::new(machine)?;
        let link = UdpLink::connect(config.switch, &udp)
            .map_err(|source| StartError::Socket { switch: config.switch, source })?;
        let clock = SystemClock::calibrated().following_system(CLOCK_FOLLOW_NS);
        let driver_config = DriverConfig { idle: config.idle, ..DriverConfig::default() };
        Ok(Self { driver: Driver::new(arbiter, link, clock, driver_config) })
    }

    /// Takes what has arrived, gives out what is due. `on_event` hears what the arbiter tells.
    pub fn turn(&mut self, mut on_event: impl FnMut(ArbiterEvent)) -> Progress {
        self.driver.turn(|_, event| on_event(event))
    }

    /// Rests as the idle strategy says, given what the last turn did.
    pub fn rest(&mut self, progress: Progress) {
        self.driver.rest(progress);
    }

    /// Works until `stop` is set. Ring the doorbell after setting it.
    pub fn run(&mut self, stop: &AtomicBool, mut on_event: impl FnMut(ArbiterEvent)) {
        sharpen_timers();
        while !stop.load(Ordering::Acquire) {
            let progress = self.turn(&mut on_event);
            self.rest(progress);
        }
    }

    /// What wakes it when it blocks.
    pub fn doorbell(&self) -> Doorbell {
        self.driver.doorbell()
    }

    /// What it has done.
    pub fn report(&self) -> Report {
        Report::new(self.driver.machine())
    }
}
