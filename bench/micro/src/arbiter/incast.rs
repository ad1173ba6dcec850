//! Incast over real sockets, without and with an arbiter: several senders, and one receiver with a
//! slow link. `onepipe demo arbiter` shows both.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use hdrhistogram::Histogram;
use onepipe_arbiter::{Client, ClientConfig};
use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Transmit, Verdict};
use onepipe_daemon_arbiter::{ArbiterDaemon, Config as ArbiterConfig};
use onepipe_daemon_switch::{Config as SwitchConfig, LinkRate, QueueReport, SoftwareSwitch};
use onepipe_sim_arbiter::{Gated, HostEvent, HostTraffic};
use onepipe_sim_traffic::TcpConfig;
use onepipe_transport_clock::{Clock, SystemClock, start_incarnation};
use onepipe_transport_driver::{Config as DriverConfig, DrivenMachine, Driver, Idle};
use onepipe_transport_udp::{Config as UdpConfig, JoinerConfig, UdpLink};

const RECEIVER: ProcessId = ProcessId(0);
const ARBITER: ProcessId = ProcessId(63);
/// A process id that no process has.
const ABSENT: ProcessId = ProcessId(62);
/// Overhead of a frame on the link, as counted by the switch.
const FRAME_OVERHEAD_BYTES: u64 = 66;
/// Fraction of a link (in thousandths) that is reserved for control packets.
const RESERVE_PERMILLE: u64 = 20;
/// Interval of pings to the receiver.
const PING_NS: u64 = 5_000_000;
/// Longer RTTs are recorded as this value, in ns.
const PING_NS_MAX: u64 = 60_000_000_000;
/// Interval at which a host pings an unused id, so that the switch learns its address, in ns.
const KEEPALIVE_NS: u64 = 100_000_000;

/// Parameters of an incast.
#[derive(Clone, Copy, Debug)]
pub struct Incast {
    /// Number of concurrent senders.
    pub senders: u32,
    /// Rate of each link of the switch.
    pub bits_per_s: u64,
    /// Size of the queue before each link.
    pub queue_bytes: usize,
}

/// Progress or result of a phase.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Elapsed time.
    pub seconds: f64,
    /// Bytes of the flows that the receiver has.
    pub received_bytes: u64,
    /// Segments sent by the senders, including retransmissions.
    pub segments_sent: u64,
    /// Queues of the switch.
    pub queues: QueueReport,
    /// RTT of the pings, in ns.
    pub pings: Histogram<u64>,
    /// Timeslots of the senders.
    pub timeslots: Timeslots,
}

/// Result of a phase.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Outcome {
    /// Rate at which the receiver got the bytes of the flows.
    pub goodput_bits_per_s: f64,
    /// Bytes that were queued when a frame arrived.
    pub queue_bytes: Quantiles,
    /// RTT of the pings, in ns.
    pub ping_ns: Quantiles,
    /// Number of pings.
    pub pings: u64,
    /// Frames dropped by full queues.
    pub frames_lost: u64,
    /// Segments sent by the senders, including retransmissions.
    pub segments_sent: u64,
    /// Bytes of the flows that were received.
    pub received_bytes: u64,
    /// Timeslots of the senders.
    pub timeslots: Timeslots,
}

/// Median, 99th percentile and maximum.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Quantiles {
    /// Half of the values are at or below this.
    pub p50: u64,
    /// 99 % of the values are at or below this.
    pub p99: u64,
    /// The largest value.
    pub max: u64,
}

impl Snapshot {
    /// Returns this as the result of the phase.
    pub fn outcome(&self) -> Outcome {
        let [p50, _, p99, _, max] = self.queues.bytes;
        let ping = |quantile| self.pings.value_at_quantile(quantile);
        Outcome {
            goodput_bits_per_s: self.received_bytes as f64 * 8.0 / self.seconds.max(1e-3),
            queue_bytes: Quantiles { p50, p99, max },
            ping_ns: Quantiles { p50: ping(0.5), p99: ping(0.99), max: self.pings.max() },
            pings: self.pings.len(),
            frames_lost: self.queues.dropped,
            segments_sent: self.segments_sent,
            received_bytes: self.received_bytes,
            timeslots: self.timeslots,
        }
    }
}

/// Timeslots of the senders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Timeslots {
    /// Used for a packet.
    pub used: u64,
    /// Granted while nothing was queued.
    pub idle: u64,
    /// Granted, and noticed too late.
    pub late: u64,
    /// Granted twice, which must not happen.
    pub granted_twice: u64,
}

/// A running phase: two threads, which end with it.
#[derive(Debug)]
pub struct Phase {
    stop: Arc<AtomicBool>,
    switch_thread: Option<JoinHandle<()>>,
    host_thread: Option<JoinHandle<Result<()>>>,
    snapshot: Arc<Mutex<Snapshot>>,
}

/// A host whose flows are sent freely, or wait for timeslots.
#[derive(Debug)]
enum Host {
    Unscheduled(Box<HostTraffic>),
    Scheduled(Box<Gated<HostTraffic>>),
}

impl Phase {
    /// Starts a phase with its own switch, and an arbiter if `is_scheduled`.
    ///
    /// # Errors
    /// The system refuses a socket.
    pub fn begin(incast: Incast, is_scheduled: bool) -> Result<Self> {
        let mut config = SwitchConfig::new(SocketAddr::from(([127, 0, 0, 1], 0)));
        config.processes_max = ARBITER.0 + 1;
        config.link_rate = Some(LinkRate {
            bits_per_s: incast.bits_per_s,
            queue_bytes_max: incast.queue_bytes,
            mark_bytes: None,
        });
        let mut switch = SoftwareSwitch::new(&config).context("cannot start a switch")?;
        let switch_addr = switch.local_addr();
        let slot_ns = slot_ns(incast.bits_per_s, UdpConfig::default().frame_len_max as u64);
        // The receiver, the senders, and the pinging host.
        let nodes = incast.senders + 2;
        let mut config = ArbiterConfig::new(switch_addr, ARBITER, nodes, slot_ns);
        // Timeslots are long here, and a ping waits for the end of a batch.
        config.machine.allocator.batch_slots = 8;
        config.machine.allocator.share_slots = 1;
        let mut arbiter = match is_scheduled {
            true => Some(ArbiterDaemon::new(&config).context("cannot start an arbiter")?),
            false => None,
        };
        let stop = Arc::new(AtomicBool::new(false));
        let snapshot = Arc::new(Mutex::new(Snapshot {
            seconds: 0.0,
            received_bytes: 0,
            segments_sent: 0,
            queues: QueueReport::default(),
            pings: Histogram::new_with_max(PING_NS_MAX, 3)?,
            timeslots: Timeslots::default(),
        }));
        let (stop_flag, shared) = (Arc::clone(&stop), Arc::clone(&snapshot));
        let switch_thread = std::thread::spawn(move || {
            while !stop_flag.load(Ordering::Acquire) {
                // They share a core with other threads, so neither sleeps.
                for _ in 0..64 {
                    switch.turn(|_| {});
                    if let Some(arbiter) = &mut arbiter {
                        arbiter.turn(|_| {});
                    }
                }
                std::thread::yield_now();
                if let Some(queues) = switch.queues() {
                    lock(&shared).queues = queues;
                }
            }
        });
        let (stop_flag, shared) = (Arc::clone(&stop), Arc::clone(&snapshot));
        let host_thread = std::thread::spawn(move || {
            let slot_ns = is_scheduled.then_some(slot_ns);
            // The hosts join here, while the switch runs.
            let hosts = (0..nodes).map(|host| host_driver(switch_addr, host, nodes, slot_ns));
            drive(&mut hosts.collect::<Result<Vec<HostDriver>>>()?, &stop_flag, &shared)
        });
        Ok(Self {
            stop,
            switch_thread: Some(switch_thread),
            host_thread: Some(host_thread),
            snapshot,
        })
    }

    /// Returns the progress.
    pub fn snapshot(&self) -> Snapshot {
        lock(&self.snapshot).clone()
    }

    /// Ends the phase and returns its result.
    ///
    /// # Errors
    /// A host was not admitted, or a thread has panicked.
    pub fn end(mut self) -> Result<Snapshot> {
        self.halt()?;
        Ok(self.snapshot())
    }

    fn halt(&mut self) -> Result<()> {
        self.stop.store(true, Ordering::Release);
        let switch_result = self.switch_thread.take().map_or(Ok(()), JoinHandle::join);
        let host_result = self.host_thread.take().map_or(Ok(Ok(())), JoinHandle::join);
        switch_result.map_err(|_| anyhow!("the switch has panicked"))?;
        host_result.map_err(|_| anyhow!("the hosts have panicked"))?
    }
}

impl Drop for Phase {
    fn drop(&mut self) {
        // Errors are reported by `end`.
        let _ = self.halt();
    }
}

/// How long a host waits for its switch, which runs already.
const JOIN_TIMEOUT: Duration = Duration::from_secs(10);

type HostDriver = Driver<Host, UdpLink, SystemClock>;

/// Returns the time of a full frame on a link of this rate, including the reserve.
fn slot_ns(bits_per_s: u64, frame_len: u64) -> u64 {
    let bits = (frame_len + FRAME_OVERHEAD_BYTES) * 8;
    (bits * 1_000_000_000 / bits_per_s) * 1_000 / (1_000 - RESERVE_PERMILLE)
}

fn host_driver(
    switch: SocketAddr,
    host: u32,
    nodes: u32,
    slot_ns: Option<u64>,
) -> Result<HostDriver> {
    let (host, port) = (ProcessId(host), Port(0));
    let udp = UdpConfig::default();
    let mut client = ClientConfig::new(host, nodes, ARBITER, slot_ns.unwrap_or(1_000_000));
    client.incarnation = start_incarnation(host.0);
    let joiner = JoinerConfig::process(host, client.incarnation);
    client.frame_len_max = udp.frame_len_max;
    client.take_long_leads();
    // Short queues per destination, as packets that wait here delay pings, too.
    (client.queue_slots_max, client.slots_max) = (32, 64);
    let mut tcp = TcpConfig::new(host, port);
    // A segment fits into a timeslot in both phases, so that the phases send the same segments.
    let frame_len_max = client.slot_payload_max() - 2;
    tcp.segment_len -= tcp.frame_len_max().saturating_sub(frame_len_max) as u32;
    // Timers of a busy machine are late by milliseconds.
    (tcp.timeout_ns_min, tcp.window_bytes_max) = (200_000_000, 1 << 20);
    let traffic = HostTraffic::new(tcp).context("the numbers of a TCP")?;
    let machine = match slot_ns {
        None => Host::Unscheduled(Box::new(traffic)),
        Some(_) => {
            let client = Client::new(client).context("the numbers of an endpoint")?;
            Host::Scheduled(Box::new(Gated::new(traffic, client, port)))
        }
    };
    let link = UdpLink::connect(switch, &udp).context("cannot open a socket to the switch")?;
    let (mut link, mut clock) = (link.joining(joiner), SystemClock::calibrated());
    link.join(JOIN_TIMEOUT, || clock.read())?;
    let config = DriverConfig { idle: Idle::Yield, ..DriverConfig::default() };
    Ok(Driver::new(machine, link, clock, config))
}

/// Runs the hosts. The first one receives, the last one pings it, and those between them send to it
/// without end.
fn drive(
    hosts: &mut [HostDriver],
    stop_flag: &AtomicBool,
    snapshot: &Mutex<Snapshot>,
) -> Result<()> {
    let began = Instant::now();
    let mut clock = SystemClock::calibrated();
    let last = hosts.len() - 1;
    let now = clock.read();
    for host in &mut *hosts {
        host.machine_mut().traffic_mut().pinger.ping(now, ABSENT, KEEPALIVE_NS);
    }
    for host in &mut hosts[1..last] {
        host.machine_mut().traffic_mut().stack.open(now, RECEIVER, None);
    }
    hosts[last].machine_mut().traffic_mut().pinger.ping(now, RECEIVER, PING_NS);
    let mut pings = Vec::new();
    while !stop_flag.load(Ordering::Acquire) {
        for _ in 0..16 {
            for host in &mut *hosts {
                host.turn(|_, event| {
                    if let HostEvent::Pong(pong) = event {
                        pings.push(pong.ns);
                    }
                });
            }
        }
        std::thread::yield_now();
        let mut snapshot = lock(snapshot);
        snapshot.seconds = began.elapsed().as_secs_f64();
        for ns in pings.drain(..) {
            snapshot.pings.saturating_record(ns);
        }
        let all = hosts.iter().map(|host| host.machine());
        snapshot.received_bytes = all.clone().map(Host::delivered_bytes).sum();
        snapshot.segments_sent =
            all.clone().map(|host| host.traffic().stack.stats().data_sent).sum();
        snapshot.timeslots = all.map(Host::timeslots).fold(Timeslots::default(), Timeslots::plus);
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Host {
    fn machine_mut(&mut self) -> &mut dyn Machine<Event = HostEvent> {
        match self {
            Self::Unscheduled(traffic) => &mut **traffic,
            Self::Scheduled(gated) => &mut **gated,
        }
    }

    fn traffic(&self) -> &HostTraffic {
        match self {
            Self::Unscheduled(traffic) => traffic,
            Self::Scheduled(gated) => &gated.source,
        }
    }

    fn traffic_mut(&mut self) -> &mut HostTraffic {
        match self {
            Self::Unscheduled(traffic) => traffic,
            Self::Scheduled(gated) => &mut gated.source,
        }
    }

    /// Returns the bytes delivered by its only flow, if it has one.
    fn delivered_bytes(&self) -> u64 {
        let flow = onepipe_sim_traffic::FlowId(0);
        self.traffic().stack.delivered_bytes(flow).unwrap_or(0)
    }

    /// Returns the timeslots of a sender; other hosts use theirs for replies.
    fn timeslots(&self) -> Timeslots {
        let Self::Scheduled(gated) = self else { return Timeslots::default() };
        let stats = gated.client.stats();
        let is_sender = self.traffic().stack.stats().data_sent > 0;
        let of_sender = |count: u64| if is_sender { count } else { 0 };
        Timeslots {
            used: of_sender(stats.slots_sent),
            idle: of_sender(stats.idle),
            late: of_sender(stats.late),
            granted_twice: stats.duplicate,
        }
    }
}

impl Timeslots {
    fn plus(self, other: Self) -> Self {
        Self {
            used: self.used + other.used,
            idle: self.idle + other.idle,
            late: self.late + other.late,
            granted_twice: self.granted_twice + other.granted_twice,
        }
    }
}

impl Machine for Host {
    type Event = HostEvent;

    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        self.machine_mut().handle_frame(now, port, frame)
    }

    fn handle_timeout(&mut self, now: Now) {
        self.machine_mut().handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        self.machine_mut().poll_transmit(now, slot)
    }

    fn poll_event(&mut self) -> Option<HostEvent> {
        self.machine_mut().poll_event()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        match self {
            Self::Unscheduled(traffic) => traffic.poll_timeout(),
            Self::Scheduled(gated) => gated.poll_timeout(),
        }
    }
}

impl DrivenMachine for Host {}
