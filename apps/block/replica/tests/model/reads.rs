//! Reads of three replicas that apply the log at different speeds: each returns all writes that
//! were acknowledged, or returned by another read, before it began.

use onepipe_block_replica::{BLOCK_LEN, Change, Image, ReadGate, ReadStart};
use onepipe_journal::MemoryDisk;
use rand::RngExt;

use super::{BLOCKS, Log, Outcome, open, rng};

/// A read that has not returned.
struct Read {
    block: u64,
    /// The least version that it has to return.
    least: u64,
}

pub fn run(seed: u64) -> Outcome {
    let mut rng = rng(seed);
    let disks = [(); 3].map(|()| MemoryDisk::new());
    let mut images: Vec<Image<MemoryDisk>> = disks.iter().map(open).collect::<Result<_, _>>()?;
    let readers: Vec<_> = images.iter().map(|image| image.reader().expect("a disk")).collect();
    let mut gate = ReadGate::new(3);
    (0..3).for_each(|replica| gate.handle_applied(replica, Some(0)));
    let mut log = Log::default();
    let mut acknowledged = 0;
    // What each block's readers may rely on: the position of a write.
    let mut seen = vec![0; BLOCKS as usize];
    let mut waiting = std::collections::BTreeMap::new();
    for _ in 0..60 {
        match rng.random_range(0..4) {
            0 => {
                // Each write is of one block, and contains its position.
                let block = rng.random_range(0..BLOCKS);
                let mut data = [0; BLOCK_LEN];
                data[..8].copy_from_slice(&(log.len() + 1).to_be_bytes());
                log.0.push(Change::Write { first: block, data: &data }.to_bytes());
            }
            1 if acknowledged < log.len() => {
                acknowledged += 1;
                let change = Change::parse(&log.0[acknowledged as usize - 1], BLOCKS);
                seen[change.expect("it was encoded").range().0 as usize] = acknowledged;
                gate.handle_acknowledged(acknowledged);
            }
            2 => {
                let replica = rng.random_range(0..3);
                log.apply_next(&mut images[replica]).map_err(|error| error.to_string())?;
                gate.handle_applied(replica, Some(images[replica].applied()));
            }
            _ => {
                let block = rng.random_range(0..BLOCKS);
                let read = Read { block, least: seen[block as usize] };
                match gate.begin() {
                    ReadStart::Now(replica) => {
                        finish(&read, &readers[replica], &mut gate, &mut seen)?;
                    }
                    ReadStart::Waits(number) => drop(waiting.insert(number, read)),
                }
            }
        }
        while let Some((number, replica)) = gate.poll_ready() {
            let read = waiting.remove(&number).ok_or("a read that does not wait is ready")?;
            finish(&read, &readers[replica], &mut gate, &mut seen)?;
        }
    }
    for (replica, image) in images.iter_mut().enumerate() {
        log.apply_all(image)?;
        gate.handle_applied(replica, Some(image.applied()));
    }
    while gate.poll_ready().is_some_and(|(number, _)| waiting.remove(&number).is_some()) {}
    if waiting.is_empty() { Ok(()) } else { Err("a read waits for ever".into()) }
}

fn finish<F: onepipe_block_replica::ImageFile>(
    read: &Read,
    reader: &onepipe_block_replica::ImageReader<F>,
    gate: &mut ReadGate,
    seen: &mut [u64],
) -> Outcome {
    let mut bytes = vec![0; BLOCK_LEN];
    let latest = reader.read(read.block, &mut bytes).map_err(|error| error.to_string())?;
    gate.handle_read(latest);
    let found = u64::from_be_bytes(bytes[..8].try_into().expect("eight bytes"));
    let seen = &mut seen[read.block as usize];
    *seen = found.max(*seen);
    match found >= read.least {
        true => Ok(()),
        false => Err(format!("block {} went back to {found}", read.block)),
    }
}
