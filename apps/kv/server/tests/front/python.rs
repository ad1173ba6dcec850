//! The Python client.

use crate::memory::start;
use crate::tools::{has, run};

#[test]
fn python_client_works() {
    if !has(&["python3", "-c", "import redis"], "python3-redis") {
        return;
    }
    let front = start();
    let port = front.local_addr().port().to_string();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/front/client.py");
    assert_eq!(run("python3", &[script, &port], ""), "done\n");
}
