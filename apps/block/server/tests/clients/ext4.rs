//! A file system on the device.

use crate::harness::{Fixture, MIB, noise, write};
use crate::libnbd::has_libnbd;
use crate::tools::{has, run};

/// Where the file system begins on the device, as in a first partition.
const OFFSET: u64 = MIB;

#[test]
fn a_file_system_survives_the_device() {
    if !has_libnbd() || !has(&["which", "mkfs.ext4"], "e2fsprogs") {
        return;
    }
    let device = Fixture::new(17 * MIB);
    let content = device.path("content");
    std::fs::create_dir(&content).expect("the folder is writable");
    for index in 0..20 {
        write(&format!("{content}/{index}"), &noise(50_000 + index * 10_000, index));
    }
    let [image, copy, file] = ["image", "copy", "file"].map(|name| device.path(name));
    std::fs::File::create(&image).and_then(|file| file.set_len(17 * MIB)).expect("free space");
    let offset = format!("offset={OFFSET}");
    run("mkfs.ext4", &["-q", "-E", &offset, "-d", &content, &image, "16384"], "");
    let uri = device.uri();
    run("nbdcopy", &["--flush", &image, &uri], "");
    run("nbdcopy", &[&uri, &copy], "");
    // Succeeds if the file system is clean.
    run("e2fsck", &["-fn", &format!("{copy}?offset={OFFSET}")], "");
    let dump = format!("dump /7 {file}");
    run("debugfs", &["-R", &dump, &format!("{copy}?offset={OFFSET}")], "");
    assert!(std::fs::read(file).expect("it was copied") == noise(120_000, 7));
}
