//! `onepipe status`: queries controllers and arbiters.

mod arbiter;

use std::io::{Read, Write, stdout};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use onepipe_daemon_controller::{FailureReport, Report};
use serde::{Deserialize, Serialize};

use crate::args::address;
use crate::controller::STATUS_LISTEN;
use crate::units::pauses_text;

pub use arbiter::avoided_text;

const EXAMPLES: &str = "\
Examples:
  onepipe status
  onepipe status --from 10.0.0.1:4480 --from 10.0.0.2:4480
  onepipe status --from 10.0.0.1:4490                  an arbiter, its --status-listen
  onepipe status --json

The same as JSON: curl http://127.0.0.1:4480/status; for monitors: /metrics.";

/// Show members, epochs, barriers and failures as seen by controllers, or the state of arbiters
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Addresses of controllers or arbiters, as their `--status-listen` gives them
    #[arg(long, value_name = "ADDRESS", env = "ONEPIPE_STATUS_FROM", value_delimiter = ',',
          default_value = STATUS_LISTEN)]
    from: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Timeout of a query.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum length of a response: a report of 2^20 processes is shorter.
const RESPONSE_LEN_MAX: u64 = 1 << 28;
/// Failures listed in the table; the JSON has all.
const FAILURES_SHOWN: usize = 10;

/// Response of one controller or arbiter.
#[derive(Debug, Serialize)]
struct Response {
    from: String,
    #[serde(flatten)]
    report: Option<StatusReport>,
    /// Error message, if there is no report.
    #[serde(skip_serializing_if = "Option::is_none")]
    unreachable: Option<String>,
}

/// A report; those of controllers and arbiters have different fields.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum StatusReport {
    Controller(Box<Report>),
    Arbiter(Box<arbiter::Report>),
}

impl StatusReport {
    fn table(&self) -> String {
        match self {
            Self::Controller(report) => table(report),
            Self::Arbiter(report) => arbiter::table(report),
        }
    }
}

#[derive(Debug, Serialize)]
struct Responses {
    controllers: Vec<Response>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    arbiters: Vec<Response>,
}

/// Queries all addresses and prints the reports.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let responses: Vec<Response> = arguments.from.iter().map(|from| query(from)).collect();
    let is_any_reachable = responses.iter().any(|response| response.report.is_some());
    let mut out = stdout().lock();
    if arguments.json {
        let is_arbiter =
            |response: &Response| matches!(response.report, Some(StatusReport::Arbiter(_)));
        let (arbiters, controllers) = responses.into_iter().partition(is_arbiter);
        serde_json::to_writer(&mut out, &Responses { controllers, arbiters })?;
        writeln!(out).context("cannot print")?;
    } else {
        for response in &responses {
            let text = match (&response.report, &response.unreachable) {
                (Some(report), _) => report.table(),
                (None, why) => format!("unreachable: {}\n", why.as_deref().unwrap_or("no reason")),
            };
            write!(out, "{}\n{text}\n", response.from).context("cannot print")?;
        }
    }
    if is_any_reachable {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!(
        "onepipe: no controller or arbiter responds at {}: start one, or name its --status-listen \
         with --from",
        arguments.from.join(", ")
    );
    Ok(ExitCode::FAILURE)
}

fn query(from: &str) -> Response {
    let result = address_of(from).and_then(fetch);
    let (report, unreachable) = match result {
        Ok(report) => (Some(report), None),
        Err(error) => (None, Some(format!("{error:#}"))),
    };
    Response { from: from.to_owned(), report, unreachable }
}

fn address_of(from: &str) -> Result<SocketAddr> {
    ensure!(
        from.contains(':'),
        "{from:?} has no port: write for example {from}:4480, the --status-listen of a controller"
    );
    address(from)
}

fn fetch(from: SocketAddr) -> Result<StatusReport> {
    let mut stream = TcpStream::connect_timeout(&from, TIMEOUT).context("cannot connect")?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    // With HTTP/1.0 the response ends with the connection.
    let request = format!("GET /status HTTP/1.0\r\nHost: {from}\r\n\r\n");
    stream.write_all(request.as_bytes()).context("connection lost")?;
    let mut text = String::new();
    stream.take(RESPONSE_LEN_MAX).read_to_string(&mut text).context("no response")?;
    let (head, body) = text.split_once("\r\n\r\n").context(
        "no HTTP server answers: name the --status-listen of a controller or an arbiter",
    )?;
    let status = head.lines().next().unwrap_or_default();
    ensure!(
        status.split(' ').nth(1) == Some("200"),
        "an HTTP server that is neither a controller nor an arbiter answers ({status:?}): correct the \
         address"
    );
    serde_json::from_str(body).context(
        "an HTTP server answers that is neither a controller nor an arbiter of this release: correct \
         the address, or use the same release",
    )
}

/// Formats the report of a controller as a table.
fn table(report: &Report) -> String {
    let mut lines = vec![
        ("replica", replica_text(report)),
        ("attached", report.attachment.clone()),
        ("store", store_text(report)),
        ("neighbours", join_or_none(&report.attachments)),
        ("members", members_text(report)),
    ];
    let barriers = report.barriers.iter().map(|link| {
        let (barrier, commit, age) = (link.barrier_ns, link.commit_ns, ms(link.age_ns));
        ("barrier", format!("port {}: {barrier} ns, commits {commit} ns, {age} ago", link.port))
    });
    lines.extend(barriers);
    let counter = |name: &str| report.counters.get(name).copied().unwrap_or(0);
    lines.push(("pauses", pauses_text(counter("pauses"), counter("pause_max_ns"))));
    lines.extend(report.members.iter().filter(|member| member.state != "up").map(|member| {
        let (name, incarnation, state) = (&member.name, member.incarnation, &member.state);
        (
            "member",
            format!("{name} incarnation {incarnation}: {state}, {} links up", member.links_up),
        )
    }));
    lines.extend(report.open.iter().map(|failure| ("recovering", failure_text(failure))));
    lines.extend(report.frozen.iter().map(|link| {
        let peer = link.peer.as_deref().unwrap_or("an unknown peer");
        ("frozen", format!("{}, towards {peer}: commits {} ns", link.owner, link.commit_ns))
    }));
    lines.push(("failures", report.failures.len().to_string()));
    let shown = report.failures.iter().rev().take(FAILURES_SHOWN);
    lines.extend(shown.map(|failure| ("failed", failure_text(failure))));
    lines.push(("leaves", report.leaves.len().to_string()));
    let shown = report.leaves.iter().rev().take(FAILURES_SHOWN);
    lines.extend(shown.map(|leave| ("left", failure_text(leave))));
    lines.iter().map(|(label, text)| format!("  {label:<11} {text}\n")).collect()
}

fn replica_text(report: &Report) -> String {
    let role = match report.epoch {
        Some(epoch) => format!("active in epoch {epoch}"),
        None => "standby".to_owned(),
    };
    format!(
        "process {} incarnation {}, {role}, up for {:.0} s",
        report.replica, report.incarnation, report.uptime_s
    )
}

fn store_text(report: &Report) -> String {
    let store = &report.store;
    let waiting = match store.records_waiting {
        0 => String::new(),
        count => format!(", {count} records pending"),
    };
    match &store.error {
        None if store.is_available => format!("available{waiting}"),
        None => format!("not contacted yet{waiting}"),
        Some(error) => {
            format!("UNAVAILABLE for {:.0} s: {error}; recovery is paused{waiting}", store.since_s)
        }
    }
}

fn members_text(report: &Report) -> String {
    let count = |state: &str| report.members.iter().filter(|member| member.state == state).count();
    let states = ["up", "joining", "suspected", "failed"];
    let counts = states.iter().map(|state| (count(state), state)).filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts.map(|(count, state)| format!("{count} {state}")).collect();
    join_or_none(&counts)
}

fn failure_text(failure: &FailureReport) -> String {
    let (name, incarnation, at) = (&failure.name, failure.incarnation, failure.failed_at_ns);
    let qualifier = if failure.is_exact { "" } else { " (approximately)" };
    format!("{name} incarnation {incarnation} at {at} ns{qualifier}: {}", failure.cause)
}

fn join_or_none(items: &[String]) -> String {
    if items.is_empty() { "none".to_owned() } else { items.join(", ") }
}

fn ms(ns: u64) -> String {
    format!("{:.1} ms", ns as f64 / 1e6)
}

#[cfg(test)]
mod tests;
