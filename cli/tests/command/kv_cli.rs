//! `onepipe kv cli`.

use std::io::Write;
use std::net::TcpListener;
use std::process::{Output, Stdio};

use crate::kv::Store;
use crate::program::{errors, onepipe, output, unique};

/// A store, and its port as an argument.
fn start(more: &[&str]) -> (Store, String, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a directory");
    let store = Store::start(&unique("kv-cli"), directory.path(), more);
    let port = store.port().to_string();
    (store, port, directory)
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn execute(port: &str, words: &[&str]) -> Output {
    output(&[&["kv", "cli", "-p", port], words].concat())
}

/// Runs the client with these commands as its input.
fn execute_lines(port: &str, lines: &str) -> Output {
    let mut command = onepipe(&["kv", "cli", "-p", port]);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(lines.as_bytes()).expect("the program reads its input");
    drop(stdin);
    child.wait_with_output().expect("the program ends")
}

#[test]
fn executes_one_command() {
    let (_store, port, _directory) = start(&[]);
    let ran = execute(&port, &["MSET", "a", "1", "b", "two words", "c", "-3"]);
    assert_eq!((text(&ran).as_str(), ran.status.code()), ("OK\n", Some(0)), "{}", errors(&ran));
    assert_eq!(text(&execute(&port, &["MGET", "a", "b", "none"])), "1\ntwo words\n\n");
    let pretty = execute(&port, &["--no-raw", "MGET", "a", "b", "none"]);
    assert_eq!(text(&pretty), "1) \"1\"\n2) \"two words\"\n3) (nil)\n");
    assert_eq!(text(&execute(&port, &["--json", "MGET", "b", "none"])), "[\"two words\",null]\n");
    // A reply of many reads.
    let long = "x".repeat(100_000);
    assert_eq!(text(&execute(&port, &["SET", "long", &long])), "OK\n");
    assert_eq!(text(&execute(&port, &["GET", "long"])), format!("{long}\n"));
    let refused = execute(&port, &["LPUSH", "a", "1"]);
    assert!(text(&refused).starts_with("WRONGTYPE "), "{}", text(&refused));
    assert_eq!(refused.status.code(), Some(1));
}

#[test]
fn executes_commands_of_standard_input() {
    let (_store, port, _directory) = start(&[]);
    let lines = "\nMULTI\nSET \"a b\" 'x\\y'\nINCR n\nEXEC\nGET \"a\\x20b\"\nquit\nGET n\n";
    let ran = execute_lines(&port, lines);
    assert_eq!(text(&ran), "OK\nQUEUED\nQUEUED\nOK\n1\nx\\y\n", "{}", errors(&ran));
    assert_eq!(ran.status.code(), Some(0));
    // Later commands are executed, too.
    let ran = execute_lines(&port, "GET \"n\nLPUSH n 1\nGET n\n");
    let replies = text(&ran);
    assert!(replies.starts_with("WRONGTYPE ") && replies.ends_with("\n1\n"), "{replies}");
    assert!(errors(&ran).contains("a quote is not closed"), "{}", errors(&ran));
    assert_eq!(ran.status.code(), Some(1));
}

#[test]
fn asks_for_the_password() {
    let (_store, port, _directory) = start_with_password();
    let refused = execute(&port, &["GET", "a"]);
    assert!(text(&refused).starts_with("NOAUTH "), "{}", text(&refused));
    assert!(errors(&refused).contains("--password"), "{}", errors(&refused));
    assert_eq!(refused.status.code(), Some(1));
    let wrong = execute(&port, &["--password", "guess", "GET", "a"]);
    assert!(errors(&wrong).contains("refuses the password: WRONGPASS"), "{}", errors(&wrong));
    assert_eq!((text(&wrong).as_str(), wrong.status.code()), ("", Some(1)));
    let right = execute(&port, &["--password", "secret", "SET", "a", "1"]);
    assert_eq!(text(&right), "OK\n", "{}", errors(&right));
}

fn start_with_password() -> (Store, String, tempfile::TempDir) {
    start(&["--password", "secret"])
}

#[test]
fn names_the_server_that_does_not_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
    let port = listener.local_addr().expect("it is bound").port().to_string();
    drop(listener);
    let failed = execute(&port, &["PING"]);
    let errors = errors(&failed);
    assert!(errors.contains(&format!("no server answers at 127.0.0.1:{port}")), "{errors}");
    assert!(errors.contains(&format!("onepipe kv serve --resp 127.0.0.1:{port}")), "{errors}");
    assert_eq!(failed.status.code(), Some(1));
}
