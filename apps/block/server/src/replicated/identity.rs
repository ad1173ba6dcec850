//! What a directory of a device says of it: a number by which its replicas know each other, and the
//! size.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;

use onepipe_block_replica::{BLOCK_LEN, ImageOptions};
use onepipe_journal::{Directory, Disk, DiskFile};

use super::DeviceError;

const NAME: &str = "device";
const NEW_NAME: &str = "device-new";

/// Reads what the directory holds, or creates it for a device of `size` bytes.
pub fn read_or_create(disk: &Directory, size: Option<u64>) -> Result<ImageOptions, DeviceError> {
    let system = |source| DeviceError::System { path: disk.path(NAME), source };
    let options = match disk.read(NAME) {
        Ok(bytes) => parse(&bytes).ok_or_else(|| DeviceError::Damaged(disk.path(NAME)))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let size = size.ok_or_else(|| DeviceError::NoSize(disk.path("")))?;
            return create(disk, size).map_err(system);
        }
        Err(error) => return Err(system(error)),
    };
    let found = options.blocks * BLOCK_LEN as u64;
    match size {
        Some(wanted) if wanted != found => {
            Err(DeviceError::Size { path: disk.path(""), found, wanted })
        }
        _ => Ok(options),
    }
}

fn create(disk: &Directory, size: u64) -> io::Result<ImageOptions> {
    // Two draws of the system's random numbers.
    let [high, low] = [(); 2].map(|()| u128::from(RandomState::new().build_hasher().finish()));
    let options = ImageOptions { device: high << 64 | low, blocks: size / BLOCK_LEN as u64 };
    let text = format!("device {:032x}\nblocks {}\n", options.device, options.blocks);
    let mut file = disk.create(NEW_NAME)?;
    DiskFile::write_at(&mut file, 0, text.as_bytes())?;
    DiskFile::sync_data(&mut file)?;
    disk.rename(NEW_NAME, NAME)?;
    disk.sync_directory()?;
    Ok(options)
}

fn parse(bytes: &[u8]) -> Option<ImageOptions> {
    let (device, blocks) = std::str::from_utf8(bytes).ok()?.trim_end().split_once('\n')?;
    let device = u128::from_str_radix(device.strip_prefix("device ")?, 16).ok()?;
    let blocks = blocks.strip_prefix("blocks ")?.parse().ok()?;
    Some(ImageOptions { device, blocks })
}
