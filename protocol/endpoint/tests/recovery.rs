//! What is lost is found out, whatever else goes on; what is gone holds nobody up.

mod rig;
mod world;

use onepipe_base::{Address, Incarnation, Port, ProcessId, SwitchId};
use onepipe_endpoint::{Config, Endpoint, Outcome};
use onepipe_wire::{AckView, Frame, Opcode, Probe};
use rig::{Rig, ack};
use world::{Fate, World};

fn opcode(bytes: &[u8]) -> Opcode {
    Frame::parse(bytes).expect("sealed").opcode
}

#[test]
fn a_fence_behind_a_missing_packet_is_no_reason_to_ask_for_ever() {
    let mut rig = Rig::new(|_| {});
    rig.scatter(&[(1, b"0")]);
    rig.hear(1, 1, &ack(Opcode::Grant, 0, &[], |_| {}));
    rig.scatter(&[(1, b"1")]);
    rig.scatter(&[(1, b"2")]);
    rig.take_sent(Opcode::Probe, 1);
    // Packet 0 is missing, 1 is here, 2 came late. A peer answers each probe at once.
    let mut probes = 0;
    rig.hear(1, 1, &ack(Opcode::Nak, 0, &[(0b010, 0b100)], |_| {}));
    for _ in 0..100 {
        for (_, body) in rig.take_sent(Opcode::Probe, 1) {
            probes += 1;
            let asked = Probe::parse(&body).expect("well formed");
            let fenced = if asked.until.0 > 0 { 0b101 } else { 0b100 };
            match asked.resolved.0 {
                0 => rig.hear(1, 1, &ack(Opcode::Nak, 0, &[(0b010, fenced)], |_| {})),
                settled => rig.hear(1, 1, &ack(Opcode::Ack, settled, &[], |_| {})),
            };
        }
        rig.wait(10_000);
    }
    rig.take();
    assert_eq!(rig.failed.len(), 2, "packets 0 and 2 are lost, and that is known within 1 ms");
    assert!(probes <= 4, "{probes} probes for two lost packets");
}

#[test]
fn a_loss_is_found_out_while_the_traffic_goes_on_over_links_that_may_reorder() {
    let mut world = World::new(2, |config| config.reorder_packets = 0);
    world.scatter(0, &[(1, b"to open the connection")]);
    world.run(100_000);
    let mut is_lost = false;
    world.fate = Box::new(move |from, _, bytes| {
        let hit =
            from == 0 && opcode(bytes) == Opcode::Data && !std::mem::replace(&mut is_lost, true);
        if hit { Fate::Lose } else { Fate::Pass }
    });
    // Each of these is acknowledged on its own: there is never a pause.
    for round in 0..2_000u32 {
        world.scatter(0, &[(1, &round.to_be_bytes())]);
        world.run(5_000);
        if !world.failed[0].is_empty() {
            return assert!(round < 400, "found out after {} us", 5 * round);
        }
    }
    panic!("a message was lost and nobody said so");
}

#[test]
fn a_peer_that_was_given_up_and_was_alive_after_all_has_its_whole_window() {
    let mut world = World::new(2, |config| {
        config.receive_buffer_bytes_max = 1 << 20;
        config.message_len_max = 100_000;
        config.processes_max = 4;
        config.probes_max = 2;
    });
    world.scatter(0, &[(1, b"to open the connection")]);
    world.run(100_000);
    // 100 kB of a window of 128 KiB arrive, but no answer comes back and nothing is consumed.
    world.is_lazy[1] = true;
    world.fate = Box::new(|from, _, bytes| match from == 1 && opcode(bytes) != Opcode::Beacon {
        true => Fate::Lose,
        false => Fate::Pass,
    });
    for _ in 0..50 {
        world.scatter(0, &[(1, &[1; 936])]);
    }
    world.run(30_000_000);
    assert!(world.failed[0].iter().all(|failed| failed.outcome == Outcome::Unknown));
    assert_eq!(world.failed[0].len(), 50);
    world.failed[0].clear();
    world.fate = Box::new(|_, _, _| Fate::Pass);
    // The first may fail while the peer is found again.
    for _ in 0..10 {
        world.scatter(0, &[(1, b"are you there?")]);
        world.run(5_000_000);
    }
    world.failed[0].clear();
    let before = world.ends[1].stats().window_violations;
    for _ in 0..300 {
        world.scatter(0, &[(1, &[2; 936])]);
    }
    world.run(5_000_000);
    assert_eq!(world.ends[1].stats().window_violations, before, "the window is overrun");
    world.is_lazy[1] = false;
    world.run(50_000_000);
    assert_eq!(world.failed[0].len(), 0);
    let second = world.logs[1].iter().filter(|seen| seen.payload == [2; 936]).count();
    assert_eq!(second, 300, "all that waited was sent when the window opened");
}

#[test]
fn after_a_peer_has_died_the_others_go_on_at_full_speed() {
    let mut world = World::new(3, |_| {});
    world.scatter(0, &[(1, b"a"), (2, b"a")]);
    world.run(100_000);
    world.is_dead[2] = true;
    world.scatter(0, &[(1, b"b"), (2, b"b")]);
    world.run(100_000_000);
    let before = world.logs[1].len();
    for _ in 0..1_000 {
        world.scatter(0, &[(1, b"c"), (2, b"c")]);
        world.run(20_000);
    }
    assert!(world.logs[1].len() - before >= 990, "{} of 1000", world.logs[1].len() - before);
    assert!(world.failed[0].len() >= 990, "what cannot be sent is reported at once");
}

#[test]
fn a_peer_that_is_known_to_be_gone_is_not_waited_for() {
    let mut world = World::new(3, |_| {});
    world.scatter(0, &[(1, b"a"), (2, b"a")]);
    world.run(100_000);
    world.is_dead[2] = true;
    world.scatter(0, &[(1, b"b"), (2, b"b")]);
    world.run(1_000);
    world.ends[0].unlink(Port(2));
    world.run(1_000);
    assert_eq!(world.failed[0].iter().map(|f| f.outcome).collect::<Vec<_>>(), [Outcome::Unknown]);
}

#[test]
fn leaving_takes_bounded_time_when_a_peer_is_dead() {
    let mut world = World::new(3, |_| {});
    world.scatter(0, &[(1, b"a"), (2, b"a")]);
    world.run(100_000);
    world.is_dead[2] = true;
    for _ in 0..100 {
        world.scatter(0, &[(1, b"b"), (2, &[0; 5_000])]);
    }
    world.ends[0].leave();
    world.run(100_000_000);
    assert!(world.ends[0].has_left());
    assert_eq!(world.logs[1].len(), 101);
    assert_eq!(world.failed[0].len(), 100);
}

#[test]
fn the_congestion_window_lives_on_after_the_peer_has_restarted() {
    let mut world = World::new(2, |_| {});
    for _ in 0..20_000 {
        world.scatter(0, &[(1, &[1; 936])]);
    }
    world.run(50_000_000);
    let config = Config { incarnation: Incarnation(2), ..world::config(1, 2) };
    world.ends[1] = Endpoint::new(config).expect("valid");
    world.scatter(0, &[(1, b"unknown fate")]);
    world.run(1_000_000);
    // Every packet is marked from now on: the sender must notice.
    world.fate = Box::new(|_, _, _| Fate::Mark);
    world.delay_ns = 20_000;
    let before = world.logs[1].len();
    for _ in 0..16_000 {
        world.scatter(0, &[(1, &[1; 936])]);
    }
    world.run(1_500_000);
    let count = world.logs[1].len() - before;
    assert!(count < 14_000, "{count} messages in 1.5 ms over a congested link");
}

#[test]
fn what_does_not_fit_the_room_at_the_process_itself_is_refused_not_waited_for() {
    let mut world = World::new(2, |config| {
        config.send_buffer_bytes_max = 64 << 20;
        config.receive_buffer_bytes_max = 32 << 20;
        config.message_len_max = 8 << 20;
    });
    let large = vec![1; 8 << 20];
    // 24 MiB for room of 16 MiB.
    world.scatter(0, &[(0, &large), (0, &large), (0, &large), (1, b"small")]);
    world.scatter(1, &[(0, &large)]);
    world.run(20_000_000);
    assert_eq!((world.failed[0].len(), world.logs[1].len()), (3, 1));
    assert_eq!(world.logs[0].len(), 1, "room is left for others");
}

#[test]
fn a_failure_in_room_is_not_counted_against_the_window() {
    let mut world = World::new(2, |config| {
        config.receive_buffer_bytes_max = 1 << 20;
        config.message_len_max = 250_000;
        config.processes_max = 4;
    });
    world.scatter(0, &[(1, b"to open the connection")]);
    world.run(1_000_000);
    for _ in 0..5 {
        // Every tenth packet of a message of 250 kB is lost.
        let mut count = 0;
        world.fate = Box::new(move |from, _, bytes| {
            let is_piece = from == 0 && opcode(bytes) == Opcode::Fragment;
            count += u32::from(is_piece);
            if is_piece && count % 10 == 0 { Fate::Lose } else { Fate::Pass }
        });
        world.scatter(0, &[(1, &vec![3; 250_000])]);
        world.run(5_000_000);
    }
    assert_eq!(world.lost(0), 5);
    world.fate = Box::new(|_, _, _| Fate::Pass);
    world.is_lazy[1] = true;
    for _ in 0..400 {
        world.scatter(0, &[(1, &[2; 936])]);
    }
    world.run(20_000_000);
    assert_eq!(world.ends[1].stats().window_violations, 0);
    world.is_lazy[1] = false;
    world.run(20_000_000);
    assert_eq!(world.logs[1].len(), 401);
}

#[test]
fn a_scattering_to_very_many_dead_processes_fails_one_by_one() {
    let processes = 40_000;
    let mut config = Config::new(ProcessId(0), Incarnation(1));
    config.processes_max = processes;
    config.probes_max = 1;
    config.links = onepipe_endpoint::Links::Uplink;
    let mut rig = Rig::new(move |other| *other = config);
    let messages: Vec<_> = (1..processes).map(|to| (to, &b"x"[..])).collect();
    let beacon = rig::What { opcode: Opcode::Beacon, psn: 0, flags: 0, body: vec![] };
    let switch = Address::Switch(SwitchId(0)).to_bits();
    rig.hear(switch, 1, &beacon);
    rig.scatter(&messages);
    for _ in 0..300 {
        rig.hear(switch, 1, &beacon);
        rig.wait(10_000);
    }
    rig.take();
    assert_eq!(rig.failed.len(), messages.len());
}

#[test]
fn sixty_five_thousand_messages_for_one_window_leave_in_one_go() {
    let mut world = World::new(2, |config| {
        config.receive_buffer_bytes_max = 32 << 20;
        config.message_len_max = 8 << 20;
        config.window_bytes_max = 64 << 10;
        config.processes_max = 2;
    });
    let messages: Vec<_> = (0..65_535u32).map(|n| (n % 2, &b"x"[..])).collect();
    world.scatter(0, &messages);
    world.run(20_000_000);
    assert_eq!(world.logs[0].len() + world.logs[1].len(), 65_535);
    assert!(world.failed[0].is_empty());
}

#[test]
fn an_answer_never_speaks_of_more_than_was_asked() {
    let mut rig = Rig::new(|_| {});
    rig.connect(1, 1);
    rig.hear(1, 1, &rig::data(9, b"far ahead"));
    let mut sent = rig.take_sent(Opcode::Ack, 1);
    let (_, body) = sent.pop().expect("it was told to answer at once");
    let view = AckView::parse(&body).expect("well formed");
    assert_eq!(view.words().collect::<Vec<_>>(), [(1 << 9, 0)]);
}
