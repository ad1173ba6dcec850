//! One process of a rival: all members send to all, ordered by the rival's method.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use onepipe_base::{
    Incarnation, Machine, Mono, Now, Port, ProcessId, Promises, Psn, Transmit, Verdict,
};
use onepipe_rivals::{Config, Delivery, Links, Method, Rival, To};
use onepipe_transport_clock::{Clock, SystemClock};
use onepipe_transport_driver::{Config as DriverConfig, DrivenMachine, Driver, Transport};
use onepipe_transport_shm::Shm;
use onepipe_transport_udp::{JoinerConfig, UdpLink};
use onepipe_wire::{Header, Opcode, seal};

use super::delivery_log::{DeliveryLog, END, HELLO, TIMEOUT, cpu_seconds};
use super::{Fabric, Job, Outcome, RivalMethod, Role};

/// Interval of clock messages of an idle Lamport member, in ns: our own beacon interval over UDP.
const LAMPORT_INTERVAL_NS: u64 = 20_000;
/// A member exits when its messages are acknowledged and it has been idle for this long after the
/// end: peers may still miss an acknowledgement, or its last messages. It exits after five times as
/// long in any case.
const LINGER: Duration = Duration::from_millis(200);

/// Interval of address announcements until a frame is received, in ns.
const ANNOUNCE_INTERVAL_NS: u64 = 1_000_000;

/// A rival for the driver, over any transport. Rivals make no promises, so the defaults of the
/// trait suit them.
pub(super) struct Member {
    pub rival: Rival,
    /// Time of the next announcement: a switch learns a member's address from its frames, and with
    /// some methods a member sends nothing before it receives. `None`: the address is known, or
    /// there is no switch.
    announce_at: Option<Mono>,
}

impl Member {
    fn new(rival: Rival) -> Self {
        let is_behind_switch = rival.config().links == Links::Uplink;
        Self { announce_at: is_behind_switch.then_some(Mono::from_ns(0)), rival }
    }

    fn announce(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        if self.announce_at? > now.mono {
            return None;
        }
        self.announce_at = Some(now.mono.after_ns(ANNOUNCE_INTERVAL_NS));
        let (own, incarnation) = (self.rival.config().process, self.rival.config().incarnation);
        let header = Header::new(Opcode::Join, own, own, incarnation);
        let header = header.stamped(now.sync, Promises::both(now.sync), Psn::FIRST);
        Some(Transmit { port: Port(0), bytes: seal(slot, header, 0) })
    }
}

impl Machine for Member {
    type Event = Delivery;

    #[inline]
    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        self.announce_at = None;
        self.rival.handle_frame(now, port, frame)
    }

    fn handle_timeout(&mut self, now: Now) {
        if self.rival.poll_timeout().is_some_and(|due| due <= now.mono) {
            self.rival.handle_timeout(now);
        }
    }

    #[inline]
    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        match self.announce(now, slot) {
            None => self.rival.poll_transmit(now, slot),
            announcement => announcement,
        }
    }

    #[inline]
    fn poll_event(&mut self) -> Option<Delivery> {
        self.rival.poll_event()
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Mono> {
        Mono::earlier(self.rival.poll_timeout(), self.announce_at)
    }
}

impl DrivenMachine for Member {}

/// Returns the configuration of a method.
fn rivals_method(method: RivalMethod) -> Method {
    match method {
        RivalMethod::Unordered => Method::Unordered,
        RivalMethod::Token => Method::Token,
        RivalMethod::Lamport => Method::Lamport { interval_ns: LAMPORT_INTERVAL_NS },
        RivalMethod::Sequencer | RivalMethod::SwitchSequencer => Method::Sequencer,
    }
}

/// Creates the machine of a member, or of the sequencer.
pub(super) fn new_rival(
    job: &Job,
    method: RivalMethod,
    links: Links,
    frame_len: usize,
) -> Result<Rival> {
    let config = Config::new(rivals_method(method), ProcessId(job.process), job.processes);
    Ok(Rival::new(Config { links, frame_len_max: frame_len, ..config })?)
}

/// Runs a member, or a sequencer at a host.
pub(super) fn work(job: &Job, method: RivalMethod) -> Result<Outcome> {
    match &job.fabric {
        Fabric::Shm(name) => {
            let processes_max = job.processes + u32::from(method == RivalMethod::Sequencer);
            let shm_config = onepipe_transport_shm::Config {
                processes_max,
                ..onepipe_transport_shm::Config::default()
            };
            let shm = Shm::attach(name, Some(ProcessId(job.process)), &shm_config)?;
            let frame_len = shm.config().frame_len_max;
            let clock = shm.clock();
            Worker::new(job, new_rival(job, method, Links::Mesh, frame_len)?, shm, clock)
                .work(method)
        }
        Fabric::Udp { switch, frame_len } => {
            let udp_config = onepipe_transport_udp::Config {
                frame_len_max: *frame_len,
                ..onepipe_transport_udp::Config::default()
            };
            let link = UdpLink::connect(switch.parse()?, &udp_config)?;
            let own = JoinerConfig::process(ProcessId(job.process), Incarnation(1));
            let link = link.joining(own);
            let clock = SystemClock::calibrated();
            Worker::new(job, new_rival(job, method, Links::Uplink, *frame_len)?, link, clock)
                .work(method)
        }
    }
}

struct Worker<'j, T> {
    job: &'j Job,
    driver: Driver<Member, T, SystemClock>,
    /// Clock for commands to the machine.
    clock: SystemClock,
    delivery_log: DeliveryLog,
    payload: Vec<u8>,
    /// Arrival of the last frame.
    last_frame_at: Instant,
}

impl<'j, T: Transport> Worker<'j, T> {
    fn new(job: &'j Job, rival: Rival, transport: T, clock: SystemClock) -> Self {
        let driver_config = DriverConfig { idle: job.idle(), ..DriverConfig::default() };
        Self {
            job,
            clock: clock.clone(),
            driver: Driver::new(Member::new(rival), transport, clock, driver_config),
            delivery_log: DeliveryLog::new(job),
            payload: vec![0; job.bytes.max(8)],
            last_frame_at: Instant::now(),
        }
    }

    fn work(mut self, method: RivalMethod) -> Result<Outcome> {
        if self.job.role == Role::Sequencer {
            return self.run_sequencer();
        }
        self.delivery_log.is_ordered = method != RivalMethod::Unordered;
        // One hello is enough: connections are reliable.
        self.send_control(HELLO)?;
        self.turn_until("the hello of all members", |delivery_log| delivery_log.have_all_joined())?;
        let cpu = cpu_seconds();
        self.flood()?;
        let processes = self.job.processes;
        self.turn_until("the end of all members", |delivery_log| {
            delivery_log.ends_received == processes
        })?;
        self.delivery_log.outcome.cpu_seconds = cpu_seconds() - cpu;
        let end = Instant::now();
        // Peers may have exited already, so the last messages may stay unacknowledged.
        let is_done =
            |this: &Self| this.is_drained() && this.last_frame_at.max(end).elapsed() >= LINGER;
        // Tokens and clock messages never stop, hence the upper bound.
        while !is_done(&self) && end.elapsed() < 5 * LINGER {
            self.turn()?;
        }
        Ok(self.delivery_log.finish())
    }

    /// Numbers messages until idle for a second.
    fn run_sequencer(mut self) -> Result<Outcome> {
        let start = Instant::now();
        let cpu = cpu_seconds();
        while self.last_frame_at.max(start).elapsed() < self.idle_timeout() {
            self.turn()?;
        }
        let cpu_seconds = cpu_seconds() - cpu;
        Ok(Outcome { cpu_seconds, ..Outcome::default() })
    }

    /// Returns the idle time after which a sequencer exits.
    fn idle_timeout(&self) -> Duration {
        let has_started = self.driver.machine().rival.stats().frames_received > 0;
        if has_started { Duration::from_secs(1) } else { TIMEOUT }
    }

    fn is_drained(&self) -> bool {
        self.driver.machine().rival.is_drained()
    }

    fn send_control(&mut self, word: u64) -> Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        while !self.driver.machine().rival.has_space() {
            ensure!(Instant::now() < deadline, "the send queue does not drain: {}", self.state());
            self.turn()?;
        }
        self.submit(&word.to_le_bytes())
    }

    fn submit(&mut self, payload: &[u8]) -> Result<()> {
        let now = self.clock.read();
        self.driver.machine_mut().rival.send(now, To::All, payload).context("sending")
    }

    fn flood(&mut self) -> Result<()> {
        let stop = Duration::from_secs_f64(self.job.seconds);
        let (start, mut number) = (Instant::now(), 0u64);
        let mut payload = std::mem::take(&mut self.payload);
        while start.elapsed() < stop {
            // A batch per poll, so that receiving is not starved.
            for _ in 0..64 {
                if !self.driver.machine().rival.has_space() {
                    break;
                }
                payload[..8].copy_from_slice(&number.to_le_bytes());
                self.submit(&payload)?;
                number += 1;
            }
            self.turn()?;
        }
        self.send_control(END)
    }

    fn turn_until(&mut self, what: &str, is_done: impl Fn(&DeliveryLog) -> bool) -> Result<()> {
        let deadline = Instant::now() + TIMEOUT + Duration::from_secs_f64(self.job.seconds);
        while !is_done(&self.delivery_log) {
            // The clock is read for idle polls only: it costs as much as one.
            let is_late = self.turn()? && Instant::now() >= deadline;
            ensure!(!is_late, "{what} did not arrive: {}", self.state());
        }
        Ok(())
    }

    fn state(&self) -> String {
        let stats = self.driver.machine().rival.stats();
        format!("process {}, {stats:?}, {:?}", self.job.process, self.driver.duty())
    }

    /// Polls the driver. Returns whether it was idle.
    #[inline]
    fn turn(&mut self) -> Result<bool> {
        let delivery_log = &mut self.delivery_log;
        let progress = self.driver.turn(|_, delivery| {
            let word = delivery.payload.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
            delivery_log.deliver((delivery.number, delivery.from.0, 0), word);
        });
        if progress.frames_received > 0 {
            self.last_frame_at = Instant::now();
        }
        if progress.is_idle() {
            self.driver.rest(progress);
        }
        match self.delivery_log.error.take() {
            Some(error) => bail!("process {}: {error}", self.job.process),
            None => Ok(progress.is_idle()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::processes::Location;
    use crate::processes::{free_address, rival_outcome};

    /// Runs three members that send to each other for a moment, with the processes that the method
    /// needs.
    fn run(method: RivalMethod, fabric: &Fabric) -> Vec<Outcome> {
        let job = |process, role| Job {
            role,
            fabric: fabric.clone(),
            location: Location::default(),
            window: None,
            method: Some(method),
            is_reliable: false,
            process,
            processes: 3,
            bytes: 64,
            has_checksums: true,
            seconds: 0.1,
            core: None,
            idle: "backoff".to_string(),
        };
        let mut jobs: Vec<Job> = (0..3).map(|process| job(process, Role::AllToAll)).collect();
        if method == RivalMethod::Sequencer {
            jobs.push(job(3, Role::Sequencer));
        }
        if matches!(fabric, Fabric::Udp { .. }) {
            jobs.push(job(0, Role::Switch));
        }
        thread::scope(|scope| {
            let work = |job| scope.spawn(move || rival_outcome(job, method).expect("job succeeds"));
            let all: Vec<_> = jobs.iter().map(work).collect();
            let outcomes = all.into_iter().map(|one| one.join().expect("no panic"));
            outcomes.take(3).collect()
        })
    }

    fn check(method: RivalMethod, outcomes: &[Outcome]) {
        let first = &outcomes[0];
        assert!(first.delivered > 100, "{method:?}: {first:?}");
        for outcome in outcomes {
            // Nothing is lost: a member that has all end messages has all messages.
            assert_eq!(outcome.delivered, first.delivered, "{method:?}");
            if method != RivalMethod::Unordered {
                assert_eq!(outcome.checkpoints, first.checkpoints, "{method:?}");
            }
        }
    }

    #[test]
    fn rivals_agree_over_shared_memory() {
        for method in [
            RivalMethod::Unordered,
            RivalMethod::Token,
            RivalMethod::Lamport,
            RivalMethod::Sequencer,
        ] {
            let fabric = Fabric::Shm(format!("rival-{}-{}", method.name(), std::process::id()));
            check(method, &run(method, &fabric));
        }
    }

    #[test]
    fn rivals_agree_over_udp() {
        for method in RivalMethod::ALL {
            let switch = free_address().expect("a free port");
            check(method, &run(method, &Fabric::Udp { switch, frame_len: 1472 }));
        }
    }
}
