//! In the steady state no frame causes an allocation.

use allocation_counter::measure;
use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Transmit, Verdict};
use onepipe_transport_driver::{Config as DriverConfig, DrivenMachine, Driver};
use onepipe_transport_shm::{Config, Shm};

/// Sends two frames for every received one, up to a limit.
struct ReplyMachine {
    to: Port,
    pending: u32,
    received: u64,
}

impl Machine for ReplyMachine {
    type Event = ();

    fn handle_frame(&mut self, _: Now, _: Port, _: &mut [u8]) -> Verdict {
        self.received += 1;
        self.pending = (self.pending + 2).min(20);
        Verdict::Consumed
    }

    fn handle_timeout(&mut self, _: Now) {}

    fn poll_transmit(&mut self, _: Now, slot: &mut [u8]) -> Option<Transmit> {
        self.pending = self.pending.checked_sub(1)?;
        slot[..100].fill(1);
        Some(Transmit { port: self.to, bytes: 100 })
    }

    fn poll_event(&mut self) -> Option<()> {
        None
    }

    fn poll_timeout(&self) -> Option<Mono> {
        None
    }
}

impl DrivenMachine for ReplyMachine {}

#[test]
fn frames_cost_no_allocation() {
    let name = format!("test-{}-allocations", std::process::id());
    let config = Config { processes_max: 4, ..Config::default() };
    let mut drivers = [0u32, 1].map(|process| {
        let shm = Shm::attach(&name, Some(ProcessId(process)), &config).expect("free");
        let clock = shm.clock();
        let machine = ReplyMachine { to: Port(1 - process as u16), pending: 1, received: 0 };
        Driver::new(machine, shm, clock, DriverConfig::default())
    });
    let mut turn = |times: u32| {
        for _ in 0..times {
            for driver in &mut drivers {
                driver.turn(|_, ()| {});
            }
        }
        drivers.iter().map(|driver| driver.machine().received).sum::<u64>()
    };
    let before = turn(100);
    let mut after = 0;
    assert_eq!(measure(|| after = turn(10_000)).count_total, 0);
    assert!(after > before + 100_000, "{before} {after}");
}
