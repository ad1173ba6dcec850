//! fio, unmodified, which verifies what it has written.

use crate::harness::{Fixture, MIB};
use crate::tools::{has, run};

#[test]
fn fio_verifies_random_writes_at_depth_64() {
    if !has(&["fio", "--enghelp=nbd"], "fio") {
        return;
    }
    let device = Fixture::new(8 * MIB);
    let uri = format!("--uri={}", device.uri());
    let mut arguments = vec!["--name=block", "--ioengine=nbd", &uri, "--size=8M"];
    arguments.extend(["--rw=randwrite", "--bsrange=512-64k", "--iodepth=64", "--fsync=32"]);
    arguments.extend([
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_state_save=0",
        "--randrepeat=1",
        "--bs_unaligned",
    ]);
    let printed = run("fio", &arguments, "");
    assert!(printed.contains("err= 0"), "{printed}");
}
