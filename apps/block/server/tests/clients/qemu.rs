//! qemu-img and qemu-io, unmodified.

use std::process::Command;

use crate::harness::{Fixture, MIB, noise, write};
use crate::tools::{has, run};

fn has_qemu() -> bool {
    has(&["qemu-img", "--version"], "qemu-utils")
}

#[test]
fn qemu_img_converts_to_the_device_and_back() {
    if !has_qemu() {
        return;
    }
    let device = Fixture::new(16 * MIB);
    // Data, a hole, data.
    let mut content = noise(5 * MIB, 1);
    content.resize(9 << 20, 0);
    content.extend(noise(7 * MIB, 2));
    write(&device.path("raw"), &content);
    let [raw, before, after] = ["raw", "before.qcow2", "after.qcow2"].map(|name| device.path(name));
    let uri = device.uri();
    run("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &raw, &before], "");
    run("qemu-img", &["convert", "-n", "-f", "qcow2", "-O", "raw", &before, &uri], "");
    assert!(device.content() == content, "the device has the content of the image");
    run("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &uri, &after], "");
    let compared = run("qemu-img", &["compare", &before, &after], "");
    assert!(compared.contains("identical"), "{compared}");
    let compared = run("qemu-img", &["compare", "-f", "qcow2", "-F", "raw", &before, &uri], "");
    assert!(compared.contains("identical"), "{compared}");
}

#[test]
fn qemu_io_writes_zeroes_discards_and_flushes() {
    if !has_qemu() {
        return;
    }
    let device = Fixture::new(4 * MIB);
    let commands = [
        "write -P 0xab 0 1M",
        "write -f -P 0xcd 1M 64k",
        "write -z 64k 64k",
        "write -z -u 256k 64k",
        "discard 512k 64k",
        "flush",
        "read -P 0xab 0 64k",
        "read -P 0 64k 64k",
        "read -P 0 256k 64k",
        "read -P 0xab 320k 192k",
        "read -P 0xcd 1M 64k",
        "read -P 0 1114112 1M",
        // Not aligned to a block.
        "write -P 0x11 3145729 777",
        "read -P 0x11 3145729 777",
    ];
    let mut arguments = vec!["-f", "raw"];
    arguments.extend(commands.iter().flat_map(|command| ["-c", command]));
    let uri = device.uri();
    arguments.push(&uri);
    let printed = run("qemu-io", &arguments, "");
    assert!(!printed.contains("failed"), "{printed}");
    let content = device.content();
    assert!(content[..64 << 10].iter().all(|byte| *byte == 0xab));
    assert_eq!(content[(3 << 20) + 1], 0x11);
}

#[test]
fn qemu_io_has_64_requests_in_flight() {
    if !has_qemu() {
        return;
    }
    let device = Fixture::new(4 * MIB);
    let mut arguments: Vec<String> = ["-f", "raw"].map(String::from).into();
    for block in 0..64 {
        let command = format!("aio_write -P {} {}k 64k", block + 1, block * 64);
        arguments.extend(["-c".to_string(), command]);
    }
    arguments.extend(["-c".to_string(), "aio_flush".to_string(), device.uri()]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let printed = run("qemu-io", &arguments, "");
    assert_eq!(printed.matches("wrote 65536/65536").count(), 64, "{printed}");
    for (block, content) in (1..).zip(device.content().chunks(64 << 10)) {
        assert!(content.iter().all(|byte| *byte == block), "block {block}");
    }
}

#[test]
fn qemu_img_cannot_resize_the_device() {
    if !has_qemu() {
        return;
    }
    let device = Fixture::new(MIB);
    let resize = ["resize", "-f", "raw", &device.uri(), "2M"];
    let output = Command::new("qemu-img").args(resize).output().expect("it was probed");
    assert!(!output.status.success(), "a device of NBD has no other size");
    assert_eq!(device.content().len() as u64, MIB);
}
