//! `cargo run --release -p onepipe-verify-memory --example rates -- [IN_FLIGHT...]`: measures what
//! figure 16 of 1Pipe shows, in virtual time: insertions and look-ups of a table in the memory of
//! others, beside fenced operations and leaders, with these numbers of calls in flight of each
//! client, or 1 and 32.

use onepipe_topology::ShapeError;
use onepipe_verify_memory::{Figures, Operations, Protocol, RatesRun};

fn main() -> Result<(), ShapeError> {
    let numbers: Vec<u32> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let numbers = if numbers.is_empty() { vec![1, 32] } else { numbers };
    for in_flight in numbers {
        for operations in [Operations::Insert, Operations::LookUp] {
            for replicas in 1..=4 {
                let base = match (operations, replicas) {
                    (Operations::Insert, 1) => Protocol::Fenced,
                    _ => Protocol::Leader,
                };
                for protocol in [Protocol::Ordered, base] {
                    let run = RatesRun::new(protocol, operations, replicas);
                    print(&RatesRun { in_flight, ..run }, RatesRun { in_flight, ..run }.run()?);
                }
            }
        }
    }
    Ok(())
}

fn print(run: &RatesRun, figures: Figures) {
    let Figures { per_s, latency, clients, servers, .. } = figures;
    println!(
        "{:?} {:?}, {} replicas, {} in flight: {:.0} k/s a client, {:.1} us; client: {:.2} \
         messages, {:.2} acks, threads {:.2} and {:.2}; servers: {:.2} messages, {:.2} acks, threads \
         {:.2} and {:.2}",
        run.protocol,
        run.operations,
        run.replicas,
        run.in_flight,
        per_s / 1e3,
        latency.mean_us,
        clients.messages,
        clients.acks,
        clients.sending,
        clients.polling,
        servers.messages,
        servers.acks,
        servers.sending,
        servers.polling,
    );
}
