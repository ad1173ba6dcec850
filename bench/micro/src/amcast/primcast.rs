//! PrimCast over the same sockets.

use anyhow::Result;
use onepipe_amcast::GroupId;
use onepipe_base::{Machine, Mono, Now, Port, Transmit, Verdict};
use onepipe_rivals::{Config, Delivery, Method, Rival, To};
use onepipe_transport_amcast::{Role, open_with};
use onepipe_transport_clock::start_incarnation;
use onepipe_transport_driver::DrivenMachine;

use super::cpu_usage::ThreadKind;
use super::{Case, IDLE, MEMBERS, Outcome, measure};

/// Bytes of PrimCast's frame headers, rounded up.
const HEADERS_LEN: usize = 128;
/// Bytes in flight to one member: the size of the socket buffer.
const WINDOW_BYTES: usize = 1 << 20;
/// Long enough that a descheduled peer is not probed in vain, as on our side.
const TICK_NS: u64 = 1_000_000;
const RESEND_NS: u64 = 20_000_000;

/// Adapts a PrimCast process to the driver.
struct RivalMachine(Rival);

impl Machine for RivalMachine {
    type Event = Delivery;

    fn handle_frame(&mut self, now: Now, port: Port, frame: &mut [u8]) -> Verdict {
        self.0.handle_frame(now, port, frame)
    }

    fn handle_timeout(&mut self, now: Now) {
        self.0.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Now, slot: &mut [u8]) -> Option<Transmit> {
        self.0.poll_transmit(now, slot)
    }

    fn poll_event(&mut self) -> Option<Delivery> {
        self.0.poll_event()
    }

    fn poll_timeout(&self) -> Option<Mono> {
        self.0.poll_timeout()
    }
}

impl DrivenMachine for RivalMachine {}

/// Runs the same load through PrimCast, whose members deliver themselves.
pub(super) fn run(case: Case) -> Result<Outcome> {
    let directory = case.directory(0)?;
    let groups = u32::from(case.groups);
    let method = Method::Primcast { groups, group_members: MEMBERS as u32 };
    let frame_len_max = (case.bytes + HEADERS_LEN).max(1_472);
    let incarnation = start_incarnation(0);
    let rival = |process| {
        Rival::new(Config {
            incarnation,
            frame_len_max,
            window_bytes: WINDOW_BYTES,
            pending_max: case.window as usize,
            tick_ns: TICK_NS,
            resend_ns: RESEND_NS,
            ..Config::new(method, process, groups * MEMBERS as u32 + 1)
        })
    };
    let open_driver = |at| -> Result<_> {
        let (process, _) = directory.at(at).expect("address is in the directory");
        let machine = RivalMachine(rival(process)?);
        Ok(open_with(&directory, (at, process), (frame_len_max, IDLE), machine)?)
    };
    measure(case, |workers, scope| {
        let mut receivers = Vec::new();
        for group in (0..case.groups).map(GroupId) {
            for (index, at) in directory.of(Role::Member(group)).into_iter().enumerate() {
                let (kind, member) = (ThreadKind::of_member(index), open_driver(at)?);
                receivers.push(workers.spawn_receiver(
                    scope,
                    kind,
                    member,
                    |_, delivery, deliveries| {
                        deliveries.record(&delivery.payload);
                    },
                ));
            }
        }
        let to = To::Groups(case.all_groups());
        let client = open_driver(directory.of(Role::Client)[0])?;
        let submit = move |client: &mut RivalMachine, now, message: &[u8]| {
            client.0.send(now, to, message).is_ok()
        };
        let counts = |client: &RivalMachine| (client.0.in_flight(), 0);
        workers.spawn_sender(scope, client, (case.bytes, u64::MAX), submit, counts);
        Ok(receivers)
    })
}
