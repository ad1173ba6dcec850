//! Rates of `redis-benchmark` on a front and on Redis. Run by hand: `cargo test --release
//! -p onepipe-kv-server --test front -- --ignored --nocapture measure`.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use onepipe_kv_server::Backend;
use onepipe_kv_server::front::FrontOptions;

use crate::memory::{Memory, Threaded, start_with};
use crate::tools::{has, run};

fn measure(name: &str, port: u16) {
    let port = port.to_string();
    for pipeline in ["1", "16"] {
        let count = if pipeline == "1" { "200000" } else { "1000000" };
        let arguments = [
            "-p", &port, "-t", "set,get", "-c", "50", "-n", count, "-P", pipeline, "-r", "10000",
            "-q",
        ];
        let output = run("redis-benchmark", &arguments, "");
        for line in output.split(['\r', '\n']).filter(|line| line.contains("requests per second")) {
            println!("{name:>24} -P {pipeline:<2} {line}");
        }
    }
}

#[test]
#[ignore = "takes a minute and needs idle cores"]
fn measure_beside_redis() {
    if !has(&["redis-benchmark", "--version"], "redis-tools")
        || !has(&["redis-server", "--version"], "redis-server")
    {
        return;
    }
    for threads in [1, 2] {
        let options = FrontOptions { threads, ..FrontOptions::default() };
        let inline: Arc<dyn Backend> = Arc::new(Memory::default());
        let front = start_with(inline, options.clone());
        measure(&format!("{threads} threads, inline"), front.local_addr().port());
        let front = start_with(Arc::new(Threaded::start()), options);
        measure(&format!("{threads} threads, one backend"), front.local_addr().port());
    }
    let mut server = Command::new("redis-server")
        .args(["--port", "16379", "--save", "", "--appendonly", "no"])
        .stdout(Stdio::null())
        .spawn()
        .expect("it was probed");
    std::thread::sleep(Duration::from_secs(1));
    measure("redis-server", 16_379);
    server.kill().expect("it runs");
    server.wait().expect("it ends");
}
