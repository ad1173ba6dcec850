//! One process of our own protocol: waits for its peers, then sends, receives, pings or replies.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;
use onepipe_base::{Incarnation, ProcessId, ScatteringId};
use onepipe_daemon_switch::SoftwareSwitch;
use onepipe_endpoint::{Config, Delivery, Endpoint, Event, Links, Message, Outcome as SendOutcome};
use onepipe_transport_clock::SystemClock;
use onepipe_transport_driver::{Config as DriverConfig, Driver, Transport};
use onepipe_transport_shm::Shm;
use onepipe_transport_udp::{JoinerConfig, UdpLink};
use onepipe_wire::Service;

use super::delivery_log::{DeliveryLog, END, HELLO, TIMEOUT, cpu_seconds};
use super::{Fabric, Job, Outcome, Role};
use crate::children::release_flag;

/// Bytes kept in the send buffer: enough for full frames, few enough for the cache.
const BACKLOG_BYTES: usize = 96 << 10;

/// Ports of a switch in the kernel, the most that it has.
const KERNEL_PORTS_MAX: u16 = 64;

/// Runs a process of our own protocol.
pub(crate) fn work(job: &Job) -> Result<()> {
    match &job.fabric {
        Fabric::Shm(name) => {
            let shm_config = onepipe_transport_shm::Config {
                processes_max: job.processes,
                has_checksums: job.has_checksums,
                ..onepipe_transport_shm::Config::default()
            };
            let shm = Shm::attach(name, Some(ProcessId(job.process)), &shm_config)?;
            let config = Config {
                links: Links::Mesh,
                beacon_interval_ns: 0,
                frame_len_max: shm.config().frame_len_max,
                has_checksums: shm.config().has_checksums,
                ..config(job, shm.incarnation())
            };
            let clock = shm.clock();
            Worker::new(job, config, shm, clock)?.work()
        }
        Fabric::Udp { switch, frame_len } => {
            let udp_config = onepipe_transport_udp::Config {
                frame_len_max: *frame_len,
                ..onepipe_transport_udp::Config::default()
            };
            let link = UdpLink::connect(switch.parse()?, &udp_config)?;
            let own = JoinerConfig::process(ProcessId(job.process), Incarnation(1));
            let link = link.joining(own);
            let config = Config {
                beacon_interval_ns: 20_000,
                heartbeat_interval_ns: 100_000_000,
                frame_len_max: *frame_len,
                ..config(job, Incarnation(1))
            };
            Worker::new(job, config, link, SystemClock::calibrated())?.work()
        }
    }
}

/// Runs the switch until idle for a second.
pub(super) fn run_switch(bind: &str, frame_len: usize, job: &Job) -> Result<Outcome> {
    let mut config = onepipe_daemon_switch::Config {
        frame_len_max: frame_len,
        idle: job.idle(),
        xdp: job.location.xdp.clone(),
        ..onepipe_daemon_switch::Config::new(bind.parse()?)
    };
    if !config.xdp.is_empty() {
        config.ports_max = KERNEL_PORTS_MAX;
    }
    let mut switch = SoftwareSwitch::new(&config)?;
    let (mut last_frame_at, mut frames) = (Instant::now(), 0u64);
    while last_frame_at.elapsed() < Duration::from_secs(if frames == 0 { 20 } else { 1 }) {
        // The clock is read every 64 polls only: it costs as much as an idle poll.
        for _ in 0..64 {
            let progress = switch.turn(|_| {});
            if progress.frames_received > 0 {
                frames += progress.frames_received as u64;
                last_frame_at = Instant::now();
            }
            switch.rest(progress);
        }
    }
    Ok(Outcome { delivered: frames, cpu_seconds: cpu_seconds(), ..Outcome::default() })
}

/// Returns the configuration for a real machine, whatever the transport.
fn config(job: &Job, incarnation: Incarnation) -> Config {
    Config {
        processes_max: job.processes,
        link_timeout_ns: 100_000_000,
        probe_timeout_min_ns: 1_000_000,
        probes_max: 128,
        ack_delay_ns: 200_000,
        congestion_window_min_bytes: 32 << 10,
        congestion_full_windows: 4,
        ..Config::new(ProcessId(job.process), incarnation)
    }
}

/// Pins the thread to a core, if the machine has it.
pub(crate) fn pin_to_core(core: Option<usize>) {
    if let Some(core) = core {
        // A machine with fewer cores runs it anywhere.
        let _ = onepipe_transport_clock::pin_to_core(core);
    }
}

struct Worker<'j, T> {
    job: &'j Job,
    driver: Driver<Endpoint, T, SystemClock>,
    delivery_log: DeliveryLog,
    payload: Vec<u8>,
}

impl<'j, T: Transport> Worker<'j, T> {
    fn new(job: &'j Job, config: Config, transport: T, clock: SystemClock) -> Result<Self> {
        let driver_config = DriverConfig { idle: job.idle(), ..DriverConfig::default() };
        let driver = Driver::new(Endpoint::new(config)?, transport, clock, driver_config);
        let delivery_log = DeliveryLog::new(job);
        Ok(Self { job, driver, delivery_log, payload: vec![0; job.bytes.max(8)] })
    }

    fn work(mut self) -> Result<()> {
        self.rendezvous()?;
        let cpu = cpu_seconds();
        match self.job.role {
            Role::Flood => self.flood(&[1])?,
            Role::Sink => self.turn_until("the end of the flood", |delivery_log| {
                delivery_log.ends_received == 1
            })?,
            Role::AllToAll => {
                let everyone: Vec<u32> = (0..self.job.processes).collect();
                self.flood(&everyone)?;
                let processes = self.job.processes;
                self.turn_until("the end of all members", |delivery_log| {
                    delivery_log.ends_received == processes
                })?;
            }
            Role::Ping => self.ping()?,
            Role::Pong => self.pong()?,
            Role::Switch | Role::Sequencer => bail!("this role has no endpoint"),
        }
        self.delivery_log.outcome.cpu_seconds = cpu_seconds() - cpu;
        self.drain()?;
        super::report(&self.delivery_log.finish())?;
        // The others may still wait for acknowledgements.
        let is_released = release_flag();
        while !is_released.load(Ordering::Relaxed) {
            self.turn()?;
        }
        Ok(())
    }

    fn service(&self) -> Service {
        if self.job.is_reliable { Service::Reliable } else { Service::BestEffort }
    }

    /// Sends hello until all peers have sent theirs.
    fn rendezvous(&mut self) -> Result<()> {
        let start = Instant::now();
        let (mut sent_at, mut interval) = (None::<Instant>, Duration::from_millis(20));
        while !self.delivery_log.have_all_joined() {
            ensure!(
                start.elapsed() < TIMEOUT,
                "the others did not arrive: {:?}",
                self.delivery_log.joined
            );
            if sent_at.is_none_or(|sent_at| sent_at.elapsed() > interval) {
                self.broadcast(HELLO)?;
                sent_at = Some(Instant::now());
                interval = (2 * interval).min(Duration::from_secs(1));
            }
            self.turn()?;
        }
        self.broadcast(HELLO)
    }

    /// Waits until the outcome of every message is known: an end that was lost is sent again.
    fn drain(&mut self) -> Result<()> {
        let start = Instant::now();
        // Peers may have exited already: then probes end without an answer. With more processes
        // than cores that takes long.
        while !self.driver.machine().is_drained() && start.elapsed() < TIMEOUT / 4 {
            self.turn()?;
        }
        Ok(())
    }

    fn broadcast(&mut self, word: u64) -> Result<()> {
        let word = word.to_le_bytes();
        for process in (0..self.job.processes).filter(|process| *process != self.job.process) {
            let message = Message { to: ProcessId(process), payload: &word };
            let service = self.service();
            submit(self.driver.machine_mut(), service, &[message])?;
        }
        Ok(())
    }

    /// Sends the end message to `targets`; [`Worker::turn`] resends it when it is lost.
    fn send_end(&mut self, targets: &[u32]) -> Result<()> {
        let service = self.service();
        let end = scatter(self.driver.machine_mut(), service, targets, &END.to_le_bytes())?;
        self.delivery_log.ends.push(end);
        Ok(())
    }

    fn flood(&mut self, targets: &[u32]) -> Result<()> {
        let stop = Duration::from_secs_f64(self.job.seconds);
        let (start, mut number) = (Instant::now(), 0u64);
        let service = self.service();
        // Reliable messages stay in the buffer until they are acknowledged: add a window.
        let backlog = match service {
            Service::BestEffort => BACKLOG_BYTES,
            Service::Reliable => {
                BACKLOG_BYTES + self.driver.machine().config().window_bytes_max as usize
            }
        };
        while start.elapsed() < stop {
            let machine = self.driver.machine_mut();
            while machine.send_buffer_bytes() < backlog {
                self.payload[..8].copy_from_slice(&number.to_le_bytes());
                scatter(machine, service, targets, &self.payload)?;
                number += 1;
            }
            self.turn()?;
        }
        self.send_end(targets)?;
        let deadline = Instant::now() + TIMEOUT;
        while self.driver.machine().send_buffer_bytes() > 0 {
            ensure!(Instant::now() < deadline, "the flood does not drain");
            self.turn()?;
        }
        Ok(())
    }

    fn ping(&mut self) -> Result<()> {
        let mut histogram = Histogram::<u64>::new(3)?;
        let service = self.service();
        let start = Instant::now();
        let mut number = 0u64;
        while start.elapsed().as_secs_f64() < self.job.seconds {
            let sent = Instant::now();
            self.payload[..8].copy_from_slice(&number.to_le_bytes());
            scatter(self.driver.machine_mut(), service, &[1], &self.payload)?;
            // With best effort the receiver may drop a message that arrives after its barrier, when
            // this process was descheduled while sending: ping again.
            let failed = self.delivery_log.outcome.undelivered();
            self.turn_until("a pong", |delivery_log| {
                delivery_log.last_number == Some(number)
                    || delivery_log.outcome.undelivered() != failed
            })?;
            if self.delivery_log.last_number == Some(number) {
                histogram.record(sent.elapsed().as_nanos() as u64 / 2)?;
            }
            number += 1;
        }
        self.send_end(&[1])?;
        let quantile = |q| histogram.value_at_quantile(q);
        self.delivery_log.outcome.latency_ns =
            Some([quantile(0.5), quantile(0.99), histogram.max()]);
        Ok(())
    }

    fn pong(&mut self) -> Result<()> {
        let (mut replied, mut failed) = (None, self.delivery_log.outcome.undelivered());
        let service = self.service();
        let deadline = self.deadline();
        let mut turn_count = 0u64;
        while self.delivery_log.ends_received == 0 {
            let is_idle = self.turn()?;
            turn_count += 1;
            // Reading the clock costs as much as an idle poll.
            let checks_deadline = is_idle || turn_count.is_multiple_of(65_536);
            let is_late = checks_deadline && Instant::now() >= deadline;
            ensure!(!is_late, "the end of the pings did not arrive: {}", self.state());
            if self.delivery_log.outcome.undelivered() != failed {
                // The reply was lost: send it again.
                (replied, failed) = (None, self.delivery_log.outcome.undelivered());
            }
            if self.delivery_log.last_number != replied
                && let Some(number) = self.delivery_log.last_number
            {
                replied = self.delivery_log.last_number;
                self.payload[..8].copy_from_slice(&number.to_le_bytes());
                scatter(self.driver.machine_mut(), service, &[0], &self.payload)?;
            }
        }
        Ok(())
    }

    fn turn_until(&mut self, what: &str, is_done: impl Fn(&DeliveryLog) -> bool) -> Result<()> {
        let mut turn_count = 0u64;
        let mut deadline = None;
        while !is_done(&self.delivery_log) {
            let is_idle = self.turn()?;
            turn_count += 1;
            // Reading the clock costs as much as an idle poll, and a poll that blocks may take
            // long.
            if is_idle || turn_count.is_multiple_of(65_536) {
                let deadline = *deadline.get_or_insert_with(|| self.deadline());
                ensure!(Instant::now() < deadline, "{what} did not arrive: {}", self.state());
            }
        }
        Ok(())
    }

    /// Returns the deadline for waiting on processes that are still sending.
    fn deadline(&self) -> Instant {
        Instant::now() + TIMEOUT + Duration::from_secs_f64(self.job.seconds)
    }

    /// Returns counters that help to explain a timeout.
    fn state(&self) -> String {
        let machine = self.driver.machine();
        format!("process {}, {:?}, {:?}", self.job.process, machine.stats(), self.driver.duty())
    }

    /// Polls the driver. Returns whether it was idle.
    #[inline]
    fn turn(&mut self) -> Result<bool> {
        let delivery_log = &mut self.delivery_log;
        let progress = self.driver.turn(|machine, event| delivery_log.handle_event(machine, event));
        if progress.is_idle() {
            self.driver.rest(progress);
        }
        if let Some(to) = self.delivery_log.undelivered_ends.pop() {
            self.send_end(&[to])?;
        }
        match self.delivery_log.error.take() {
            Some(error) => bail!("process {}: {error}", self.job.process),
            None => Ok(progress.is_idle()),
        }
    }
}

#[inline]
fn scatter(
    machine: &mut Endpoint,
    service: Service,
    targets: &[u32],
    payload: &[u8],
) -> Result<ScatteringId> {
    if let [to] = targets {
        return submit(machine, service, &[Message { to: ProcessId(*to), payload }]);
    }
    let mut messages = [Message { to: ProcessId(0), payload }; 64];
    let messages = messages.get_mut(..targets.len()).context("at most 64 processes")?;
    for (message, to) in messages.iter_mut().zip(targets) {
        message.to = ProcessId(*to);
    }
    submit(machine, service, messages)
}

#[inline]
fn submit(
    machine: &mut Endpoint,
    service: Service,
    messages: &[Message<'_>],
) -> Result<ScatteringId> {
    Ok(match service {
        Service::BestEffort => machine.scatter(messages)?,
        Service::Reliable => machine.scatter_reliably(messages)?,
    })
}

impl DeliveryLog {
    // Inlined where events are polled, so that they need not be copied.
    #[inline(always)]
    fn handle_event(&mut self, machine: &mut Endpoint, event: Event) {
        match event {
            Event::Delivered(delivery) => {
                let payload = machine.payload(&delivery);
                let word = payload.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
                let Delivery { timestamp, from, index, .. } = delivery;
                self.deliver((timestamp.as_ns(), from.0, index), word);
                machine.release(delivery);
            }
            Event::SendFailed(failed) => {
                match failed.outcome {
                    SendOutcome::Lost => self.outcome.lost += 1,
                    SendOutcome::Unknown => self.outcome.unknown += 1,
                }
                if failed.outcome == SendOutcome::Lost && self.ends.contains(&failed.scattering) {
                    self.undelivered_ends.push(failed.to.0);
                }
            }
            _ => {}
        }
    }
}
