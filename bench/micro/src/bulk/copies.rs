//! Lower bound of a transfer on one host: the time of its memory copies.

use std::sync::Barrier;
use std::time::Instant;

use onepipe_transport_bulk::Carrier;

use super::{BulkMemory, BulkOptions};

/// Bytes copied at a time.
const BLOCK_LEN: usize = 1 << 20;
/// Maximum length of the source and the destination buffer of a core: far above the size of the
/// caches, so that large objects are copied from memory.
const MEMORY_BYTES: usize = 256 << 20;
/// The fastest of this many runs counts.
const RUNS: usize = 3;

/// Returns how often each byte of an object is copied until the last process has it: by the kernel
/// into and out of each connection, or by the receivers out of shared memory.
fn copies(options: &BulkOptions, processes: u32) -> u32 {
    let receivers = processes - 1;
    match (options.carrier, options.memory) {
        (Carrier::Shm, BulkMemory::Mapped) => 0,
        (Carrier::Shm, BulkMemory::Shared) => receivers,
        (Carrier::Shm, BulkMemory::Private) => receivers + 1,
        (Carrier::Udp, _) => 4 * receivers,
        _ => 2 * receivers,
    }
}

/// Returns the time that all cores together need for the copies of an object of `bytes` bytes, each
/// core within its own memory, in us.
pub(super) fn copy_time_us(options: &BulkOptions, processes: u32, bytes: usize) -> f64 {
    let copied = bytes.saturating_mul(copies(options, processes) as usize);
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let bytes_per_core = copied.div_ceil(cores);
    if bytes_per_core == 0 {
        return 0.0;
    }
    let block = BLOCK_LEN.min(bytes.max(1));
    let memory = MEMORY_BYTES.min(bytes.next_multiple_of(block));
    let barrier = Barrier::new(cores);
    let time_copies = || {
        let (from, mut to) = (vec![1u8; memory], vec![2u8; memory]);
        let mut fastest = f64::INFINITY;
        for _ in 0..RUNS {
            barrier.wait();
            let began = Instant::now();
            let (mut copied, mut offset) = (0, 0);
            while copied < bytes_per_core {
                let len = block.min(bytes_per_core - copied);
                to[offset..offset + len].copy_from_slice(&from[offset..offset + len]);
                std::hint::black_box(&mut to[offset]);
                (copied, offset) = (copied + len, (offset + block) % memory);
            }
            // The run ends when the slowest core is done.
            barrier.wait();
            fastest = fastest.min(began.elapsed().as_secs_f64() * 1e6);
        }
        fastest
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..cores).map(|_| scope.spawn(time_copies)).collect();
        let own = time_copies();
        let others = others.into_iter().filter_map(|other| other.join().ok());
        others.fold(own, f64::max)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_copies_per_transport() {
        let of = |carrier, memory| {
            let options = BulkOptions { carrier, memory, ..BulkOptions::loopback() };
            (copies(&options, 4), copy_time_us(&options, 4, 100_000) > 0.0)
        };
        assert_eq!(of(Carrier::Tcp, BulkMemory::Shared), (6, true));
        assert_eq!(of(Carrier::Udp, BulkMemory::Shared), (12, true));
        assert_eq!(of(Carrier::Shm, BulkMemory::Private), (4, true));
        assert_eq!(of(Carrier::Shm, BulkMemory::Shared), (3, true));
        assert_eq!(of(Carrier::Shm, BulkMemory::Mapped), (0, false));
    }
}
