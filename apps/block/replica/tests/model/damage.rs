//! Three replicas whose disks damage blocks or lose writes: no wrong block is read, and a scrub
//! finds and repairs all.

use onepipe_block_replica::{BLOCK_LEN, Image, ImageReader, ReadError, Summary};
use onepipe_journal::{Disk, DiskFile, MemoryDisk, MemoryFile};
use rand::{Rng, RngExt};

use super::{BLOCKS, Log, Outcome, open, rng};

const MARK_LEN: usize = 16;

pub struct Replica {
    disk: MemoryDisk,
    pub image: Image<MemoryDisk>,
    pub reader: ImageReader<MemoryFile>,
    /// Blocks that lack a change, by a disk that has lost it.
    pub lost: Vec<u64>,
}

impl Replica {
    pub fn new() -> Result<Replica, String> {
        let disk = MemoryDisk::new();
        let image = open(&disk)?;
        let reader = image.reader().map_err(|error| error.to_string())?;
        Ok(Replica { disk, image, reader, lost: Vec::new() })
    }

    /// Returns the bytes of a block, or of its mark.
    fn stored(&self, (name, len): (&str, usize), block: u64) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let file = self.disk.open(name).expect("it was created");
        file.read_at(block * len as u64, &mut bytes).expect("it is within the file");
        bytes
    }

    fn overwrite(&self, name: &str, block: u64, bytes: &[u8]) {
        let mut file = self.disk.open(name).expect("it was created");
        file.write_at(block * bytes.len() as u64, bytes).expect("a disk");
    }

    /// Flips a bit of a block or a mark.
    fn flip(&mut self, rng: &mut impl Rng) {
        let block = rng.random_range(0..BLOCKS);
        self.flip_block(block, rng);
    }

    /// Flips a bit of this block, or of its mark.
    pub fn flip_block(&mut self, block: u64, rng: &mut impl Rng) {
        let (name, len) = if rng.random() { ("blocks", BLOCK_LEN) } else { ("marks", MARK_LEN) };
        let mut bytes = self.stored((name, len), block);
        bytes[rng.random_range(0..len)] ^= 1 << rng.random_range(0..8);
        self.overwrite(name, block, &bytes);
    }

    /// Applies changes, of which the disk loses those of one block.
    pub fn lose(&mut self, log: &Log, rng: &mut impl Rng) -> Outcome {
        let block = rng.random_range(0..BLOCKS);
        let [content, mark] =
            [("blocks", BLOCK_LEN), ("marks", MARK_LEN)].map(|of| (of.0, self.stored(of, block)));
        log.apply_all(&mut self.image)?;
        for (name, bytes) in [content, mark] {
            self.overwrite(name, block, &bytes);
        }
        self.lost.push(block);
        Ok(())
    }

    /// Checks that what can be read is right.
    fn check_readable(&self, log: &Log) -> Outcome {
        let expected = log.content(self.image.applied());
        for (block, expected) in (0..BLOCKS).zip(expected.chunks(BLOCK_LEN)) {
            let mut bytes = vec![0; BLOCK_LEN];
            match self.reader.read(block, &mut bytes) {
                Ok(_) if bytes == expected || self.lost.contains(&block) => {}
                Ok(_) => return Err(format!("block {block} is wrong")),
                Err(ReadError::Damaged(blocks)) if blocks == [block] => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }
}

pub fn run(seed: u64) -> Outcome {
    let mut rng = rng(seed);
    let mut log = Log::default();
    let mut replicas = [Replica::new()?, Replica::new()?, Replica::new()?];
    // A copy that arrives late.
    let mut late: Option<(u64, Vec<u8>)> = None;
    for _ in 0..6 {
        (0..rng.random_range(1..5)).for_each(|_| log.grow(&mut rng));
        let faulty = rng.random_range(0..replicas.len());
        if rng.random() {
            replicas[faulty].lose(&log, &mut rng)?;
        }
        for replica in &mut replicas {
            log.apply_all(&mut replica.image)?;
        }
        if let Some((as_of, copy)) = late.take() {
            let to = rng.random_range(0..replicas.len());
            replicas[to].image.install(as_of, &copy).map_err(|error| error.to_string())?;
        }
        // Two damaged copies of three leave one that is intact.
        for at in [faulty, (faulty + 1) % 3] {
            if rng.random() && replicas[at].lost.is_empty() {
                replicas[at].flip(&mut rng);
            }
        }
        for replica in &replicas {
            replica.check_readable(&log)?;
        }
        scrub(&mut replicas)?;
        for replica in &mut replicas {
            replica.lost.clear();
            log.check(&replica.image)?;
        }
        let reader = &replicas[faulty].reader;
        let copy =
            reader.copy_of(rng.random_range(0..BLOCKS)).map_err(|error| error.to_string())?;
        late = Some((reader.applied(), copy));
    }
    Ok(())
}

/// Repairs all that a comparison finds.
fn scrub(replicas: &mut [Replica; 3]) -> Outcome {
    let summarize = |replica: &Replica| replica.reader.summarize(0, BLOCKS).expect("a disk");
    let summaries: Vec<Summary> = replicas.iter().map(summarize).collect();
    for finding in Summary::compare(&summaries) {
        let Some(from) = finding.good.first() else {
            return Err(format!("no replica has block {}", finding.block));
        };
        let as_of = replicas[*from].reader.applied();
        let copy = replicas[*from].reader.copy_of(finding.block).expect("a disk");
        for to in finding.bad {
            let copied = replicas[to].image.install(as_of, &copy).expect("a disk");
            if copied.written != 1 {
                return Err(format!("block {} is not repaired", finding.block));
            }
        }
    }
    Ok(())
}
