//! Rates of `redis-benchmark` on a front and on Redis. Run by hand: `cargo test --release
//! -p onepipe-kv-server --test front -- --ignored --nocapture measure`.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use onepipe_kv_server::Backend;
use onepipe_kv_server::front::FrontOptions;

use crate::memory::{Memory, Threaded, start_with};
use crate::tools::{has, run};

/// Returns the processor time that a process has used, in ticks of 10 ms.
fn ticks(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("it runs");
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split(' ').collect();
    fields[12..14].iter().map(|ticks| ticks.parse::<u64>().expect("a number")).sum()
}

/// Prints the rates, and the processor time of each request: it depends less on what else the
/// machine does.
fn measure(name: &str, process: u32, port: u16) {
    let port = port.to_string();
    for (test, pipeline) in [("set", "1"), ("get", "1"), ("set", "16"), ("get", "16")] {
        let count: u64 = if pipeline == "1" { 200_000 } else { 1_000_000 };
        let count_text = count.to_string();
        let arguments = [
            "-p",
            &port,
            "-t",
            test,
            "-c",
            "50",
            "-n",
            &count_text,
            "-P",
            pipeline,
            "-r",
            "10000",
            "-q",
        ];
        let before = ticks(process);
        let output = run("redis-benchmark", &arguments, "");
        let ns = (ticks(process) - before) * 10_000_000 / count;
        for line in output.split(['\r', '\n']).filter(|line| line.contains("requests per second")) {
            println!("{name:>24} -P {pipeline:<2} {line}, {ns} ns of processor time a request");
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
    let own = std::process::id();
    for threads in [1, 2] {
        let options = FrontOptions { threads, ..FrontOptions::default() };
        let inline: Arc<dyn Backend> = Arc::new(Memory::default());
        let front = start_with(inline, options.clone());
        measure(&format!("{threads} threads, inline"), own, front.local_addr().port());
        let front = start_with(Arc::new(Threaded::start()), options);
        measure(&format!("{threads} threads, one backend"), own, front.local_addr().port());
    }
    let mut server = Command::new("redis-server")
        .args(["--port", "16379", "--save", "", "--appendonly", "no"])
        .stdout(Stdio::null())
        .spawn()
        .expect("it was probed");
    std::thread::sleep(Duration::from_secs(1));
    measure("redis-server", server.id(), 16_379);
    server.kill().expect("it runs");
    server.wait().expect("it ends");
}
