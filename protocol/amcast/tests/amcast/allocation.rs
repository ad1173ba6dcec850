//! Machines do not allocate after their creation.

use allocation_counter::measure;
use onepipe_amcast::{Client, Config, Group, GroupSet, Groups, Member, Replica};
use onepipe_base::{Machine, Mono, Now, Port, ProcessId, Timestamp};
use onepipe_wire::parse_header;

/// Two groups of three members and a replica each, and a client.
struct Fixture {
    members: Vec<Member>,
    replicas: Vec<Replica>,
    client: Client,
    frames: u64,
}

impl Fixture {
    fn new() -> Self {
        let ids = |all: std::ops::Range<u32>| all.map(ProcessId).collect::<Vec<_>>();
        let group = |members, replicas| Group { members, replicas };
        let groups = Groups {
            groups: vec![group(ids(0..3), ids(6..7)), group(ids(3..6), ids(7..8))],
            clients: ids(8..9),
            window: 16,
            message_groups_max: 2,
            frame_len_max: 512,
        };
        let config = |id| Config { history: 64, ..Config::new(ProcessId(id), groups.clone()) };
        Self {
            members: (0..6).map(|id| Member::new(config(id)).expect("right")).collect(),
            replicas: (6..8).map(|id| Replica::new(config(id)).expect("right")).collect(),
            client: Client::new(config(8)).expect("right"),
            frames: 0,
        }
    }

    /// Exchanges all output, but loses every 13th frame.
    fn exchange(&mut self, now: Now) {
        let (mut slot, mut is_quiet) = ([0; 512], false);
        while !is_quiet {
            is_quiet = true;
            for from in 0..9 {
                let sent = match from {
                    0..6 => self.members[from].poll_transmit(now, &mut slot),
                    6..8 => self.replicas[from - 6].poll_transmit(now, &mut slot),
                    _ => self.client.poll_transmit(now, &mut slot),
                };
                let Some(sent) = sent else { continue };
                is_quiet = false;
                self.frames += 1;
                if self.frames.is_multiple_of(13) {
                    continue;
                }
                let frame = &mut slot[..sent.bytes];
                match parse_header(frame).expect("sealed").0.dst().index() {
                    to @ 0..6 => self.members[to].handle_frame(now, Port(0), frame),
                    to @ 6..8 => self.replicas[to - 6].handle_frame(now, Port(0), frame),
                    _ => self.client.handle_frame(now, Port(0), frame),
                };
            }
        }
        self.members.iter_mut().for_each(|one| while one.poll_event().is_some() {});
        self.replicas.iter_mut().for_each(|one| while one.poll_event().is_some() {});
        while self.client.poll_event().is_some() {}
    }
}

#[test]
fn machines_do_not_allocate_under_loss_and_elections() {
    let mut fixture = Fixture::new();
    let taken = measure(|| {
        for step in 0..4_000u64 {
            let sync = Timestamp::from_ns((1 << 50) + step * 40_000);
            let now = Now { mono: Mono::from_ns(step * 40_000), sync };
            let _ = fixture.client.amcast(now, GroupSet::from_bits(1 + step % 3), &[7; 300]);
            if step % 500 == 499 {
                fixture.members[(step / 500 % 3) as usize].lead(now, 2 + (step / 500) as u32);
            }
            fixture.exchange(now);
            fixture.members.iter_mut().for_each(|one| one.handle_timeout(now));
            fixture.replicas.iter_mut().for_each(|one| one.handle_timeout(now));
            fixture.client.handle_timeout(now);
            fixture.exchange(now);
        }
        let delivered: u64 = fixture.replicas.iter().map(|replica| replica.stats().delivered).sum();
        let epoch = fixture.members.iter().map(Member::epoch).max();
        assert!(delivered > 2_000 && epoch == Some(9), "{delivered} {epoch:?}");
    });
    assert_eq!(taken.count_total, 0);
}
