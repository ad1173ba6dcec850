//! The Python client.

use crate::memory::start;
use crate::tools::{has, run};

/// The interpreter that finds the Debian package.
const PYTHON: &str = "/usr/bin/python3";

#[test]
fn python_client_works() {
    if !has(&[PYTHON, "-c", "import redis"], "python3-redis") {
        return;
    }
    let front = start();
    let port = front.local_addr().port().to_string();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/front/client.py");
    assert_eq!(run(PYTHON, &[script, &port], ""), "done\n");
}
