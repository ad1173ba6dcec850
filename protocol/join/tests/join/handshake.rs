//! A joiner against a switch, over a link that loses, duplicates and delays.

use onepipe_base::{
    Address, Incarnation, Instance, Machine, Mono, Now, Port, ProcessId, SwitchId, Timestamp,
};
use onepipe_join::{
    Admission, Applicant, Cookies, Decision, Event, Joiner, JoinerConfig, Occupancy, Request,
    TermsChange,
};
use onepipe_wire::{HEADER_LEN, JOIN_LEN, JoinAnswer, JoinRole, RefuseReason, Terms, VERSION};
use proptest::prelude::*;

const TERMS: Terms = Terms {
    processes_max: 8,
    controllers: None,
    link_timeout_ns: 100_000_000,
    frame_len_max: 1_472,
    key_epoch: 0,
    version: VERSION,
};

/// The switch, with one secret for each of its starts.
struct Switch {
    own: Instance,
    admission: Admission,
    secret: u64,
    admitted: Option<Applicant>,
}

impl Switch {
    fn start(secret: u64) -> Self {
        let own = Instance { address: Address::Switch(SwitchId(4)), incarnation: Incarnation(9) };
        Self { own, admission: Admission::new(own, TERMS, 0), secret, admitted: None }
    }

    /// Answers a frame from `source`.
    fn answer(&mut self, now: Now, source: u64, frame: &[u8]) -> Option<Vec<u8>> {
        let answer = match Request::parse(frame) {
            None => JoinAnswer::NotAdmitted,
            Some(request) => {
                let cookie = (source << 32) ^ self.secret;
                let cookies = Cookies { present: cookie, previous: cookie };
                let ports = Occupancy {
                    present: self.admitted,
                    rival: None,
                    is_elsewhere: false,
                    is_full: false,
                    incarnation_max: None,
                };
                match self.admission.decide(request, ports, cookies) {
                    Decision::Admit(applicant, _) => {
                        self.admitted = Some(applicant);
                        JoinAnswer::Accepted(TERMS)
                    }
                    Decision::Replace(_) => unreachable!("there is one joiner"),
                    Decision::Answer(answer) => answer,
                }
            }
        };
        let mut slot = [0; HEADER_LEN + JOIN_LEN];
        let len = self.admission.write(now.sync, answer, None, &mut slot).expect("it fits");
        assert!(len <= frame.len(), "an answer is not longer than its question");
        Some(slot[..len].to_vec())
    }
}

fn at(ns: u64) -> Now {
    Now { mono: Mono::from_ns(ns), sync: Timestamp::from_ns(ns + (1 << 60)) }
}

fn joiner(process: u32) -> Joiner {
    let address = Address::Process(ProcessId(process));
    let own = Instance { address, incarnation: Incarnation(3) };
    Joiner::new(JoinerConfig::new(own, JoinRole::Process))
}

/// Runs the handshake from `from_ns` for at most four seconds. `copies` says how many copies of the
/// next frame arrive. Returns the events, and when the joiner was admitted.
fn run(
    joiner: &mut Joiner,
    switch: &mut Switch,
    from_ns: u64,
    mut copies: impl FnMut() -> usize,
) -> (Vec<Event>, Option<u64>) {
    let (mut events, mut sent) = (Vec::new(), 0);
    for ns in (from_ns..from_ns + 4_000_000_000).step_by(100_000) {
        let mut slot = [0; 256];
        while let Some(transmit) = joiner.poll_transmit(at(ns), &mut slot) {
            sent += 1;
            assert!(sent < 2_000, "the two answer each other without end");
            for _ in 0..copies() {
                let answer = switch.answer(at(ns), 1, &slot[..transmit.bytes]);
                for mut answer in answer.into_iter().flat_map(|it| vec![it; copies()]) {
                    assert!(Joiner::takes(&answer));
                    joiner.handle_frame(at(ns), Port(0), &mut answer);
                    events.extend(joiner.poll_event());
                }
            }
        }
        if !joiner.is_joining() {
            return (events, Some(ns));
        }
    }
    (events, None)
}

//= spec/ordering.md#R62
//= spec/ordering.md#R63
#[test]
fn applicant_is_invited_after_one_round_trip() {
    let (mut joiner, mut switch) = (joiner(2), Switch::start(77));
    joiner.start(at(0).mono);
    let (events, admitted_at) = run(&mut joiner, &mut switch, 0, || 1);
    assert_eq!(events, [Event::Invited(TERMS), Event::Accepted(TERMS)]);
    assert_eq!(admitted_at, Some(0));
    assert_eq!(joiner.poll_timeout(), None, "nothing is repeated");
}

//= spec/ordering.md#R64
#[test]
fn cookie_of_another_address_admits_nothing() {
    let (mut joiner, mut switch) = (joiner(2), Switch::start(77));
    joiner.start(at(0).mono);
    let mut slot = [0; 256];
    let first = joiner.poll_transmit(at(0), &mut slot).expect("a request");
    let mut answer = switch.answer(at(0), 1, &slot[..first.bytes]).expect("a challenge");
    joiner.handle_frame(at(0), Port(0), &mut answer);
    let second = joiner.poll_transmit(at(0), &mut slot).expect("a request with the cookie");
    switch.answer(at(0), 2, &slot[..second.bytes]);
    assert_eq!(switch.admitted, None);
    switch.answer(at(0), 1, &slot[..second.bytes]);
    assert!(switch.admitted.is_some());
}

#[test]
fn node_joins_again_when_the_switch_has_restarted() {
    let (mut joiner, mut switch) = (joiner(2), Switch::start(77));
    joiner.start(at(0).mono);
    run(&mut joiner, &mut switch, 0, || 1);
    switch = Switch::start(78);
    let mut answer = switch.answer(at(500), 1, &[0; HEADER_LEN]).expect("not admitted");
    joiner.handle_frame(at(500), Port(0), &mut answer);
    let (events, admitted_at) = run(&mut joiner, &mut switch, 500, || 1);
    assert_eq!(events.last(), Some(&Event::Accepted(TERMS)));
    assert_eq!((admitted_at, switch.admitted.is_some()), (Some(500), true));
}

//= spec/ordering.md#R77
#[test]
fn restarted_switch_with_other_terms_is_not_joined() {
    let (mut joiner, mut switch) = (joiner(2), Switch::start(77));
    joiner.start(at(0).mono);
    run(&mut joiner, &mut switch, 0, || 1);
    switch = Switch::start(78);
    let stated = Terms { processes_max: 4, ..TERMS };
    switch.admission = Admission::new(switch.own, stated, 0);
    let mut answer = switch.answer(at(500), 1, &[0; HEADER_LEN]).expect("not admitted");
    joiner.handle_frame(at(500), Port(0), &mut answer);
    assert_eq!(joiner.poll_event(), Some(Event::Forgotten));
    let (events, admitted_at) = run(&mut joiner, &mut switch, 500, || 1);
    let change = TermsChange { adopted: TERMS, stated };
    assert!(events.len() > 10 && events.iter().all(|it| *it == Event::Changed(change)));
    assert_eq!((admitted_at, switch.admitted), (None, None), "the address was not proved");
    let mismatch = change.mismatch();
    let values = (mismatch.setting, mismatch.ours.as_str(), mismatch.theirs.as_str());
    assert_eq!(values, ("processes", "8", "4"));
    switch.admission = Admission::new(switch.own, TERMS, 0);
    let (events, _) = run(&mut joiner, &mut switch, 5_000_000_000, || 1);
    assert_eq!(events.last(), Some(&Event::Accepted(TERMS)), "the switch was corrected");
}

#[test]
fn refusal_is_reported_and_the_request_repeated() {
    let (mut joiner, mut switch) = (joiner(8), Switch::start(77));
    joiner.start(at(0).mono);
    let (events, admitted_at) = run(&mut joiner, &mut switch, 0, || 1);
    let refused = Event::Refused { reason: RefuseReason::OutOfRange, terms: TERMS };
    assert!(events.len() > 10 && events.iter().all(|event| *event == refused));
    assert_eq!((admitted_at, switch.admitted), (None, None));
}

//= spec/ordering.md#R90
#[test]
fn fabric_of_another_version_is_named() {
    const OTHER: u8 = VERSION + 1;
    let (mut joiner, mut switch) = (joiner(2), Switch::start(77));
    let terms = Terms { version: OTHER, ..TERMS };
    switch.admission = Admission::new(switch.own, terms, 0);
    joiner.start(at(0).mono);
    let (events, admitted_at) = run(&mut joiner, &mut switch, 0, || 1);
    assert!(events.len() > 10 && events.iter().all(|it| *it == Event::OtherVersion(OTHER)));
    assert_eq!((admitted_at, switch.admitted), (None, None));
    switch.admission = Admission::new(switch.own, TERMS, 0);
    let (events, _) = run(&mut joiner, &mut switch, 5_000_000_000, || 1);
    assert_eq!(events.last(), Some(&Event::Accepted(TERMS)), "the switch was replaced");
}

proptest! {
    //= spec/ordering.md#R63
    #[test]
    fn handshake_survives_loss_and_duplication(
        copies in proptest::collection::vec(0..3_usize, 0..60),
    ) {
        let (mut joiner, mut switch) = (joiner(2), Switch::start(77));
        joiner.start(at(0).mono);
        let mut copies = copies.into_iter();
        let (events, admitted_at) =
            run(&mut joiner, &mut switch, 0, || copies.next().unwrap_or(1));
        prop_assert!(admitted_at.is_some());
        prop_assert_eq!(events.last(), Some(&Event::Accepted(TERMS)));
        prop_assert!(switch.admitted.is_some());
    }

    #[test]
    fn arbitrary_frames_are_harmless(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let (mut joiner, mut switch) = (joiner(2), Switch::start(77));
        joiner.start(at(0).mono);
        Request::parse(&bytes);
        joiner.handle_frame(at(0), Port(0), &mut bytes);
        prop_assert!(joiner.is_joining() && switch.admitted.is_none());
        let bytes = if bytes.len() < HEADER_LEN { vec![0; HEADER_LEN] } else { bytes };
        switch.answer(at(0), 1, &bytes);
        prop_assert!(switch.admitted.is_none());
    }
}
