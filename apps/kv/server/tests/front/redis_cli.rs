//! `redis-cli` and `redis-benchmark`.

use onepipe_kv_server::front::FrontOptions;

use crate::memory::{Memory, start, start_with};
use crate::tools::{has, run};

const CLI: &[&str] = &["redis-cli", "--version"];

/// Runs commands, one a line, and returns the lines of the replies.
fn cli(port: u16, options: &[&str], commands: &str) -> Vec<String> {
    let port = port.to_string();
    let arguments = [&["-p", &port], options].concat();
    run("redis-cli", &arguments, commands).lines().map(str::to_owned).collect()
}

/// The examples of Redis' page about transactions, with keys of several shards.
#[test]
fn transactions_of_the_documentation_work() {
    if !has(CLI, "redis-tools") {
        return;
    }
    let front = start();
    let port = front.local_addr().port();
    let replies = cli(port, &[], "MULTI\nINCR foo\nINCR bar\nEXEC\n");
    assert_eq!(replies, ["OK", "QUEUED", "QUEUED", "1", "1"]);
    let replies = cli(port, &[], "MULTI\nSET a abc\nLPOP a\nEXEC\n");
    assert_eq!(replies[..4], ["OK", "QUEUED", "QUEUED", "OK"]);
    assert!(replies[4].starts_with("WRONGTYPE"), "{replies:?}");
    let replies = cli(port, &[], "MULTI\nINCR a b c\nEXEC\n");
    assert_eq!(replies[1], "ERR wrong number of arguments for 'incr' command");
    assert!(replies.iter().any(|line| line.starts_with("EXECABORT")), "{replies:?}");
    let replies = cli(port, &[], "SET foo 1\nMULTI\nINCR foo\nDISCARD\nGET foo\n");
    assert_eq!(replies, ["OK", "OK", "QUEUED", "OK", "1"]);
    let replies = cli(port, &[], "MSET k1 1 k2 2 k3 3 k4 4\nMGET k1 k2 k3 k4\nDEL k1 k2 k3 k4\n");
    assert_eq!(replies, ["OK", "1", "2", "3", "4", "4"]);
}

#[test]
fn redis_cli_shows_types_of_both_protocols() {
    if !has(CLI, "redis-tools") {
        return;
    }
    let front = start();
    let port = front.local_addr().port();
    cli(port, &[], "HSET h f v\nZADD z 1.5 m\nSADD s m\n");
    let commands = "HGETALL h\nZSCORE z m\nSMEMBERS s\nGET nothing\nZRANGE z 0 -1 WITHSCORES\n";
    let shown = |options: &[&str]| {
        let options = [options, &["--no-raw"]].concat();
        cli(port, &options, commands).iter().map(|line| line.trim().to_string()).collect::<Vec<_>>()
    };
    let resp2 = ["1) \"f\"", "2) \"v\"", "\"1.5\"", "1) \"m\"", "(nil)", "1) \"m\"", "2) \"1.5\""];
    assert_eq!(shown(&["-2"]), resp2);
    let resp3 = [
        "1# \"f\" => \"v\"",
        "(double) 1.5",
        "1~ \"m\"",
        "(nil)",
        "1) 1) \"m\"",
        "2) (double) 1.5",
    ];
    assert_eq!(shown(&["-3"]), resp3);
}

#[test]
fn redis_cli_authenticates_and_pipes() {
    if !has(CLI, "redis-tools") {
        return;
    }
    let memory = std::sync::Arc::new(Memory::default());
    let password = Some("secret".to_string());
    let front = start_with(memory.clone(), FrontOptions { password, ..FrontOptions::default() });
    let port = front.local_addr().port();
    assert_eq!(cli(port, &[], "PING\n"), ["NOAUTH Authentication required.", ""]);
    let options = ["--no-auth-warning", "-a", "secret"];
    let lines: String = (0..10_000).map(|n| format!("INCR counter{}\r\n", n % 7)).collect();
    let replies = cli(port, &[&options[..], &["--pipe"]].concat(), &lines);
    assert_eq!(replies.last().map(String::as_str), Some("errors: 0, replies: 10000"));
    assert!(memory.transactions() < 5_000, "pipelined commands share transactions");
    assert_eq!(cli(port, &options, "GET counter0\n"), ["1429"]);
}

#[test]
fn redis_benchmark_runs() {
    if !has(&["redis-benchmark", "--version"], "redis-tools") {
        return;
    }
    let front = start();
    let port = front.local_addr().port().to_string();
    let tests =
        "ping_inline,ping_mbulk,set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,zadd,lrange_100,mset";
    for pipeline in ["1", "16"] {
        let arguments = [
            "-p", &port, "-n", "2000", "-c", "20", "-P", pipeline, "-r", "100", "-t", tests,
            "--csv",
        ];
        let output = run("redis-benchmark", &arguments, "");
        assert!(!output.contains("rror"), "{output}");
        assert_eq!(output.lines().filter(|line| line.starts_with('"')).count(), 16, "{output}");
    }
}
