//! Reports of completed transfers.

use std::io::{self, Write, stderr, stdout};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::counters::Counters;
use super::endpoint::Endpoint;
use crate::units::readable;

/// A file that was sent.
pub struct SentFile<'a> {
    pub name: String,
    pub bytes: u64,
    pub digest: String,
    pub to: u32,
    pub process: u32,
    pub endpoint: &'a Endpoint,
    pub began: Counters,
    pub until: Counters,
}

/// A file that was received.
pub struct ReceivedFile<'a> {
    /// Path of the file.
    pub path: String,
    pub bytes: u64,
    pub digest: &'a str,
    pub from: u32,
    pub process: u32,
    pub endpoint: &'a Endpoint,
    pub began: Counters,
    pub until: Counters,
    /// Prints to standard error, as standard output has the file's contents.
    pub uses_stderr: bool,
}

/// The part of a report that both ends have.
struct Totals {
    bytes: u64,
    seconds: f64,
    bits_per_s: f64,
    counters: Value,
}

fn totals(bytes: u64, endpoint: &Endpoint, (began, now): (&Counters, &Counters)) -> Totals {
    let seconds = (now.at - began.at).as_secs_f64().max(1e-6);
    let (endpoint_now, endpoint_before) = (&now.endpoint, &began.endpoint);
    let (transfer_now, transfer_before) = (&now.transfer, &began.transfer);
    let counters = json!({
        "pieces": {
            "sent": transfer_now.pieces_sent - transfer_before.pieces_sent,
            "retransmitted": transfer_now.pieces_retransmitted
                - transfer_before.pieces_retransmitted,
            "received": transfer_now.pieces_received - transfer_before.pieces_received,
            "duplicates": transfer_now.pieces_duplicate - transfer_before.pieces_duplicate,
            "reports_sent": transfer_now.reports_sent - transfer_before.reports_sent,
        },
        "timeslots": {
            "granted": endpoint_now.granted - endpoint_before.granted,
            "idle": endpoint_now.idle - endpoint_before.idle,
            "late": endpoint_now.late - endpoint_before.late,
            "early": endpoint_now.ahead - endpoint_before.ahead,
        },
        "control": {
            "sent": endpoint_now.control_sent - endpoint_before.control_sent,
            "received": endpoint_now.control_received - endpoint_before.control_received,
            "bytes_sent": endpoint_now.control_bytes - endpoint_before.control_bytes,
        },
        "arbiters": endpoint.serving_arbiters(),
    });
    Totals { bytes, seconds, bits_per_s: bytes as f64 * 8.0 / seconds, counters }
}

impl Totals {
    /// Adds the common part to a JSON report.
    fn to_json(&self, mut message: Value) -> Value {
        message["bytes"] = self.bytes.into();
        message["seconds"] = self.seconds.into();
        message["goodput_bits_per_s"] = self.bits_per_s.into();
        for (name, value) in self.counters.as_object().into_iter().flatten() {
            message[name] = value.clone();
        }
        message
    }

    fn table(&self, out: &mut dyn Write, peer: &str) -> io::Result<()> {
        let Self { bytes, seconds, bits_per_s, counters } = self;
        let rate = readable(*bits_per_s);
        writeln!(out, "{bytes} bytes {peer} in {seconds:.2} s: {rate}bit/s")?;
        let counter = |group: &str, which: &str| counters[group][which].as_u64().unwrap_or(0);
        let pieces = |which| counter("pieces", which);
        let slots = |which| counter("timeslots", which);
        let control = |which| counter("control", which);
        let arbiters = counters["arbiters"].as_array().into_iter().flatten();
        let arbiters = arbiters
            .map(|arbiter| format!("{} ({} replies)", arbiter["process"], arbiter["replies"]));
        let rows = [
            (
                "pieces",
                format!(
                    "{} sent, {} retransmitted; {} received, {} duplicates",
                    pieces("sent"),
                    pieces("retransmitted"),
                    pieces("received") + pieces("duplicates"),
                    pieces("duplicates")
                ),
            ),
            (
                "timeslots",
                format!(
                    "{} granted, {} idle; {} late, {} too early",
                    slots("granted"),
                    slots("idle"),
                    slots("late"),
                    slots("early")
                ),
            ),
            (
                "control",
                format!(
                    "{} packets sent ({} bytes), {} received",
                    control("sent"),
                    readable(control("bytes_sent") as f64),
                    control("received")
                ),
            ),
            ("arbiter", arbiters.collect::<Vec<_>>().join(", then ")),
        ];
        rows.iter().try_for_each(|(label, text)| writeln!(out, "  {label:<10} {text}"))
    }
}

impl SentFile<'_> {
    pub fn print(&self, is_json: bool) -> Result<()> {
        let Self { name, bytes, digest, to, process, endpoint, began, until } = self;
        let totals = totals(*bytes, endpoint, (began, until));
        let mut out = stdout().lock();
        let printed = if is_json {
            let message = json!({
                "command": "transfer send", "file": name, "digest": digest, "process": process,
                "to": to,
            });
            writeln!(out, "{}", totals.to_json(message))
        } else {
            writeln!(out, "{digest}  {name}")
                .and_then(|()| totals.table(&mut out, &format!("to process {to}")))
        };
        printed.context("cannot print")
    }
}

impl ReceivedFile<'_> {
    pub fn print(&self, is_json: bool) -> Result<()> {
        let Self { path, bytes, digest, from, process, endpoint, began, until, uses_stderr } = self;
        let totals = totals(*bytes, endpoint, (began, until));
        let mut out: Box<dyn Write> =
            if *uses_stderr { Box::new(stderr()) } else { Box::new(stdout()) };
        let printed = if is_json {
            let message = json!({
                "command": "transfer receive", "file": path, "digest": digest, "process": process,
                "from": from,
            });
            writeln!(out, "{}", totals.to_json(message))
        } else {
            writeln!(out, "{digest}  {path}")
                .and_then(|()| totals.table(&mut *out, &format!("from process {from}")))
        };
        printed.context("cannot print")
    }
}
