//! A device whose disk has less free space than the device.

use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use onepipe_block_server::{FileBlocks, FileOptions, ServerOptions};

use crate::harness::{Fixture, MIB, RawClient, header};

/// A small file system in a folder, until it is dropped.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts it in an existing folder, which needs root. `size` is "size=" and a number of bytes.
    pub fn mount(folder: &Path, size: &CStr) -> Option<SmallDisk> {
        let mounted = mount("tmpfs", folder, "tmpfs", MountFlags::empty(), Some(size));
        if let Err(error) = mounted {
            eprintln!("SKIPPED: cannot mount a small disk ({error}): run the tests as root");
            return None;
        }
        Some(SmallDisk(folder.to_path_buf()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        if let Err(error) = unmount(&self.0, UnmountFlags::DETACH) {
            eprintln!("cannot unmount a small disk: {error}");
        }
    }
}

#[test]
fn a_full_disk_is_reported_and_goes_on() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Some(_disk) = SmallDisk::mount(folder.path(), c"size=256k") else { return };
    let options = FileOptions { size: Some(MIB), ..FileOptions::default() };
    let blocks = FileBlocks::open(&folder.path().join("device"), options).expect("a new file");
    let dir = tempfile::tempdir().expect("a temporary folder");
    let device = Fixture::serve(Arc::new(blocks), ServerOptions::default(), dir);
    let mut client = RawClient::open(device.connect());
    let write = |client: &mut RawClient<_>, block: u64| {
        let offset = block * 65_536;
        client.send(&[header(1, block, offset, 65_536), vec![9; 65_536]].concat());
        client.reply()
    };
    let no_space = 28;
    let replies: Vec<_> = (0..16).map(|block| write(&mut client, block)).collect();
    assert_eq!((replies[0], replies[15]), ((0, 0), (no_space, 15)), "{replies:?}");
    // The rest of the device goes on, and discarded blocks are free again.
    client.send(&header(0, 20, 0, 4));
    assert_eq!((client.reply(), client.take(4)), ((0, 20), vec![9; 4]));
    client.send(&header(4, 21, 0, 131_072));
    assert_eq!(client.reply(), (0, 21));
    assert_eq!(write(&mut client, 15), (0, 15));
    client.send(&header(3, 22, 0, 0));
    assert_eq!(client.reply(), (0, 22));
}
