//! Properties of a switch under any sequence of frames, idle times and clock steps, whatever its
//! neighbours send. Shared with `verify/fuzz`.

use onepipe_base::{
    Address, Cause, Controllers, Incarnation, Instance, Machine, Mono, Now, Port, ProcessId,
    Promises, Psn, SwitchId, Timestamp, Verdict,
};
use onepipe_switch::{Config, Eager, Switch};
use onepipe_topology::{ForwardingTable, Route};
use onepipe_wire::{
    Failure, Flags, Flood, FloodAck, FloodId, FloodKind, HEADER_LEN, HOPS_MAX, Header, Opcode,
    Resolved, SharedReceiver, SharedReceivers, parse_header, seal_with_hops,
};

const PORTS: u16 = 6;
/// Receivers of a shared frame.
const RECEIVERS: usize = 3;
const ORIGIN_NS: u64 = 1 << 50;
const INCARNATION: Incarnation = Incarnation(2);

/// The bytes that decide what happens next; zeros after their end.
struct Script<'a> {
    rest: &'a [u8],
}

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        *first
    }

    fn below(&mut self, limit: u64) -> u64 {
        u64::from(self.byte()) % limit
    }

    /// Returns a time near `near`, or sometimes a distant one.
    fn time(&mut self, near: u64) -> u64 {
        match self.byte() {
            choice @ 0..=219 => near.wrapping_add(u64::from(choice) * 100).wrapping_sub(2_000),
            220..=239 => near.wrapping_add(u64::from(self.byte()) << 20),
            240..=249 => near.wrapping_sub(u64::from(self.byte()) << 20),
            // Less than half the range of 48 bits apart in all, so that nothing is ambiguous.
            _ => near
                .wrapping_add((0..8).fold(0, |value, _| value << 8 | u64::from(self.byte())) >> 20),
        }
    }
}

/// A promise further back than this promises nothing: half of a quarter of the wire's range.
const NO_PROMISE_NS: u64 = 1 << 45;

/// The last promises sent on each port, which never decrease (I9).
struct Advertised {
    promises: [Option<Promises>; PORTS as usize],
}

impl Advertised {
    fn record(&mut self, port: Port, bytes: &[u8]) {
        let (header, opcode) = parse_header(bytes).expect("what leaves is sealed");
        if opcode.is_control() {
            return;
        }
        let advertised = &mut self.promises[port.index()];
        // Expanded next to the previous promise, so that no decrease can hide in the wrap.
        let near = advertised.map_or(Timestamp::from_ns(ORIGIN_NS), |promises| promises.barrier);
        let mut promises = header.promises(near);
        if let Some(before) = *advertised {
            assert!(promises.barrier >= before.barrier, "a barrier went back on {port:?}");
            // A new instance there gets none.
            let is_no_promise = promises.barrier.since_ns(promises.commit) > NO_PROMISE_NS;
            assert!(
                promises.commit >= before.commit || is_no_promise,
                "a commit barrier went back on {port:?} by {opcode:?}: {before:?}, {promises:?}"
            );
            promises.commit = promises.commit.max(before.commit);
        }
        *advertised = Some(promises);
    }
}

/// Runs `bytes` as a script.
pub fn switch(bytes: &[u8]) {
    let mut script = Script { rest: bytes };
    let shape = script.byte();
    let (lower, upper) = [(PORTS, 0), (4, 2)][usize::from(shape % 2)];
    let controllers = (shape & 2 != 0).then_some(Controllers { first: ProcessId(14), count: 2 });
    let intervals_ns = if controllers.is_some() { [1_000, 3_000] } else { [0, 3_000] };
    let config = Config {
        eager_beacons: [Eager::Never, Eager::ByRound, Eager::Always][script.below(3) as usize],
        controllers,
        incarnation: INCARNATION,
        beacon_interval_ns: intervals_ns[script.below(2) as usize],
        start_wait_ns: [0, 50_000][script.below(2) as usize],
        ..Config::new(lower, upper, Route::ForwardingTable(ForwardingTable::new(16, upper > 0)))
    };
    let mut switch = Switch::new(config).expect("a valid configuration");
    let mut advertised = Advertised { promises: [None; PORTS as usize] };
    let (mut ns, mut sync_ns) = (1_000, ORIGIN_NS);
    while !script.rest.is_empty() {
        let now = Now { mono: Mono::from_ns(ns), sync: Timestamp::from_ns(sync_ns) };
        match script.byte() {
            0..=219 => frame(&mut script, &mut switch, now, &mut advertised),
            220..=249 => {
                let byte = u64::from(script.byte());
                ns += byte * byte * 10;
                sync_ns = sync_ns.wrapping_add(byte * byte * 10).min(1 << 60);
            }
            _ => sync_ns = script.time(sync_ns).clamp(ORIGIN_NS - (1 << 44), ORIGIN_NS + (1 << 44)),
        }
        let now = Now { mono: Mono::from_ns(ns), sync: Timestamp::from_ns(sync_ns) };
        drain(&mut switch, now, &mut advertised);
    }
}

fn frame(script: &mut Script<'_>, switch: &mut Switch, now: Now, advertised: &mut Advertised) {
    let opcode = Opcode::ALL[script.below(Opcode::ALL.len() as u64) as usize];
    let (src, dst) = (script.below(18) as u32, script.below(18) as u32);
    let near = now.sync.as_ns();
    let message = Timestamp::from_ns(script.time(near));
    let promises = Promises {
        barrier: Timestamp::from_ns(script.time(near)),
        commit: Timestamp::from_ns(script.time(near)),
    };
    let mut header = Header::new(opcode, ProcessId(src), ProcessId(dst), Incarnation(1)).stamped(
        message,
        promises,
        Psn(script.byte().into()),
    );
    if opcode.is_hop_only() {
        header = of_link(script, opcode, promises);
    }
    let mut header = header.flagged(script.byte() & Flags::CONGESTION);
    let mut bytes = [0; HEADER_LEN + 40];
    let payload = payload(script, opcode, &mut bytes[HEADER_LEN..]);
    if opcode.is_shared() && script.byte() < 200 {
        header = header.unaddressed();
    }
    let hops = script.below(5) as u8;
    let hops = if hops == 4 { HOPS_MAX } else { hops };
    let length = seal_with_hops(&mut bytes, header, payload, hops);
    let port = Port(script.below(u64::from(PORTS) + 1) as u16);
    if script.byte() == 255 {
        bytes[script.below(length as u64) as usize] ^= 1;
    }
    let mut copies = 0;
    while let verdict = switch.handle_frame(now, port, &mut bytes[..length])
        && let Verdict::Forward(output) | Verdict::Replicate(output) = verdict
    {
        assert_ne!(output, port, "a frame goes back to its input port");
        advertised.record(output, &bytes[..length]);
        copies += 1;
        assert!(copies <= RECEIVERS, "it never stops copying");
        // A driver may lose a frame between two copies.
        if verdict == Verdict::Forward(output) || script.byte() == 255 {
            return;
        }
    }
}

/// Returns a header from one of a few instances that names this switch, no peer, or a previous
/// incarnation of this switch.
fn of_link(script: &mut Script<'_>, opcode: Opcode, promises: Promises) -> Header {
    let address = match script.byte() {
        choice @ 0..=99 => Address::Switch(SwitchId(u32::from(choice % 4))),
        choice => Address::Process(ProcessId(u32::from(choice % 17))),
    };
    let incarnation = Incarnation(script.below(3) as u32);
    let own = |incarnation| Instance { address: Address::Switch(SwitchId(0)), incarnation };
    let ack_from = match script.below(8) {
        0 => None,
        1 => Some(own(Incarnation(INCARNATION.0 - 1))),
        _ => Some(own(INCARNATION)),
    };
    Header::hop_only(opcode, Instance { address, incarnation }, ack_from, promises)
}

/// Writes a valid payload where the opcode requires one. Returns its length.
fn payload(script: &mut Script<'_>, opcode: Opcode, buf: &mut [u8]) -> usize {
    let id = FloodId { epoch: 1, sequence: script.below(4) as u32 };
    let kind = [FloodKind::Notice, FloodKind::Resume][script.below(2) as usize];
    let owner = Instance { address: Address::Switch(SwitchId(0)), incarnation: INCARNATION };
    let resolved = (1..3).map(|number| Resolved { owner, number });
    let at = Timestamp::from_ns(ORIGIN_NS);
    let failure = Failure {
        first: ProcessId(3),
        count: 1,
        incarnation: Incarnation(1),
        at,
        cause: Cause::TimedOut,
    };
    match (opcode, kind) {
        (Opcode::Flood, FloodKind::Notice) => {
            Flood { id }.write_notice(buf, [failure].into_iter()).map_or(0, |(_, bytes)| bytes)
        }
        (Opcode::Flood, FloodKind::Resume) => {
            Flood { id }.write_resume(buf, resolved).map_or(0, |(_, bytes)| bytes)
        }
        (Opcode::SharedData | Opcode::ReliableSharedData, _) => {
            let receiver = |_| SharedReceiver {
                process: ProcessId(script.below(18) as u32),
                psn: Psn(script.byte().into()),
                index: 0,
                is_ack_wanted: false,
                has_ack: false,
            };
            let len = SharedReceivers::write(buf, (0..RECEIVERS).map(receiver)).unwrap_or(0);
            buf[0] = buf[0].wrapping_sub(script.below(RECEIVERS as u64 + 2) as u8);
            len
        }
        (Opcode::FloodAck, _) => FloodAck { id, kind }.write(buf).unwrap_or(0),
        _ => 16,
    }
}

fn drain(switch: &mut Switch, now: Now, advertised: &mut Advertised) {
    if switch.poll_timeout().is_some_and(|due| due <= now.mono) {
        switch.handle_timeout(now);
    }
    let mut slot = [0; 1_472];
    let mut frames = 0;
    while let Some(transmit) = switch.poll_transmit(now, &mut slot) {
        advertised.record(transmit.port, &slot[..transmit.bytes]);
        frames += 1;
        // Beacons, eager ones, floods and acknowledgements, and announcements to two controllers.
        assert!(frames <= 6 * usize::from(PORTS), "it never stops sending");
    }
    while switch.poll_event().is_some() {}
    switch.check_invariants();
    let next = switch.poll_timeout();
    assert!(next.is_none_or(|due| due > now.mono), "due again at once: {next:?}");
}
