//! Three senders, one receiver: every packet has its timeslot, so that no queue fills.
//!
//! `cargo run -p onepipe --example transfer`

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use onepipe::{ProcessId, Transfer};
use onepipe_daemon_arbiter::{ArbiterDaemon, Config as ArbiterConfig};
use onepipe_daemon_switch::{Config, LinkRate, SoftwareSwitch};

const ENDPOINTS: u32 = 4;
const ARBITER: ProcessId = ProcessId(1000);
/// Time of a full frame on a link of 200 Mbit/s, with some slack.
const SLOT: Duration = Duration::from_micros(64);
const OBJECT_LEN: usize = 500_000;
const TIMEOUT: Duration = Duration::from_secs(60);

fn main() -> Result<(), Box<dyn Error>> {
    // As processes: `onepipe switch --link-rate 200M` and `onepipe arbiter --slot 64us`.
    let mut config = Config::new("127.0.0.1:0".parse()?);
    config.link_rate =
        Some(LinkRate { bits_per_s: 200_000_000, queue_bytes_max: 1 << 20, mark_bytes: None });
    let mut switch = SoftwareSwitch::new(&config)?;
    let address = switch.local_addr();
    let slot_ns = SLOT.as_nanos() as u64;
    let config = ArbiterConfig::new(address, ARBITER, ENDPOINTS, slot_ns);
    let mut arbiter = ArbiterDaemon::new(&config)?;
    let is_over = AtomicBool::new(false);
    let end = |process| {
        let builder = Transfer::builder().switch(address).process(process);
        builder.endpoints(ENDPOINTS).arbiters(&[ARBITER.0]).slot(SLOT).open()
    };
    std::thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        let switching = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                switch.turn(|_| {});
                arbiter.turn(|_| {});
                std::thread::yield_now();
            }
            switch.queues()
        });
        let outcome = (|| -> Result<Duration, Box<dyn Error>> {
            let receiver = end(0)?;
            let senders = [end(1)?, end(2)?, end(3)?];
            let began = Instant::now();
            for sender in &senders {
                sender.send(ProcessId(0), vec![7; OBJECT_LEN])?.detach();
            }
            for _ in &senders {
                let object = receiver.recv_timeout(TIMEOUT).ok_or("an object was not received")?;
                println!("{} bytes from process {}", object.bytes.len(), object.from.0);
            }
            Ok(began.elapsed())
        })();
        is_over.store(true, Ordering::Relaxed);
        let queues = switching.join().map_err(|_| "the switch has panicked")?;
        let seconds = outcome?.as_secs_f64();
        let rate = (3 * OBJECT_LEN * 8) as f64 / seconds / 1e6;
        let queues = queues.ok_or("the links have no queues")?;
        println!("{rate:.0} Mbit/s; half of the frames found {} bytes queued", queues.bytes[0]);
        Ok(())
    })
}
