//! Runs a test again in namespaces of its own, with a small disk or an unused network.

use std::path::Path;
use std::process::Command;

/// Set while a test runs in namespaces: a folder of its own.
const FOLDER: &str = "ONEPIPE_TEST_NAMESPACE";
/// Exit status of the shell when the system refuses the setup.
const REFUSED: i32 = 77;

/// The disk that a test fills.
pub const DISK_BYTES: usize = 8 << 20;
const MOUNT: &str = "mount -t tmpfs -o size=8388608 tmpfs \"$ONEPIPE_TEST_NAMESPACE\"";
const LOOPBACK: &str = "ip link set lo up";

/// Runs `body` on a folder with a disk of [`DISK_BYTES`]: `test`, which calls this, runs again with
/// it mounted. Where this user may not mount one, says so and runs nothing.
pub fn on_small_disk(test: &str, body: impl FnOnce(&Path)) {
    if !runs_in_namespaces(test, "--mount", MOUNT, body) {
        println!("NOT TESTED: {test}: this user may not mount a small disk");
    }
}

/// Runs `body` in a network in which all ports are free, or else in the present one.
pub fn in_own_network(test: &str, body: impl Fn(bool)) {
    if !runs_in_namespaces(test, "--net", LOOPBACK, |_| body(true)) {
        println!("{test}: this user may not create a network, other programs may use the ports");
        body(false);
    }
}

/// Returns false if the system does not permit the namespace.
fn runs_in_namespaces(test: &str, namespace: &str, setup: &str, body: impl FnOnce(&Path)) -> bool {
    if let Some(folder) = std::env::var_os(FOLDER) {
        body(Path::new(&folder));
        return true;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let script = format!("{setup} || exit {REFUSED}; exec \"$0\" \"$@\"");
    for user in [[].as_slice(), &["--map-root-user"]] {
        let mut command = Command::new("unshare");
        command.args(user).args([namespace, "sh", "-c", &script]);
        command.arg(std::env::current_exe().expect("this test has a path"));
        command.args(["--exact", test, "--nocapture"]).env(FOLDER, folder.path());
        let probe = [user, &[namespace, "true"]].concat();
        let is_permitted = Command::new("unshare").args(probe).output();
        if !is_permitted.is_ok_and(|probe| probe.status.success()) {
            continue;
        }
        let status = command.status().expect("unshare has run before");
        if status.code() != Some(REFUSED) {
            assert!(status.success(), "{test} in namespaces: {status}");
            return true;
        }
    }
    false
}
