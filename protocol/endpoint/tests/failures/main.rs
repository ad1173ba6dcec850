//! Processes fail, and everybody else agrees on what becomes of their scatterings.

mod mesh;
mod script;

use mesh::{Fate, Mesh};
use onepipe_base::{ProcessId, Psn};
use onepipe_endpoint::{Message, SendFailed, Service};
use onepipe_wire::Opcode;

const PROCESSES: u32 = 4;
const ALL: [u32; 4] = [0, 1, 2, 3];

/// Everybody scatters to everybody, twice.
fn chatter(mesh: &mut Mesh) {
    for from in 0..mesh.nodes.len() {
        if !mesh.nodes[from].is_dead {
            mesh.scatter(from, &ALL, 40);
            mesh.scatter(from, &ALL, 600);
        }
    }
}

#[test]
fn a_sender_that_dies_at_any_frame_leaves_all_or_nothing() {
    let (mut some, mut none) = (0, 0);
    for k in 0..40 {
        let mut mesh = Mesh::new(PROCESSES, |_| {});
        chatter(&mut mesh);
        mesh.settle(3_000_000);
        // One that is cut, one that is not.
        mesh.scatter(0, &[1, 2, 3], 3_000);
        mesh.scatter(0, &ALL, 50);
        mesh.nodes[0].dies_after = Some(k);
        mesh.run(10_000);
        chatter(&mut mesh);
        mesh.settle(20_000_000);
        mesh.check_all();
        let has = mesh.nodes[1].log.iter().filter(|seen| seen.tag == 8).count();
        (some, none) = (some + has, none + 1 - has);
        for node in mesh.nodes.iter().filter(|node| !node.is_dead) {
            assert_eq!(node.told.len(), usize::from(mesh.nodes[0].is_dead), "at frame {k}");
            assert_eq!(node.end.receive_buffer_bytes(), 0);
            assert_eq!(node.end.send_buffer_bytes(), 0);
        }
    }
    assert!(some > 0 && none > 0, "{some} delivered, {none} not");
}

#[test]
fn a_receiver_that_dies_takes_the_siblings_with_it_or_nothing() {
    let mut recalled = 0;
    for k in 0..16 {
        let mut mesh = Mesh::new(PROCESSES, |_| {});
        chatter(&mut mesh);
        mesh.settle(3_000_000);
        mesh.nodes[3].dies_after = Some(k);
        for _ in 0..4 {
            mesh.scatter(0, &ALL, 50);
            mesh.scatter(1, &[1, 2, 3], 2_000);
            mesh.run(1_000);
        }
        mesh.settle(20_000_000);
        mesh.check_all();
        recalled += mesh.nodes[0].end.stats().messages_recalled;
        recalled += mesh.nodes[1].end.stats().messages_recalled;
    }
    assert!(recalled > 0);
}

#[test]
fn two_that_die_together_or_during_each_others_recovery() {
    for gap_ns in (0..120_000).step_by(4_000) {
        let mut mesh = Mesh::new(5, |_| {});
        chatter(&mut mesh);
        mesh.run(2_000);
        mesh.kill(0);
        chatter(&mut mesh);
        mesh.run(gap_ns);
        mesh.kill(4);
        chatter(&mut mesh);
        mesh.settle(20_000_000);
        mesh.check_all();
        for node in &mesh.nodes[1..4] {
            assert_eq!(node.told.len(), 2, "after {gap_ns} ns");
        }
    }
}

/// A generator of the tests' own.
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

/// Loses, doubles and delays a part of all frames, those of the controller among them.
fn rough(seed: u64) -> impl FnMut(usize, usize, Opcode) -> Fate {
    let mut draw = Draw(seed * 2 + 1);
    move |_, _, _| match draw.below(100) {
        0..=9 => Fate::Lose,
        10..=19 => Fate::Twice,
        20..=24 => Fate::Late(draw.below(100_000)),
        _ => Fate::Pass,
    }
}

#[test]
fn anything_may_die_while_frames_are_lost_doubled_and_overtaken() {
    for seed in 1..=40u64 {
        let mut draw = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut mesh = Mesh::new(5, |config| {
            config.receive_buffer_bytes_max = 1 << 20;
            config.message_len_max = 200_000;
        });
        mesh.script.is_flat = seed % 3 == 0;
        mesh.fate = Box::new(rough(seed));
        let deaths = 1 + draw.below(2);
        for round in 0..40 {
            for from in 0..5 {
                if draw.below(3) > 0 || mesh.nodes[from].is_dead {
                    continue;
                }
                let to: Vec<u32> = (0..5).filter(|_| draw.below(3) > 0).collect();
                let bytes = [20, 300, 3_000, 40_000][draw.below(4) as usize];
                if !to.is_empty() {
                    mesh.scatter(from, &to, bytes);
                }
            }
            if round == 10 || (round == 12 && deaths == 2) {
                let victim = draw.below(5) as usize;
                mesh.nodes[victim].dies_after = Some(draw.below(200) as u32);
            }
            mesh.nodes[2].is_stuck = (12..25).contains(&round);
            mesh.nodes[3].is_lazy = (5..30).contains(&round);
            if round == 20 && seed % 4 == 0 {
                let live: Vec<_> = (0..5).filter(|at| !mesh.nodes[*at].is_dead).collect();
                let live: Vec<_> = live.into_iter().map(|at| (at, 1, 0)).collect();
                mesh.script.take_over(&live);
            }
            mesh.run(draw.below(30_000));
        }
        mesh.nodes.iter_mut().for_each(|node| node.dies_after = None);
        mesh.settle(2_000_000_000);
        mesh.check_all();
    }
}

#[test]
fn who_comes_back_as_a_new_life_takes_part_again() {
    for pause_ns in [0, 10_000, 50_000, 1_000_000] {
        let mut mesh = Mesh::new(PROCESSES, |_| {});
        chatter(&mut mesh);
        mesh.run(3_000);
        mesh.kill(2);
        chatter(&mut mesh);
        mesh.run(pause_ns);
        mesh.restart(2);
        mesh.settle(20_000_000);
        mesh.check_all();
        // Nobody has heard of it but by its links: it says nothing, the others ask.
        for _ in 0..40 {
            mesh.scatter(0, &[1, 2], 30);
            mesh.run(100_000);
        }
        assert!(mesh.nodes[2].log.len() > 20, "{} after {pause_ns}", mesh.nodes[2].log.len());
        let before: Vec<_> = mesh.nodes.iter().map(|node| node.log.len()).collect();
        mesh.scatter(2, &ALL, 2_000);
        mesh.scatter(1, &ALL, 30);
        mesh.run(2_000_000);
        mesh.scatter(3, &ALL, 30);
        mesh.settle(20_000_000);
        let last = |at: usize| mesh.nodes[at].log.len() - before[at];
        assert!((0..4).all(|at| last(at) >= 2 && last(at) == last(0)), "after {pause_ns}");
        mesh.check_all();
    }
}

#[test]
fn a_failed_process_that_was_never_written_to_fails_what_is_sent_to_it() {
    let mut mesh = Mesh::new(PROCESSES, |_| {});
    mesh.kill(3);
    mesh.settle(20_000_000);
    mesh.scatter(0, &[1, 3], 30);
    mesh.scatter(0, &[1, 2], 30);
    mesh.settle(20_000_000);
    mesh.check_all();
    assert_eq!((mesh.nodes[0].failed.len(), mesh.nodes[1].log.len()), (2, 1));
    mesh.restart(3);
    mesh.run(200_000);
    for _ in 0..100 {
        mesh.scatter(0, &[1, 3], 30);
        mesh.run(1_000_000);
    }
    assert!(!mesh.nodes[3].log.is_empty(), "its new life is found");
}

#[test]
fn what_is_refused_at_once_takes_no_timestamp() {
    let mut mesh = Mesh::new(PROCESSES, |_| {});
    mesh.kill(3);
    mesh.settle(20_000_000);
    // The first one finds out that it is not back.
    mesh.scatter(0, &[1, 3], 30);
    mesh.settle(20_000_000);
    let promised = |mesh: &Mesh| mesh.nodes[0].end.promises().expect("driven").barrier;
    // As fast as an application can: without a pause it would run away from the clock.
    for _ in 0..1_000 {
        mesh.scatter(0, &[1, 3], 30);
    }
    let before = promised(&mesh);
    mesh.run(500);
    assert_eq!(mesh.nodes[0].failed.len(), 2 * mesh.sent.len());
    assert_eq!(promised(&mesh).as_ns() - before.as_ns(), 500);
    assert_eq!(mesh.nodes[0].end.send_buffer_bytes(), 0);
    mesh.settle(20_000_000);
}

#[test]
fn the_first_scattering_to_who_is_back_arrives() {
    for was_written_to in [false, true] {
        let mut mesh = Mesh::new(PROCESSES, |_| {});
        if was_written_to {
            chatter(&mut mesh);
            mesh.settle(20_000_000);
        }
        mesh.kill(3);
        mesh.settle(20_000_000);
        mesh.restart(3);
        mesh.run(200_000);
        mesh.scatter(0, &[1, 3], 30);
        mesh.settle(20_000_000);
        mesh.check_all();
        assert_eq!((mesh.nodes[0].failed.len(), mesh.nodes[3].log.len()), (0, 1));
        // Of who is not back it is found out once in a while, and the rest fails at once.
        mesh.kill(3);
        mesh.settle(20_000_000);
        mesh.scatter(0, &[1, 3], 30);
        mesh.settle(20_000_000);
        assert_eq!(mesh.nodes[0].failed.len(), 2);
        mesh.scatter(0, &[1, 3], 30);
        mesh.run(500);
        assert_eq!(mesh.nodes[0].failed.len(), 4, "at once");
        // Much later it is back, and was not written to meanwhile.
        mesh.run(20_000_000);
        mesh.restart(3);
        mesh.run(200_000);
        mesh.scatter(0, &[1, 3], 30);
        mesh.settle(20_000_000);
        assert_eq!((mesh.nodes[0].failed.len(), mesh.nodes[3].log.len()), (4, 1));
        mesh.check_all();
    }
}

#[test]
fn who_is_not_welcome_waits_with_what_is_reliable() {
    let mut mesh = Mesh::new(PROCESSES, |_| {});
    assert!(mesh.nodes.iter().all(|node| node.end.is_welcome()));
    mesh.script.is_unwelcoming = true;
    mesh.restart(2);
    mesh.settle(20_000_000);
    let stale = mesh.script.frame(Opcode::AnnounceAck, 2, Psn(1), &[]);
    mesh.script.extra.push((2, stale));
    mesh.scatter(2, &[0, 1, 2], 30);
    mesh.run(20_000_000);
    let end = &mesh.nodes[2].end;
    assert_eq!(end.control_stats().welcomes_stale, 1, "that of its former life");
    assert!(!end.is_welcome() && !end.wants_transmit() && !end.is_settled());
    assert!(mesh.nodes.iter().all(|node| node.log.is_empty()));
    let promises = end.promises().expect("driven");
    assert_eq!(promises.commit, promises.barrier, "it holds nobody up");
    // Its announcements ask for it, until it comes.
    let mut lost = 0;
    mesh.fate = Box::new(move |_, to, opcode| {
        lost += u32::from((to, opcode) == (2, Opcode::AnnounceAck));
        let is_lost = (to, opcode) == (2, Opcode::AnnounceAck) && lost < 4;
        if is_lost { Fate::Lose } else { Fate::Pass }
    });
    mesh.script.is_unwelcoming = false;
    mesh.run(50_000_000);
    assert!(mesh.nodes[2].end.is_welcome());
    assert!([0, 1, 2].iter().all(|at| mesh.nodes[*at].log.len() == 1));
    mesh.check_all();
}

#[test]
fn an_excluded_process_accounts_for_all_that_it_has_submitted() {
    let mut all = 0;
    for k in 0..30 {
        let mut mesh = Mesh::new(PROCESSES, |_| {});
        mesh.fate = Box::new(|from, to, opcode| {
            // What it sends to 2 does not arrive, so its scatterings stay open.
            let is_lost = (from, to) == (1, 2) && opcode == Opcode::ReliableData;
            if is_lost { Fate::Lose } else { Fate::Pass }
        });
        chatter(&mut mesh);
        mesh.run(k * 300);
        let ns = mesh.ns;
        mesh.script.freeze(1, 1, ns);
        mesh.run(k * 100);
        chatter(&mut mesh);
        for tag in 0..3u8 {
            let payload = [tag];
            let messages = [0, 2].map(|to| Message { to: ProcessId(to), payload: &payload });
            let _ = mesh.nodes[1].end.scatter(&messages);
        }
        mesh.run(20_000_000);
        assert!(mesh.nodes[1].excluded.is_some(), "{k}");
        mesh.check_all();
        let node = &mesh.nodes[1];
        assert_eq!(node.end.send_buffer_bytes(), 0, "{k}");
        let mut reported = node.failed.clone();
        reported.sort_by_key(|failed| (failed.service, failed.scattering, failed.index));
        let before = reported.len();
        reported.dedup_by_key(|failed| (failed.service, failed.scattering, failed.index));
        assert_eq!(reported.len(), before, "{k}: reported twice");
        for sent in mesh.sent.iter().filter(|sent| sent.from == 1 && sent.to.contains(&2)) {
            let of_it = |failed: &&SendFailed| {
                failed.scattering == sent.id && failed.service == Service::Reliable
            };
            let count = node.failed.iter().filter(of_it).count();
            assert_eq!(count, sent.to.len(), "{k}: {:?}", sent.tag);
            all += count;
        }
    }
    assert!(all > 0);
}

#[test]
fn an_excluded_process_recovers_and_delivers_what_the_others_have() {
    let mut open = 0;
    for k in 0..30 {
        let mut mesh = Mesh::new(PROCESSES, |_| {});
        chatter(&mut mesh);
        mesh.run(k * 300);
        // Its answers are lost, so that its siblings are taken back.
        let mut count = 0;
        mesh.fate = Box::new(move |from, _, opcode| {
            count += u64::from(from == 1 && opcode == Opcode::ReliableAck);
            let is_lost = from == 1 && opcode == Opcode::ReliableAck && count % 3 == k % 3;
            if is_lost { Fate::Lose } else { Fate::Pass }
        });
        chatter(&mut mesh);
        mesh.run(k * 100);
        let ns = mesh.ns;
        mesh.script.freeze(1, 1, ns);
        chatter(&mut mesh);
        mesh.settle(20_000_000);
        mesh.run(1_000_000);
        assert!(mesh.nodes[1].excluded.is_some() && mesh.nodes[1].recovered.is_some(), "{k}");
        assert_eq!(mesh.nodes[1].excluded, mesh.script.failed_at(1, 1));
        open += mesh.script.undeliverable.len();
        mesh.check_all();
        mesh.nodes[1].end.leave();
        mesh.run(1_000);
        assert!(mesh.nodes[1].end.has_left());
    }
    assert!(open > 0, "nothing was recorded");
}

#[test]
fn frames_go_by_the_controller_where_a_link_is_cut() {
    let mut mesh = Mesh::new(PROCESSES, |config| config.probes_max = 2);
    let is_cut = |from: usize, to: usize| (from, to) == (0, 1) || (from, to) == (1, 0);
    mesh.fate = Box::new(move |from, to, opcode| match is_cut(from, to) && !opcode.is_control() {
        true => Fate::Lose,
        false => Fate::Pass,
    });
    for _ in 0..10 {
        chatter(&mut mesh);
        mesh.run(50_000);
    }
    mesh.scatter(0, &[1, 2], 10_000);
    mesh.settle(2_000_000_000);
    mesh.check_all();
    assert_eq!(mesh.nodes[1].log.len(), 81);
    assert!(mesh.script.relayed > 0);
}

#[test]
fn a_receiver_that_is_full_holds_nobody_up_when_another_dies() {
    let mut mesh = Mesh::new(PROCESSES, |config| {
        config.receive_buffer_bytes_max = 1 << 20;
        config.message_len_max = 200_000;
    });
    mesh.nodes[2].is_lazy = true;
    for _ in 0..600 {
        mesh.scatter(0, &[2, 3], 900);
        mesh.scatter(1, &[2], 900);
    }
    mesh.scatter(0, &[0, 2, 3], 200_000);
    mesh.scatter(1, &[1, 2, 3], 200_000);
    mesh.run(2_000_000);
    mesh.kill(3);
    mesh.run(1_000_000);
    mesh.nodes[2].is_lazy = false;
    mesh.settle(200_000_000);
    mesh.check_all();
    for node in &mesh.nodes[..3] {
        assert_eq!(node.end.receive_buffer_bytes(), 0);
        assert_eq!(node.end.send_buffer_bytes(), 0);
    }
    // Windows and rooms are whole again.
    let before = [0, 1, 2].map(|at| mesh.nodes[at].log.len());
    for from in 0..3 {
        mesh.scatter(from, &[0, 1, 2], 200_000);
    }
    mesh.settle(200_000_000);
    mesh.check_all();
    assert!((0..3).all(|at| mesh.nodes[at].log.len() == before[at] + 3));
}

#[test]
fn a_large_message_of_a_failed_sender_stays_discarded_when_another_fails() {
    let mut mesh = Mesh::new(5, |config| {
        config.receive_buffer_bytes_max = 1 << 20;
        config.message_len_max = 200_000;
    });
    // It exceeds the window, arrives whole at 1, and is never acknowledged by 2.
    mesh.fate = Box::new(|from, _, opcode| match from == 2 && opcode == Opcode::ReliableAck {
        true => Fate::Lose,
        false => Fate::Pass,
    });
    mesh.scatter(0, &[1, 2], 200_000);
    mesh.run(3_000_000);
    assert!(mesh.nodes[1].end.pending() == 1);
    // The second dies while the first is not resolved.
    mesh.nodes[3].is_stuck = true;
    mesh.kill(0);
    mesh.run(200_000);
    mesh.kill(4);
    mesh.run(200_000);
    assert_eq!((mesh.nodes[1].told.len(), mesh.nodes[1].end.pending()), (2, 1));
    mesh.nodes[3].is_stuck = false;
    mesh.fate = Box::new(|_, _, _| Fate::Pass);
    mesh.settle(20_000_000);
    mesh.check_all();
    assert!(mesh.nodes[1].log.is_empty() && mesh.nodes[1].end.receive_buffer_bytes() == 0);
}

#[test]
fn waves_of_the_past_change_nothing() {
    let mut mesh = Mesh::new(PROCESSES, |_| {});
    chatter(&mut mesh);
    mesh.kill(1);
    mesh.settle(20_000_000);
    mesh.restart(1);
    mesh.settle(20_000_000);
    chatter(&mut mesh);
    mesh.settle(20_000_000);
    let told: Vec<_> = mesh.nodes.iter().map(|node| node.told.len()).collect();
    mesh.script.extra = mesh.script.history.clone();
    chatter(&mut mesh);
    mesh.settle(20_000_000);
    mesh.script.take_over(&[]);
    chatter(&mut mesh);
    mesh.run(100_000);
    mesh.kill(2);
    mesh.run(60_000);
    mesh.script.extra = mesh.script.history.clone();
    mesh.settle(20_000_000);
    mesh.check_all();
    for at in [0, 3] {
        assert_eq!(mesh.nodes[at].told.len(), told[at] + 1);
        assert!(mesh.nodes[at].excluded.is_none());
    }
    assert!(mesh.nodes[0].end.control_stats().waves_stale > 0);
}

#[test]
fn recalls_wait_for_a_callback_and_a_callback_for_nobody() {
    let mut mesh = Mesh::new(PROCESSES, |_| {});
    chatter(&mut mesh);
    mesh.settle(3_000_000);
    mesh.nodes[2].is_stuck = true;
    mesh.scatter(0, &ALL, 30);
    mesh.kill(3);
    mesh.run(3_000_000);
    let before: Vec<_> = mesh.nodes.iter().map(|node| node.end.commit_barrier()).collect();
    chatter(&mut mesh);
    mesh.run(1_000_000);
    let after: Vec<_> = mesh.nodes.iter().map(|node| node.end.commit_barrier()).collect();
    assert_eq!(before, after, "commits wait for the callback");
    mesh.nodes[2].is_stuck = false;
    mesh.settle(3_000_000);
    mesh.check_all();
}
