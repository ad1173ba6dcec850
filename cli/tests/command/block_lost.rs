//! A block device in one program of which the files of a replica are lost while it is not served.

use crate::block_replicas::{BLOCK, BLOCKS, Client, Device};
use crate::program::{errors, exclusive, output};

#[test]
fn replica_without_its_log_is_filled_on_request() {
    let _guard = exclusive();
    let directory = tempfile::tempdir().expect("a directory");
    let size = format!("{}", BLOCKS as usize * BLOCK);
    let device = Device::start(directory.path(), Some(&size));
    let mut client = Client::connect(&device.socket).expect("it is served");
    for block in 0..BLOCKS {
        client.write(block, block + 1).and_then(|()| client.reply()).expect("it is served");
    }
    device.kill();
    let data = directory.path().join("data");
    for lost in ["log/replica-1", "image-1"] {
        std::fs::remove_dir_all(data.join(lost)).expect("it is there");
        let data = data.to_str().expect("text");
        if lost == "image-1" {
            // Its log is there, and it gets the blocks by itself.
            Device::start(directory.path(), None).kill();
            continue;
        }
        let refused = output(&["block", "serve", "--data", data, "--nbd", "127.0.0.1:0"]);
        assert_eq!(refused.status.code(), Some(1));
        let text = errors(&refused);
        assert!(text.contains("`onepipe block replace`"), "{text}");
        let replaced = ["block", "replace", "--data", data, "--replica", "1"];
        let served = errors(&output(&replaced));
        assert!(served.contains("no program serves") && served.contains("--offline"), "{served}");
        let replaced = output(&[&replaced[..], &["--offline"]].concat());
        assert!(replaced.status.success(), "{}", errors(&replaced));
        let device = Device::start(directory.path(), None);
        let in_use = ["block", "replace", "--data", data, "--replica", "1", "--offline"];
        let in_use = errors(&output(&in_use));
        assert!(in_use.contains("is locked by process"), "{in_use}");
        device.kill();
    }
    let device = Device::start(directory.path(), None);
    let mut client = Client::connect(&device.socket).expect("it is served");
    // Each replica answers in turn.
    for _ in 0..3 {
        let versions = client.versions(0, BLOCKS as usize).expect("it is served");
        assert_eq!(versions, (1..=BLOCKS).collect::<Vec<_>>());
    }
    let scrubbed = output(&["block", "scrub", "--data", data.to_str().expect("text")]);
    let line = String::from_utf8_lossy(&scrubbed.stdout).into_owned();
    assert_eq!(line, "64 blocks of 3 replicas: 0 damaged copies, 0 repaired, 0 blocks lost\n");
    device.kill();
}
