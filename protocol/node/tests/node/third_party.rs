//! One attacker among honest processes: it may harm itself, and no third party.
//!
//! A switch machine behind the admission of the software switch, three honest endpoints, and an
//! attacker that was admitted as a fourth process. Beside what its endpoint sends, the attacker
//! sends arbitrary frames in the name of others, from its own port and from an address that has
//! not joined.

use std::collections::{BTreeMap, BTreeSet};

use onepipe_base::{
    Address, Incarnation, Instance, Machine, Mono, Now, Port, ProcessId, Promises, Psn, SwitchId,
    Timestamp, Verdict,
};
use onepipe_endpoint::{Config as EndpointConfig, Endpoint, Event, Message};
use onepipe_join::{Admission, Applicant, Cookies, Decision, Joiner, Occupancy, Request, Roster};
use onepipe_switch::{Config as SwitchConfig, Switch};
use onepipe_topology::{ForwardingTable, Route};
use onepipe_wire::{
    HEADER_LEN, Header, JoinRole, Opcode, Terms, header_unchecked, parse_header, seal,
};
use proptest::prelude::*;

const ORIGIN_NS: u64 = 1_125_900_000_000_000;
/// Resolution of time, and the delay of a link.
const STEP_NS: u64 = 500;
const LINK_NS: u64 = 1_000;
/// Honest processes are 0 to 2.
const HONEST: u32 = 3;
const ATTACKER: u32 = 3;
/// The port of an address that has not joined, where a switch gives one to every address.
const STRANGER: Port = Port(4);
/// All have joined by then; then scatterings are submitted, and at last only delivered.
const JOINED_NS: u64 = 300_000;
const SENT_NS: u64 = 900_000;
const END_NS: u64 = 2_500_000;
const SEND_INTERVAL_NS: u64 = 20_000;
const HOUR_NS: i64 = 3_600_000_000_000;

/// A frame of the attacker.
#[derive(Clone, Debug)]
struct Forged {
    at_ns: u64,
    /// From the address that has not joined.
    is_stranger: bool,
    opcode: Opcode,
    src: u32,
    dst: u32,
    incarnation: u32,
    psn: u32,
    /// Of its timestamp and its promises, relative to the clock.
    ahead_ns: i64,
    flags: u8,
    payload: Vec<u8>,
}

/// What became of the messages of honest processes.
#[derive(Debug, Default)]
struct Outcome {
    /// Sender, receiver and number of each message, and how long it took, ns.
    delivered: BTreeMap<(u32, u32, u64), u64>,
    sent: BTreeSet<(u32, u32, u64)>,
    wrong: Vec<String>,
}

struct Fabric {
    now_ns: u64,
    switch: Switch,
    admission: Admission,
    /// Off: the seeded mistake.
    checks_sources: bool,
    ends: Vec<Endpoint>,
    /// Frames under way: to the switch from a port, or from the switch to a process.
    to_switch: Vec<(u64, Port, Vec<u8>)>,
    to_process: Vec<(u64, u32, Vec<u8>)>,
    outcome: Outcome,
}

fn instance(process: u32) -> Instance {
    Instance { address: Address::Process(ProcessId(process)), incarnation: Incarnation(1) }
}

impl Fabric {
    fn new(checks_sources: bool) -> Self {
        let route = Route::ForwardingTable(ForwardingTable::new(16, false));
        let switch = Switch::new(SwitchConfig::new(5, 0, route)).expect("in range");
        let own = Instance { address: Address::Switch(SwitchId(0)), incarnation: Incarnation(0) };
        let terms = Terms {
            processes_max: 16,
            controllers: None,
            link_timeout_ns: 30_000,
            frame_len_max: 1_472,
            key_epoch: 0,
            version: onepipe_wire::VERSION,
        };
        let end = |process| {
            let config = EndpointConfig {
                processes_max: 16,
                awaits_commits: true,
                ..EndpointConfig::new(ProcessId(process), Incarnation(1))
            };
            Endpoint::new(config).expect("in range")
        };
        Self {
            now_ns: 0,
            switch,
            admission: Admission::new(own, terms, 0),
            checks_sources,
            ends: (0..=ATTACKER).map(end).collect(),
            to_switch: Vec::new(),
            to_process: Vec::new(),
            outcome: Outcome::default(),
        }
    }

    fn now(&self) -> Now {
        let sync = Timestamp::from_ns(ORIGIN_NS + self.now_ns);
        Now { mono: Mono::from_ns(self.now_ns + 1), sync }
    }

    /// Returns whether the machine gets a frame from `port`, as in the software switch
    /// (`daemons/switch`): from an admitted port what its owner may send, from others nothing.
    fn is_admitted(&self, port: Port, frame: &[u8]) -> bool {
        if !self.checks_sources {
            return true;
        }
        let Some(header) = header_unchecked(frame).filter(|_| port != STRANGER) else {
            self.answer(frame);
            return false;
        };
        let role = JoinRole::Process;
        let applicant = Applicant { instance: instance(port.0.into()), role };
        let is_request = header.length() > 0 && header.opcode() == Ok(Opcode::Join);
        let is_of_handshake = Joiner::takes(frame) || Roster::takes(frame);
        !is_of_handshake && !is_request && applicant.may_send(&header)
    }

    /// A stranger that cannot know the cookie is never admitted.
    fn answer(&self, frame: &[u8]) {
        let Some(request) = Request::parse(frame) else { return };
        let vacant = Occupancy {
            present: None,
            rival: None,
            is_elsewhere: false,
            is_full: false,
            incarnation_max: None,
        };
        let cookies = Cookies { present: 0x5eed, previous: 0xdeed };
        let decision = self.admission.decide(request, vacant, cookies);
        assert!(matches!(decision, Decision::Answer(_)), "{decision:?}");
    }

    fn send_from_switch(&mut self, port: Port, bytes: &[u8]) {
        if u32::from(port.0) <= ATTACKER {
            self.to_process.push((self.now_ns + LINK_NS, port.0.into(), bytes.to_vec()));
        }
    }

    fn step(&mut self) {
        let (now, mut slot) = (self.now(), [0; 1_472]);
        let is_due = |due: Option<Mono>| due.is_some_and(|due| due <= now.mono);
        for (_, port, mut bytes) in take_due(&mut self.to_switch, self.now_ns) {
            while self.is_admitted(port, &bytes) {
                match self.switch.handle_frame(now, port, &mut bytes) {
                    Verdict::Forward(port) => self.send_from_switch(port, &bytes),
                    Verdict::Replicate(port) => {
                        self.send_from_switch(port, &bytes);
                        continue;
                    }
                    Verdict::Consumed | Verdict::Dropped => {}
                }
                break;
            }
        }
        if is_due(self.switch.poll_timeout()) {
            self.switch.handle_timeout(now);
        }
        while let Some(sent) = self.switch.poll_transmit(now, &mut slot) {
            self.send_from_switch(sent.port, &slot[..sent.bytes]);
        }
        while self.switch.poll_event().is_some() {}
        for (_, process, mut bytes) in take_due(&mut self.to_process, self.now_ns) {
            self.ends[process as usize].handle_frame(now, Port(0), &mut bytes);
        }
        for process in 0..=ATTACKER {
            let end = &mut self.ends[process as usize];
            if is_due(end.poll_timeout()) {
                end.handle_timeout(now);
            }
            while let Some(sent) = end.poll_transmit(now, &mut slot) {
                let bytes = slot[..sent.bytes].to_vec();
                self.to_switch.push((self.now_ns + LINK_NS, Port(process as u16), bytes));
            }
            self.take_events(process);
        }
        self.now_ns += STEP_NS;
    }

    fn take_events(&mut self, process: u32) {
        let (end, outcome) = (&mut self.ends[process as usize], &mut self.outcome);
        while let Some(event) = end.poll_event() {
            match event {
                Event::Delivered(delivery) => {
                    let number = end.payload(&delivery).try_into().map(u64::from_be_bytes);
                    let key = (delivery.from.0, process, number.unwrap_or(u64::MAX));
                    let took_ns = self.now_ns.saturating_sub(key.2);
                    if !outcome.sent.contains(&key) {
                        outcome.wrong.push(format!("forged: {key:?}"));
                    } else if outcome.delivered.insert(key, took_ns).is_some() {
                        outcome.wrong.push(format!("twice: {key:?}"));
                    }
                    end.release(delivery);
                }
                other if process != ATTACKER => outcome.wrong.push(format!("{process}: {other:?}")),
                _ => {}
            }
        }
    }

    /// Each honest process scatters to the others; the number of a message is its time.
    fn scatter(&mut self) {
        for from in 0..HONEST {
            // No two numbers of one sender are the same.
            let number = self.now_ns;
            let payload = number.to_be_bytes();
            let receivers = (0..HONEST).filter(|to| *to != from);
            let messages: Vec<Message<'_>> = receivers
                .clone()
                .map(|to| Message { to: ProcessId(to), payload: &payload })
                .collect();
            let end = &mut self.ends[from as usize];
            let is_reliable = (self.now_ns / SEND_INTERVAL_NS + u64::from(from)).is_multiple_of(2);
            let result = match is_reliable {
                true => end.scatter_reliably(&messages),
                false => end.scatter(&messages),
            };
            result.expect("the send buffer has space");
            self.outcome.sent.extend(receivers.map(|to| (from, to, number)));
        }
    }

    fn forge(&mut self, forged: &Forged) {
        let clock = ORIGIN_NS + self.now_ns;
        let time = Timestamp::from_ns(clock.saturating_add_signed(forged.ahead_ns));
        let mut bytes = vec![0; HEADER_LEN + forged.payload.len()];
        bytes[HEADER_LEN..].copy_from_slice(&forged.payload);
        let (src, dst) = (ProcessId(forged.src), ProcessId(forged.dst));
        let header = Header::new(forged.opcode, src, dst, Incarnation(forged.incarnation));
        let header = header.stamped(time, Promises::both(time), Psn(forged.psn));
        let len = seal(&mut bytes, header.flagged(forged.flags), forged.payload.len());
        debug_assert!(parse_header(&bytes).is_ok());
        let port = if forged.is_stranger { STRANGER } else { Port(ATTACKER as u16) };
        bytes.truncate(len);
        self.to_switch.push((self.now_ns, port, bytes));
    }
}

/// Takes what is due, in the order in which it was sent.
fn take_due<T: Copy>(
    in_flight: &mut Vec<(u64, T, Vec<u8>)>,
    now_ns: u64,
) -> Vec<(u64, T, Vec<u8>)> {
    in_flight.extract_if(.., |(due, ..)| *due <= now_ns).collect()
}

/// Runs the fabric under attack.
fn run(attack: &[Forged], checks_sources: bool) -> Outcome {
    let mut fabric = Fabric::new(checks_sources);
    while fabric.now_ns < END_NS {
        let (now_ns, until_ns) = (fabric.now_ns, fabric.now_ns + STEP_NS);
        if (JOINED_NS..SENT_NS).contains(&now_ns) && now_ns.is_multiple_of(SEND_INTERVAL_NS) {
            fabric.scatter();
        }
        for forged in attack.iter().filter(|forged| (now_ns..until_ns).contains(&forged.at_ns)) {
            fabric.forge(forged);
        }
        fabric.step();
    }
    fabric.outcome
}

/// Returns what is wrong with an outcome: a message that is missing, forged or reported as failed,
/// or that took more than three times the bound.
fn violation(outcome: &Outcome, bound_ns: u64) -> Option<String> {
    if let Some(wrong) = outcome.wrong.first() {
        return Some(wrong.clone());
    }
    if let Some(missing) = outcome.sent.iter().find(|key| !outcome.delivered.contains_key(key)) {
        return Some(format!("not delivered: {missing:?}"));
    }
    let (slowest, took_ns) = outcome.delivered.iter().max_by_key(|(_, took_ns)| **took_ns)?;
    (*took_ns > 3 * bound_ns).then(|| format!("{slowest:?} took {took_ns} of {bound_ns} ns"))
}

/// Returns the longest delivery without an attack.
fn bound_ns() -> u64 {
    let calm = run(&[], true);
    assert_eq!(violation(&calm, u64::MAX / 3), None);
    assert!(calm.delivered.len() > 150, "{}", calm.delivered.len());
    *calm.delivered.values().max().expect("messages were delivered")
}

fn forged() -> impl Strategy<Value = Forged> {
    let src = prop_oneof![
        4 => 0..HONEST,
        1 => Just(ATTACKER),
        1 => Just(15),
        1 => Just(1 << 31),
        1 => any::<u32>()
    ];
    let dst = prop_oneof![4 => 0..HONEST, 1 => Just(ATTACKER), 1 => any::<u32>()];
    let incarnation =
        prop_oneof![3 => Just(1), 2 => Just(u32::MAX), 1 => 0u32..4, 1 => any::<u32>()];
    let psn = prop_oneof![3 => 0u32..40, 1 => any::<u32>()];
    let ahead_ns = prop_oneof![
        2 => Just(0),
        1 => -2_000_000i64..2_000_000,
        1 => Just(-HOUR_NS),
        1 => Just(HOUR_NS),
        1 => Just(3 * HOUR_NS)
    ];
    let opcode = prop::sample::select(Opcode::ALL);
    let payload = prop::collection::vec(any::<u8>(), 0..64);
    let rest = (psn, ahead_ns, any::<u8>(), payload);
    let head = (0..SENT_NS, any::<bool>(), opcode, src, dst, incarnation);
    (head, rest).prop_map(|(head, (psn, ahead_ns, flags, payload))| {
        let (at_ns, is_stranger, opcode, src, dst, incarnation) = head;
        Forged { at_ns, is_stranger, opcode, src, dst, incarnation, psn, ahead_ns, flags, payload }
    })
}

/// What a process may send as itself is not an attack on others but its own misfortune.
fn is_as_itself(forged: &Forged) -> bool {
    !forged.is_stranger && (forged.src, forged.incarnation) == (ATTACKER, 1)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    //= spec/ordering.md#R64
    //= spec/ordering.md#R65
    #[test]
    fn one_attacker_harms_no_third_party(mut attack in prop::collection::vec(forged(), 0..200)) {
        attack.retain(|forged| !is_as_itself(forged));
        prop_assert_eq!(violation(&run(&attack, true), bound_ns()), None);
    }
}

/// The checker complains where the switch does not check who sends.
#[test]
fn missing_source_check_is_noticed() {
    let bound_ns = bound_ns();
    let honest = Forged {
        at_ns: JOINED_NS,
        is_stranger: false,
        opcode: Opcode::Beacon,
        src: 0,
        dst: 1,
        incarnation: 1,
        psn: 0,
        ahead_ns: 0,
        flags: 0,
        payload: vec![],
    };
    let attacks = [
        // A promise of another, in its name; and one of an address that has not joined.
        Forged { ahead_ns: HOUR_NS, ..honest.clone() },
        Forged { is_stranger: true, ahead_ns: -HOUR_NS, ..honest.clone() },
        // The route of another, and its connections under the last incarnation.
        Forged { opcode: Opcode::Data, ..honest.clone() },
        Forged { opcode: Opcode::Connect, incarnation: u32::MAX, ..honest },
    ];
    let repeated: Vec<Forged> = (0..100)
        .flat_map(|nth| attacks.clone().map(|one| Forged { at_ns: one.at_ns + nth * 5_000, ..one }))
        .collect();
    assert_eq!(violation(&run(&repeated, true), bound_ns), None);
    let noticed = violation(&run(&repeated, false), bound_ns);
    assert!(noticed.is_some(), "the checker never complains");
}
