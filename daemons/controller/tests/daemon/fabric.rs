//! A switch and processes that can be killed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use onepipe_base::ProcessId;
use onepipe_daemon_switch::{Config as SwitchConfig, SoftwareSwitch};
use onepipe_endpoint::{Config, Endpoint, Event, Links};
use onepipe_transport_clock::{SystemClock, start_incarnation};
use onepipe_transport_driver::{Config as DriverConfig, Doorbell, Driver, Transport};
use onepipe_transport_shm::{Config as ShmConfig, Shm};
use onepipe_transport_udp::{Config as UdpConfig, JoinerConfig, UdpLink};

use crate::harness::{CONTROLLERS, PROCESSES};

/// Long enough that no process that is merely off its core times out: the kernel reports killed
/// processes at once.
const LINK_TIMEOUT_NS: u64 = 60_000_000_000;

/// A machine with a thread of its own, which stops at once when dropped, without a Leave.
pub struct Running {
    stop: Arc<AtomicBool>,
    doorbell: Doorbell,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(doorbell: Doorbell, work: impl FnOnce(&AtomicBool) + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stop);
        let thread = Some(std::thread::spawn(move || work(&is_stopped)));
        Self { stop, doorbell, thread }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.doorbell.ring();
        let ended = self.thread.take().expect("it runs until here").join();
        assert!(ended.is_ok() || std::thread::panicking(), "the thread has panicked");
    }
}

/// Starts a switch that knows the controllers.
pub fn switch() -> (Running, SocketAddr) {
    let mut config = SwitchConfig::new("127.0.0.1:0".parse().expect("an address"));
    config.processes_max = PROCESSES;
    config.link_timeout_ns = LINK_TIMEOUT_NS;
    config.controllers = Some(CONTROLLERS);
    let mut switch = SoftwareSwitch::new(&config).expect("loopback is there");
    let address = switch.local_addr();
    let doorbell = switch.doorbell();
    (Running::start(doorbell, move |stop| switch.run(stop, |_| {})), address)
}

/// Starts a process behind `switch` that handles failures of others.
pub fn process(switch: SocketAddr, process: u32) -> Running {
    let udp = UdpConfig::default();
    let link = UdpLink::connect(switch, &udp).expect("loopback is there");
    let incarnation = start_incarnation(process);
    let link = link.joining(JoinerConfig::process(ProcessId(process), incarnation));
    let config = Config {
        links: Links::Uplink,
        frame_len_max: udp.frame_len_max,
        beacon_interval_ns: 50_000,
        reorder_packets: 0,
        ..Config::new(ProcessId(process), incarnation)
    };
    drive(config, link, SystemClock::calibrated().following_system(100_000_000))
}

/// Starts such a process in shared memory.
pub fn process_in(segment: &str, process: u32) -> Running {
    let sizes = ShmConfig {
        processes_max: PROCESSES,
        controllers: Some(CONTROLLERS),
        link_timeout_ns: LINK_TIMEOUT_NS,
        ..ShmConfig::default()
    };
    let shm =
        Shm::attach(segment, Some(ProcessId(process)), &sizes).expect("the process id is free");
    let config = Config {
        links: Links::Mesh,
        frame_len_max: shm.config().frame_len_max,
        beacon_interval_ns: 0,
        ..Config::new(shm.process(), shm.incarnation())
    };
    let clock = shm.clock();
    drive(config, shm, clock)
}

fn drive<T: Transport + Send + 'static>(
    config: Config,
    transport: T,
    clock: SystemClock,
) -> Running {
    let config = Config {
        processes_max: PROCESSES,
        link_timeout_ns: LINK_TIMEOUT_NS,
        controllers: Some(CONTROLLERS),
        ..config
    };
    let endpoint = Endpoint::new(config).expect("in range");
    let mut driver = Driver::new(endpoint, transport, clock, DriverConfig::default());
    let doorbell = driver.doorbell();
    Running::start(doorbell, move |stop| {
        driver.run(stop, |endpoint, event| {
            if let Event::ProcessFailed(_) = event {
                endpoint.on_failure_handled();
            }
        });
    })
}
