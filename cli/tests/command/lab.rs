//! Programs of a fabric behind a switch, started by a test and killed on drop.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::program::{Running, errors, json, onepipe, output, wait_until};

/// `onepipe switch`.
pub struct Switch {
    pub process: Running,
    pub address: String,
}

impl Switch {
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_at("127.0.0.1:0", arguments)
    }

    pub fn start_at(address: &str, arguments: &[&str]) -> Self {
        Self::start_as("switch", address, arguments)
    }

    /// Starts a `switch` or an `aggregator`.
    pub fn start_as(program: &str, address: &str, arguments: &[&str]) -> Self {
        let command = [program, "--listen", address];
        let mut process = Running::start(&mut onepipe(&[&command[..], arguments].concat()));
        let line = process.line();
        let address = line.strip_prefix("listening at ").expect("address is printed").to_string();
        Self { process, address }
    }
}

/// `onepipe controller` with a status page.
pub struct Controller {
    pub process: Running,
    pub address: String,
}

impl Controller {
    pub fn start(arguments: &[&str]) -> Self {
        Self::begin(&mut onepipe(&[&["controller"], arguments].concat()))
    }

    pub fn begin(command: &mut Command) -> Self {
        Self::admitted(Running::start(command.env("ONEPIPE_STATUS_LISTEN", "127.0.0.1:0")))
    }

    /// Starts it and captures its standard error.
    pub fn begin_with_stderr(command: &mut Command) -> Self {
        let command = command.env("ONEPIPE_STATUS_LISTEN", "127.0.0.1:0");
        Self::admitted(Running::start_with_stderr(command))
    }

    /// Starts it, and closes its standard error.
    pub fn begin_without_stderr(command: &mut Command) -> Self {
        let command = command.env("ONEPIPE_STATUS_LISTEN", "127.0.0.1:0");
        Self::admitted(Running::start_without_stderr(command))
    }

    fn admitted(mut process: Running) -> Self {
        let first = process.line();
        assert!(first.starts_with("controller "), "{first}");
        let second = process.line();
        let address = second.strip_prefix("status at http://").expect("address is printed");
        let address = address.strip_suffix("/status").expect("address is printed").to_owned();
        Self { process, address }
    }

    /// Returns its status.
    pub fn status(&self) -> Value {
        let output = output(&["status", "--from", &self.address, "--json"]);
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
        json(&output)["controllers"][0].clone()
    }

    /// Returns its metrics, with the head of the HTTP response.
    pub fn metrics(&self) -> String {
        let mut connection = TcpStream::connect(&self.address).expect("the status page");
        connection.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("a request");
        let mut text = String::new();
        connection.read_to_string(&mut text).expect("metrics");
        text
    }

    /// Returns its status as a table.
    pub fn table(&self) -> String {
        let output = output(&["status", "--from", &self.address]);
        String::from_utf8(output.stdout).expect("text")
    }

    /// Polls the status until `holds`.
    pub fn until(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let mut status = Value::Null;
        wait_until(what, || {
            status = self.status();
            holds(&status)
        });
        status
    }
}

/// Returns whether `name` is a member in `state`.
pub fn is(status: &Value, name: &str, state: &str) -> bool {
    let members = status["members"].as_array();
    members.is_some_and(|members| {
        members.iter().any(|member| member["name"] == name && member["state"] == state)
    })
}

/// `onepipe node`, whose standard input is written by the test.
pub struct Node {
    pub process: Running,
}

impl Node {
    pub fn start(arguments: &[&str]) -> Self {
        let mut command = onepipe(&[&["node", "--stay"], arguments].concat());
        Self { process: Running::start_with_stderr(command.stdin(Stdio::piped())) }
    }

    pub fn type_line(&mut self, line: &str) {
        let stdin = self.process.child.stdin.as_mut().expect("its input is piped");
        writeln!(stdin, "{line}").expect("write to its stdin");
    }

    /// Waits until a controller knows it as process `id`.
    pub fn joins(&self, controller: &Controller, id: u32) {
        let name = format!("process {id}");
        controller.until(&format!("{name} is up"), |status| is(status, &name, "up"));
    }
}
