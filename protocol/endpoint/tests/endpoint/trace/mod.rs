//! Readable stories: `testdata/*.txt`.
//!
//! A line that starts with `@` is an input of process 0 at that many nanoseconds; the indented
//! lines below it are all frames and events that follow from it. The first line configures the
//! endpoint, `#` starts a comment. Timestamps count from the origin of the story, `b` is the
//! barrier promise and `c` the commit promise if that differs.

mod input;
mod output;
mod words;

use std::path::Path;

use onepipe_base::{Incarnation, Machine, Mono, Now, Port, ProcessId, ScatteringId, Verdict};
use onepipe_endpoint::{Config, Delivery, Endpoint, Event, Message, ReceiveMode};
use onepipe_verify_testing::check_stories;

use words::{Words, number, timestamp};

/// Origin of the synchronised clock of all stories.
const ORIGIN_NS: u64 = 1 << 50;

struct Story {
    end: Endpoint,
    /// Deliveries that the application holds until it releases them.
    held: Vec<Delivery>,
    is_holding: bool,
    now: Now,
    output: String,
}

/// Configures the endpoint. Without other words an uplink has neither beacons nor a timeout, so
/// that a story contains only what it is about.
fn set_up(words: Words<'_>) -> Endpoint {
    assert!(words.has("endpoint"), "the first line configures the endpoint: {:?}", words.0);
    let defaults = Config::new(ProcessId(0), Incarnation(1));
    let or = |name, default: u64| words.number(name).unwrap_or(default);
    let is_merged = words.has("merged");
    Endpoint::new(Config {
        processes_max: 8,
        beacon_interval_ns: or("interval", 0),
        link_timeout_ns: or("timeout", 0),
        frame_len_max: or("frame", 1_472) as usize,
        window_bytes_max: or("window", 65_536) as u32,
        congestion_window_bytes: or("congestion", 65_536) as u32,
        ack_packets: or("ack-packets", 16) as u32,
        probes_max: or("probes", 8) as u32,
        reorder_packets: or("reorder", 3) as u32,
        unknown_after_ns: or("unknown-after", 0),
        give_up_after_ns: or("give-up", defaults.give_up_after_ns),
        receive_mode: if is_merged { ReceiveMode::Merged } else { ReceiveMode::Separate },
        shares_payloads: words.has("shares"),
        ..defaults
    })
    .expect("a valid configuration")
}

impl Story {
    fn new(line: &str) -> Self {
        let words = Words(line);
        let now = Now { mono: Mono::from_ns(0), sync: timestamp(0) };
        let (held, output) = (Vec::new(), String::new());
        Self { end: set_up(words), held, is_holding: words.has("holds"), now, output }
    }

    fn print(&mut self, line: &str) {
        self.output.push_str(line);
        self.output.push('\n');
    }

    /// Runs one input line, and prints what follows from it.
    fn run(&mut self, line: &str) {
        let ns = number(line[1..].split_whitespace().next().expect("a time behind the @"));
        let before = self.now.mono.as_ns();
        assert!(ns >= before, "time goes back at {line:?}");
        self.now = Now { mono: Mono::from_ns(ns), sync: timestamp(ns) };
        let words = Words(line);
        match words.all().nth(1).expect("a command behind the time") {
            "rx" => {
                let mut bytes = input::frame(words, self.now.sync);
                let verdict = self.end.handle_frame(self.now, Port(0), &mut bytes);
                if verdict == Verdict::Dropped {
                    self.print("    dropped");
                }
            }
            "timeout" => {
                let due =
                    self.end.poll_timeout().unwrap_or_else(|| panic!("no deadline at {line:?}"));
                assert!(due <= self.now.mono, "the timeout is due at {}", due.as_ns());
                self.end.handle_timeout(self.now);
            }
            "scatter" | "reliable" | "unordered" => self.submit(words),
            "release" => self.held.drain(..).for_each(|delivery| self.end.release(delivery)),
            "cancel" => assert!(self.end.cancel(ScatteringId(words.must("scattering")))),
            "leave" => self.end.leave(),
            "poll" => {}
            other => panic!("{other:?} is no command"),
        }
        self.drain();
    }

    fn submit(&mut self, words: Words<'_>) {
        let messages = words.messages();
        // Equal payloads are one payload, which may be shared.
        let payload_of = |payload: &Vec<u8>| {
            let mut all = messages.iter().map(|(_, known)| known);
            all.find(|known| *known == payload).map_or(&[][..], Vec::as_slice)
        };
        let each = |(to, payload): &(u32, Vec<u8>)| Message {
            to: ProcessId(*to),
            payload: payload_of(payload),
        };
        let messages: Vec<_> = messages.iter().map(each).collect();
        let submitted = match words.all().nth(1) {
            Some("reliable") => self.end.scatter_reliably(&messages),
            Some("unordered") => self.end.send_unordered(messages[0]),
            _ => self.end.scatter(&messages),
        };
        if let Err(error) = submitted {
            self.print(&format!("    refused: {error}"));
        }
    }

    /// Prints frames and events until there are no more.
    fn drain(&mut self) {
        let mut slot = vec![0; self.end.config().frame_len_max];
        let mut idle_rounds = 0;
        // What is admitted last may leave a Connect to send.
        while idle_rounds < 2 {
            idle_rounds += 1;
            while let Some(transmit) = self.end.poll_transmit(self.now, &mut slot) {
                let line = output::frame(&slot[..transmit.bytes], self.now.sync);
                self.print(&line);
                idle_rounds = 0;
            }
            while let Some(event) = self.end.poll_event() {
                self.print_event(event);
                idle_rounds = 0;
            }
            self.end.check_invariants();
        }
    }

    fn print_event(&mut self, event: Event) {
        let payload = match &event {
            Event::Delivered(delivery) => self.end.payload(delivery).to_vec(),
            _ => Vec::new(),
        };
        let line = output::event(&event, &payload);
        self.print(&line);
        if let Event::Delivered(delivery) = event {
            match self.is_holding {
                true => self.held.push(delivery),
                false => self.end.release(delivery),
            }
        }
    }
}

#[test]
fn every_story_replays_exactly() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    check_stories(&folder, 12, Story::new, |story, line| {
        story.run(line);
        std::mem::take(&mut story.output)
    });
}
