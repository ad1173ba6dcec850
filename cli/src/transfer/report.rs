//! What is told of a file that is through.

use std::io::{self, Write, stderr, stdout};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::end::{Counted, End};
use crate::number::readable;

/// A file that was sent.
pub struct Sent<'a> {
    pub name: String,
    pub bytes: u64,
    pub digest: String,
    pub to: u32,
    pub process: u32,
    pub end: &'a End,
    pub began: Counted,
    pub until: Counted,
}

/// A file that has come.
pub struct Came<'a> {
    /// Where it is.
    pub path: String,
    pub bytes: u64,
    pub digest: &'a str,
    pub from: u32,
    pub process: u32,
    pub end: &'a End,
    pub began: Counted,
    pub until: Counted,
    /// Whether standard output has other bytes.
    pub is_beside: bool,
}

/// What both ends tell.
struct Both {
    bytes: u64,
    seconds: f64,
    bits_per_s: f64,
    counted: Value,
}

fn both(bytes: u64, end: &End, (began, now): (&Counted, &Counted)) -> Both {
    let seconds = (now.at - began.at).as_secs_f64().max(1e-6);
    let (is, was) = (&now.endpoint, &began.endpoint);
    let (sent, before) = (&now.transfer, &began.transfer);
    let counted = json!({
        "pieces": {
            "sent": sent.pieces_sent - before.pieces_sent,
            "sent_again": sent.pieces_sent_again - before.pieces_sent_again,
            "received": sent.pieces_received - before.pieces_received,
            "received_again": sent.pieces_again - before.pieces_again,
            "reports_sent": sent.reports_sent - before.reports_sent,
        },
        "timeslots": {
            "granted": is.granted - was.granted,
            "idle": is.idle - was.idle,
            "late": is.late - was.late,
            "ahead": is.ahead - was.ahead,
        },
        "control": {
            "sent": is.control_sent - was.control_sent,
            "received": is.control_received - was.control_received,
            "bytes_sent": is.control_bytes - was.control_bytes,
        },
        "arbiters": end.served(),
    });
    Both { bytes, seconds, bits_per_s: bytes as f64 * 8.0 / seconds, counted }
}

impl Both {
    /// Adds what both ends tell.
    fn object(&self, mut line: Value) -> Value {
        line["bytes"] = self.bytes.into();
        line["seconds"] = self.seconds.into();
        line["goodput_bits_per_s"] = self.bits_per_s.into();
        for (name, value) in self.counted.as_object().into_iter().flatten() {
            line[name] = value.clone();
        }
        line
    }

    fn table(&self, out: &mut dyn Write, with_whom: &str) -> io::Result<()> {
        let Self { bytes, seconds, bits_per_s, counted } = self;
        let rate = readable(*bits_per_s);
        writeln!(out, "{bytes} bytes {with_whom} in {seconds:.2} s: {rate}bit/s")?;
        let of = |what: &str, which: &str| counted[what][which].as_u64().unwrap_or(0);
        let pieces = |which| of("pieces", which);
        let slots = |which| of("timeslots", which);
        let control = |which| of("control", which);
        let arbiters = counted["arbiters"].as_array().into_iter().flatten();
        let arbiters = arbiters.map(|it| format!("{} ({} answers)", it["process"], it["answers"]));
        let rows = [
            (
                "pieces",
                format!(
                    "{} sent, {} of them again; {} received, {} of them had come before",
                    pieces("sent"),
                    pieces("sent_again"),
                    pieces("received") + pieces("received_again"),
                    pieces("received_again")
                ),
            ),
            (
                "timeslots",
                format!(
                    "{} granted, {} of them not needed; {} came too late, {} too far ahead",
                    slots("granted"),
                    slots("idle"),
                    slots("late"),
                    slots("ahead")
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
        rows.iter().try_for_each(|(what, text)| writeln!(out, "  {what:<10} {text}"))
    }
}

impl Sent<'_> {
    /// Prints it.
    pub fn tell(&self, is_json: bool) -> Result<()> {
        let Self { name, bytes, digest, to, process, end, began, until } = self;
        let both = both(*bytes, end, (began, until));
        let mut out = stdout().lock();
        let printed = if is_json {
            let line = json!({
                "command": "transfer send", "file": name, "digest": digest, "process": process,
                "to": to,
            });
            writeln!(out, "{}", both.object(line))
        } else {
            writeln!(out, "{digest}  {name}")
                .and_then(|()| both.table(&mut out, &format!("to process {to}")))
        };
        printed.context("cannot print")
    }
}

impl Came<'_> {
    /// Prints it.
    pub fn tell(&self, is_json: bool) -> Result<()> {
        let Self { path, bytes, digest, from, process, end, began, until, is_beside } = self;
        let both = both(*bytes, end, (began, until));
        let mut out: Box<dyn Write> =
            if *is_beside { Box::new(stderr()) } else { Box::new(stdout()) };
        let printed = if is_json {
            let line = json!({
                "command": "transfer receive", "file": path, "digest": digest, "process": process,
                "from": from,
            });
            writeln!(out, "{}", both.object(line))
        } else {
            writeln!(out, "{digest}  {path}")
                .and_then(|()| both.table(&mut *out, &format!("of process {from}")))
        };
        printed.context("cannot print")
    }
}
