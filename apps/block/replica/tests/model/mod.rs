//! Runs of replicas on disks in memory, drawn by a seed: crashes, damage, copies, scrubs, reads. A
//! list of changes stands for the log.
#![allow(dead_code, reason = "each test uses some of it")]

pub mod copies;
pub mod crashes;
pub mod damage;
pub mod full;
pub mod reads;
pub mod repairs;

use onepipe_block_replica::{BLOCK_LEN, Change, Image, ImageOptions};
use onepipe_journal::MemoryDisk;
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Blocks of the devices.
pub const BLOCKS: u64 = 12;
pub const OPTIONS: ImageOptions = ImageOptions { device: 1, blocks: BLOCKS };

/// What is wrong in a run.
pub type Outcome = Result<(), String>;

/// The log: encoded changes, the first at position 1.
#[derive(Default)]
pub struct Log(pub Vec<Vec<u8>>);

pub fn rng(seed: u64) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(seed)
}

pub fn open(disk: &MemoryDisk) -> Result<Image<MemoryDisk>, String> {
    Image::open(disk, OPTIONS).map_err(|error| format!("cannot open: {error}"))
}

impl Log {
    /// Adds a random change.
    pub fn grow(&mut self, rng: &mut impl Rng) {
        let first = rng.random_range(0..BLOCKS);
        let count = rng.random_range(1..=(BLOCKS - first).min(4));
        let bytes = match rng.random_range(0..3) {
            0 => Change::Zero { first, count }.to_bytes(),
            _ => {
                let data: Vec<u8> = (0..count).flat_map(|_| [rng.random(); BLOCK_LEN]).collect();
                Change::Write { first, data: &data }.to_bytes()
            }
        };
        self.0.push(bytes);
    }

    pub fn len(&self) -> u64 {
        self.0.len() as u64
    }

    /// Applies the next change. Returns an error if the disk fails.
    pub fn apply_next(&self, image: &mut Image<MemoryDisk>) -> std::io::Result<bool> {
        let position = image.applied();
        let Some(bytes) = self.0.get(position as usize) else { return Ok(false) };
        let change = Change::parse(bytes, BLOCKS).expect("it was encoded");
        image.apply(position + 1, &change)?;
        Ok(true)
    }

    pub fn apply_all(&self, image: &mut Image<MemoryDisk>) -> Outcome {
        while self.apply_next(image).map_err(|error| format!("cannot apply: {error}"))? {}
        Ok(())
    }

    /// Returns the content after the changes up to a position.
    pub fn content(&self, position: u64) -> Vec<u8> {
        let mut content = vec![0; BLOCKS as usize * BLOCK_LEN];
        for bytes in &self.0[..position as usize] {
            let change = Change::parse(bytes, BLOCKS).expect("it was encoded");
            let (first, count) = change.range();
            let range = first as usize * BLOCK_LEN..(first + count) as usize * BLOCK_LEN;
            match change {
                Change::Write { data, .. } => content[range].copy_from_slice(data),
                Change::Zero { .. } => content[range].fill(0),
            }
        }
        content
    }

    /// Checks that an image is as of its position.
    pub fn check(&self, image: &Image<MemoryDisk>) -> Outcome {
        let reader = image.reader().map_err(|error| error.to_string())?;
        let mut content = vec![0; BLOCKS as usize * BLOCK_LEN];
        reader.read(0, &mut content).map_err(|error| format!("intact blocks: {error}"))?;
        match content == self.content(image.applied()) {
            true => Ok(()),
            false => Err(format!("blocks differ at position {}", image.applied())),
        }
    }
}
