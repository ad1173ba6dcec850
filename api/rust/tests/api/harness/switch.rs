//! A software switch on loopback.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use onepipe::{Builder, Event, Pipe};
use onepipe_daemon_switch::{Config, SoftwareSwitch};

use super::{DEADLINE, to};

/// No process may count as failed because this machine is busy.
const LONG_NS: u64 = 60_000_000_000;

/// A switch with a thread of its own; dropping it stops the thread.
pub struct Running {
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub fn start(bind: &str) -> Self {
        Self::start_with(bind, |_| {})
    }

    /// Starts a switch with other settings.
    pub fn start_with(bind: &str, tune: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::new(bind.parse().expect("a valid address"));
        (config.processes_max, config.link_timeout_ns) = (8, LONG_NS);
        tune(&mut config);
        let mut switch = SoftwareSwitch::new(&config).expect("the loopback is available");
        let address = switch.local_addr();
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !is_stopped.load(Ordering::Relaxed) {
                let progress = switch.turn(|_| {});
                switch.rest(progress);
            }
        });
        Self { address, stop, thread: Some(thread) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().expect("the thread is joined once").join();
        assert!(ended.is_ok() || std::thread::panicking(), "the switch has panicked");
    }
}

/// Returns settings of a process behind a switch.
pub fn process(switch: &Running, process: u32) -> Builder {
    Pipe::builder().process(process).processes(8).udp(switch.address).tune(|config| {
        config.link_timeout_ns = LONG_NS;
        config.probes_max = 100_000;
    })
}

/// Joins pipes for processes 0 to `count` and waits until they have exchanged messages.
pub fn meet(switch: &Running, count: u32) -> Vec<Pipe> {
    join_and_exchange((0..count).map(|id| process(switch, id)).collect())
}

/// As [`meet`].
pub fn join_and_exchange(builders: Vec<Builder>) -> Vec<Pipe> {
    let count = builders.len() as u32;
    let join = |builder: Builder| builder.join().expect("the switch is there");
    let mut pipes: Vec<Pipe> = builders.into_iter().map(join).collect();
    for pipe in &mut pipes {
        assert!(pipe.wait_for_peers(count as usize - 1, DEADLINE));
        for peer in 0..count {
            while pipe.scatter_reliably(&[to(peer, b"hello")]).is_err() {}
        }
    }
    for pipe in &mut pipes {
        let mut missing = count;
        while missing > 0 {
            match pipe.recv_timeout(DEADLINE) {
                Some(Event::Message(_)) => missing -= 1,
                other => panic!("{other:?}"),
            }
        }
    }
    pipes
}
