//! Failures of processes, after which all others agree on the outcome of their scatterings.

mod controller;
mod mesh;

use mesh::{LinkAction, Mesh};
use onepipe_base::{ProcessId, Psn};
use onepipe_endpoint::{Message, SendFailed, Service};
use onepipe_wire::Opcode;

const PROCESSES: u32 = 4;
const ALL: [u32; 4] = [0, 1, 2, 3];

/// Scatters from every process to every process, twice.
fn scatter_to_all(mesh: &mut Mesh) {
    for from in 0..mesh.nodes.len() {
        if !mesh.nodes[from].is_dead {
            mesh.scatter(from, &ALL, 40);
            mesh.scatter(from, &ALL, 600);
        }
    }
}

//= spec/failure.md#R10
#[test]
fn sender_death_at_any_frame_is_atomic() {
    let (mut some, mut none) = (0, 0);
    for k in 0..40 {
        let mut mesh = Mesh::new(PROCESSES, |_| {});
        scatter_to_all(&mut mesh);
        mesh.run_until_idle(3_000_000);
        // One fragmented message, one that is not.
        mesh.scatter(0, &[1, 2, 3], 3_000);
        mesh.scatter(0, &ALL, 50);
        mesh.nodes[0].crashes_after = Some(k);
        mesh.run(10_000);
        scatter_to_all(&mut mesh);
        mesh.run_until_idle(20_000_000);
        mesh.check_all();
        let has = mesh.nodes[1].log.iter().filter(|seen| seen.tag == 8).count();
        (some, none) = (some + has, none + 1 - has);
        for node in mesh.nodes.iter().filter(|node| !node.is_dead) {
            assert_eq!(node.reported.len(), usize::from(mesh.nodes[0].is_dead), "at frame {k}");
            assert_eq!(node.end.receive_buffer_bytes(), 0);
            assert_eq!(node.end.send_buffer_bytes(), 0);
        }
    }
    assert!(some > 0 && none > 0, "{some} delivered, {none} not");
}

//= spec/failure.md#R10
//= spec/failure.md#R35
#[test]
fn receiver_death_is_atomic_for_siblings() {
    let mut recalled = 0;
    for k in 0..16 {
        let mut mesh = Mesh::new(PROCESSES, |_| {});
        scatter_to_all(&mut mesh);
        mesh.run_until_idle(3_000_000);
        mesh.nodes[3].crashes_after = Some(k);
        for _ in 0..4 {
            mesh.scatter(0, &ALL, 50);
            mesh.scatter(1, &[1, 2, 3], 2_000);
            mesh.run(1_000);
        }
        mesh.run_until_idle(20_000_000);
        mesh.check_all();
        recalled += mesh.nodes[0].end.stats().messages_recalled;
        recalled += mesh.nodes[1].end.stats().messages_recalled;
    }
    assert!(recalled > 0);
}

#[test]
fn overlapping_failures_are_resolved() {
    for gap_ns in (0..120_000).step_by(4_000) {
        let mut mesh = Mesh::new(5, |_| {});
        scatter_to_all(&mut mesh);
        mesh.run(2_000);
        mesh.kill(0);
        scatter_to_all(&mut mesh);
        mesh.run(gap_ns);
        mesh.kill(4);
        scatter_to_all(&mut mesh);
        mesh.run_until_idle(20_000_000);
        mesh.check_all();
        for node in &mesh.nodes[1..4] {
            assert_eq!(node.reported.len(), 2, "after {gap_ns} ns");
        }
    }
}

/// A random number generator.
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

/// Drops, duplicates and delays a part of all frames, those of the controller included.
fn lossy(seed: u64) -> impl FnMut(usize, usize, Opcode) -> LinkAction {
    let mut rng = Rng(seed * 2 + 1);
    move |_, _, _| match rng.below(100) {
        0..=9 => LinkAction::Drop,
        10..=19 => LinkAction::Duplicate,
        20..=24 => LinkAction::Delay(rng.below(100_000)),
        _ => LinkAction::Pass,
    }
}

#[test]
fn failures_under_loss_duplication_and_delay() {
    for seed in 1..=40u64 {
        let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut mesh = Mesh::new(5, |config| {
            config.receive_buffer_bytes_max = 1 << 20;
            config.message_len_max = 200_000;
        });
        mesh.controller.is_unicast_only = seed % 3 == 0;
        mesh.policy = Box::new(lossy(seed));
        let deaths = 1 + rng.below(2);
        for round in 0..40 {
            for from in 0..5 {
                if rng.below(3) > 0 || mesh.nodes[from].is_dead {
                    continue;
                }
                let to: Vec<u32> = (0..5).filter(|_| rng.below(3) > 0).collect();
                let bytes = [20, 300, 3_000, 40_000][rng.below(4) as usize];
                if !to.is_empty() {
                    mesh.scatter(from, &to, bytes);
                }
            }
            if round == 10 || (round == 12 && deaths == 2) {
                let victim = rng.below(5) as usize;
                mesh.nodes[victim].crashes_after = Some(rng.below(200) as u32);
            }
            mesh.nodes[2].is_callback_stalled = (12..25).contains(&round);
            mesh.nodes[3].is_stalled = (5..30).contains(&round);
            if round == 20 && seed % 4 == 0 {
                let live: Vec<_> = (0..5).filter(|at| !mesh.nodes[*at].is_dead).collect();
                let live: Vec<_> = live.into_iter().map(|at| (at, 1, 0)).collect();
                mesh.controller.take_over(&live);
            }
            mesh.run(rng.below(30_000));
        }
        mesh.nodes.iter_mut().for_each(|node| node.crashes_after = None);
        mesh.run_until_idle(2_000_000_000);
        mesh.check_all();
    }
}

#[test]
fn restarted_process_rejoins() {
    for pause_ns in [0, 10_000, 50_000, 1_000_000] {
        let mut mesh = Mesh::new(PROCESSES, |_| {});
        scatter_to_all(&mut mesh);
        mesh.run(3_000);
        mesh.kill(2);
        scatter_to_all(&mut mesh);
        mesh.run(pause_ns);
        mesh.restart(2);
        mesh.run_until_idle(20_000_000);
        mesh.check_all();
        // The restarted process sends nothing; the others must find it by their links and Connects.
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
        mesh.run_until_idle(20_000_000);
        let last = |at: usize| mesh.nodes[at].log.len() - before[at];
        assert!((0..4).all(|at| last(at) >= 2 && last(at) == last(0)), "after {pause_ns}");
        mesh.check_all();
    }
}

#[test]
fn sends_to_an_unused_failed_process_fail() {
    let mut mesh = Mesh::new(PROCESSES, |_| {});
    mesh.kill(3);
    mesh.run_until_idle(20_000_000);
    mesh.scatter(0, &[1, 3], 30);
    mesh.scatter(0, &[1, 2], 30);
    mesh.run_until_idle(20_000_000);
    mesh.check_all();
    assert_eq!((mesh.nodes[0].failed.len(), mesh.nodes[1].log.len()), (2, 1));
    mesh.restart(3);
    mesh.run(200_000);
    for _ in 0..100 {
        mesh.scatter(0, &[1, 3], 30);
        mesh.run(1_000_000);
    }
    assert!(!mesh.nodes[3].log.is_empty(), "the new incarnation is found");
}

//= spec/failure.md#R43
#[test]
fn refused_scatterings_take_no_timestamp() {
    let mut mesh = Mesh::new(PROCESSES, |_| {});
    mesh.kill(3);
    mesh.run_until_idle(20_000_000);
    // The first scattering finds that the process is not back.
    mesh.scatter(0, &[1, 3], 30);
    mesh.run_until_idle(20_000_000);
    let promised = |mesh: &Mesh| mesh.nodes[0].end.promises().expect("driven").barrier;
    // As fast as an application can: timestamps must not run ahead of the clock.
    for _ in 0..1_000 {
        mesh.scatter(0, &[1, 3], 30);
    }
    let before = promised(&mesh);
    mesh.run(500);
    assert_eq!(mesh.nodes[0].failed.len(), 2 * mesh.sent.len());
    assert_eq!(promised(&mesh).as_ns() - before.as_ns(), 500);
    assert_eq!(mesh.nodes[0].end.send_buffer_bytes(), 0);
    mesh.run_until_idle(20_000_000);
}

//= spec/failure.md#R43
#[test]
fn scattering_waits_for_a_process_that_restarts() {
    const REJOIN_WAIT_NS: u64 = 100_000_000;
    let mut mesh = Mesh::new(PROCESSES, |config| config.rejoin_wait_ns = REJOIN_WAIT_NS);
    scatter_to_all(&mut mesh);
    mesh.run_until_idle(20_000_000);
    mesh.kill(3);
    mesh.run_until_idle(20_000_000);
    let before = mesh.nodes[0].failed.len();
    mesh.scatter(0, &[1, 3], 30);
    mesh.run(REJOIN_WAIT_NS / 2);
    mesh.restart(3);
    mesh.run(REJOIN_WAIT_NS);
    mesh.check_all();
    assert_eq!((mesh.nodes[0].failed.len() - before, mesh.nodes[3].log.len()), (0, 1));
    // One that does not come back.
    mesh.kill(3);
    mesh.run_until_idle(20_000_000);
    mesh.scatter(0, &[1, 3], 30);
    mesh.run(REJOIN_WAIT_NS / 2);
    assert_eq!(mesh.nodes[0].failed.len(), before);
    mesh.run(REJOIN_WAIT_NS);
    assert_eq!(mesh.nodes[0].failed.len(), before + 2);
}

//= spec/failure.md#R43
#[test]
fn first_scattering_to_a_rejoined_process_arrives() {
    for was_written_to in [false, true] {
        let mut mesh = Mesh::new(PROCESSES, |_| {});
        if was_written_to {
            scatter_to_all(&mut mesh);
            mesh.run_until_idle(20_000_000);
        }
        mesh.kill(3);
        mesh.run_until_idle(20_000_000);
        mesh.restart(3);
        mesh.run(200_000);
        mesh.scatter(0, &[1, 3], 30);
        mesh.run_until_idle(20_000_000);
        mesh.check_all();
        assert_eq!((mesh.nodes[0].failed.len(), mesh.nodes[3].log.len()), (0, 1));
        // A dead process is probed only once in a while; other scatterings to it fail at once.
        mesh.kill(3);
        mesh.run_until_idle(20_000_000);
        mesh.scatter(0, &[1, 3], 30);
        mesh.run_until_idle(20_000_000);
        assert_eq!(mesh.nodes[0].failed.len(), 2);
        mesh.scatter(0, &[1, 3], 30);
        mesh.run(500);
        assert_eq!(mesh.nodes[0].failed.len(), 4, "at once");
        // The process restarts much later, after a time without scatterings to it.
        mesh.run(20_000_000);
        mesh.restart(3);
        mesh.run(200_000);
        mesh.scatter(0, &[1, 3], 30);
        mesh.run_until_idle(20_000_000);
        assert_eq!((mesh.nodes[0].failed.len(), mesh.nodes[3].log.len()), (4, 1));
        mesh.check_all();
    }
}

//= spec/failure.md#R6
//= spec/ordering.md#R3
#[test]
fn reliable_scatterings_wait_for_registration() {
    let mut mesh = Mesh::new(PROCESSES, |_| {});
    assert!(mesh.nodes.iter().all(|node| node.end.is_registered()));
    mesh.controller.withholds_announce_acks = true;
    mesh.restart(2);
    mesh.run_until_idle(20_000_000);
    let stale = mesh.controller.frame(Opcode::AnnounceAck, 2, Psn(1), &[]);
    mesh.controller.extra.push((2, stale));
    mesh.scatter(2, &[0, 1, 2], 30);
    mesh.run(20_000_000);
    let end = &mesh.nodes[2].end;
    assert_eq!(
        end.control_stats().announce_acks_stale,
        1,
        "an AnnounceAck for its previous incarnation"
    );
    assert!(!end.is_registered() && !end.wants_transmit() && !end.is_drained());
    assert!(mesh.nodes.iter().all(|node| node.log.is_empty()));
    let promises = end.promises().expect("driven");
    assert_eq!(promises.commit, promises.barrier, "its promise does not stall");
    // Its announcements request the registration until it arrives.
    let mut lost = 0;
    mesh.policy = Box::new(move |_, to, opcode| {
        lost += u32::from((to, opcode) == (2, Opcode::AnnounceAck));
        let is_lost = (to, opcode) == (2, Opcode::AnnounceAck) && lost < 4;
        if is_lost { LinkAction::Drop } else { LinkAction::Pass }
    });
    mesh.controller.withholds_announce_acks = false;
    mesh.run(50_000_000);
    assert!(mesh.nodes[2].end.is_registered());
    assert!([0, 1, 2].iter().all(|at| mesh.nodes[*at].log.len() == 1));
    mesh.check_all();
}

//= spec/failure.md#R32
#[test]
fn excluded_process_reports_every_submission() {
    let mut all = 0;
    for k in 0..30 {
        let mut mesh = Mesh::new(PROCESSES, |_| {});
        mesh.policy = Box::new(|from, to, opcode| {
            // Frames from 1 to 2 are lost, so that the scatterings of 1 stay open.
            let is_lost = (from, to) == (1, 2) && opcode == Opcode::ReliableData;
            if is_lost { LinkAction::Drop } else { LinkAction::Pass }
        });
        scatter_to_all(&mut mesh);
        mesh.run(k * 300);
        let ns = mesh.ns;
        mesh.controller.freeze(1, 1, ns);
        mesh.run(k * 100);
        scatter_to_all(&mut mesh);
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

//= spec/failure.md#R33
#[test]
fn excluded_process_recovers_what_others_delivered() {
    let mut open = 0;
    for k in 0..30 {
        let mut mesh = Mesh::new(PROCESSES, |_| {});
        scatter_to_all(&mut mesh);
        mesh.run(k * 300);
        // Acknowledgements of 1 are lost, so that scatterings are recalled.
        let mut count = 0;
        mesh.policy = Box::new(move |from, _, opcode| {
            count += u64::from(from == 1 && opcode == Opcode::ReliableAck);
            let is_lost = from == 1 && opcode == Opcode::ReliableAck && count % 3 == k % 3;
            if is_lost { LinkAction::Drop } else { LinkAction::Pass }
        });
        scatter_to_all(&mut mesh);
        mesh.run(k * 100);
        let ns = mesh.ns;
        mesh.controller.freeze(1, 1, ns);
        scatter_to_all(&mut mesh);
        mesh.run_until_idle(20_000_000);
        mesh.run(1_000_000);
        assert!(mesh.nodes[1].excluded.is_some() && mesh.nodes[1].recovered.is_some(), "{k}");
        assert_eq!(mesh.nodes[1].excluded, mesh.controller.failed_at(1, 1));
        open += mesh.controller.undeliverable.len();
        mesh.check_all();
        mesh.nodes[1].end.leave();
        mesh.run(1_000);
        assert!(mesh.nodes[1].end.has_left());
    }
    assert!(open > 0, "nothing was recorded");
}

//= spec/failure.md#R29
#[test]
fn frames_are_relayed_around_a_cut_link() {
    let mut mesh = Mesh::new(PROCESSES, |config| config.probes_max = 2);
    let is_cut = |from: usize, to: usize| (from, to) == (0, 1) || (from, to) == (1, 0);
    mesh.policy =
        Box::new(move |from, to, opcode| match is_cut(from, to) && !opcode.is_control() {
            true => LinkAction::Drop,
            false => LinkAction::Pass,
        });
    for _ in 0..10 {
        scatter_to_all(&mut mesh);
        mesh.run(50_000);
    }
    mesh.scatter(0, &[1, 2], 10_000);
    mesh.run_until_idle(2_000_000_000);
    mesh.check_all();
    assert_eq!(mesh.nodes[1].log.len(), 81);
    assert!(mesh.controller.relayed > 0);
}

#[test]
fn full_receiver_does_not_block_failure_handling() {
    let mut mesh = Mesh::new(PROCESSES, |config| {
        config.receive_buffer_bytes_max = 1 << 20;
        config.message_len_max = 200_000;
    });
    mesh.nodes[2].is_stalled = true;
    for _ in 0..600 {
        mesh.scatter(0, &[2, 3], 900);
        mesh.scatter(1, &[2], 900);
    }
    mesh.scatter(0, &[0, 2, 3], 200_000);
    mesh.scatter(1, &[1, 2, 3], 200_000);
    mesh.run(2_000_000);
    mesh.kill(3);
    mesh.run(1_000_000);
    mesh.nodes[2].is_stalled = false;
    mesh.run_until_idle(200_000_000);
    mesh.check_all();
    for node in &mesh.nodes[..3] {
        assert_eq!(node.end.receive_buffer_bytes(), 0);
        assert_eq!(node.end.send_buffer_bytes(), 0);
    }
    // Windows and reservations are fully available again.
    let before = [0, 1, 2].map(|at| mesh.nodes[at].log.len());
    for from in 0..3 {
        mesh.scatter(from, &[0, 1, 2], 200_000);
    }
    mesh.run_until_idle(200_000_000);
    mesh.check_all();
    assert!((0..3).all(|at| mesh.nodes[at].log.len() == before[at] + 3));
}

#[test]
fn discards_survive_a_second_failure() {
    let mut mesh = Mesh::new(5, |config| {
        config.receive_buffer_bytes_max = 1 << 20;
        config.message_len_max = 200_000;
    });
    // The message exceeds the window, is complete at 1, and is never acknowledged by 2.
    mesh.policy = Box::new(|from, _, opcode| match from == 2 && opcode == Opcode::ReliableAck {
        true => LinkAction::Drop,
        false => LinkAction::Pass,
    });
    mesh.scatter(0, &[1, 2], 200_000);
    mesh.run(3_000_000);
    assert!(mesh.nodes[1].end.pending() == 1);
    // The second process dies before the first failure is resolved.
    mesh.nodes[3].is_callback_stalled = true;
    mesh.kill(0);
    mesh.run(200_000);
    mesh.kill(4);
    mesh.run(200_000);
    assert_eq!((mesh.nodes[1].reported.len(), mesh.nodes[1].end.pending()), (2, 1));
    mesh.nodes[3].is_callback_stalled = false;
    mesh.policy = Box::new(|_, _, _| LinkAction::Pass);
    mesh.run_until_idle(20_000_000);
    mesh.check_all();
    assert!(mesh.nodes[1].log.is_empty() && mesh.nodes[1].end.receive_buffer_bytes() == 0);
}

#[test]
fn stale_floods_are_ignored() {
    let mut mesh = Mesh::new(PROCESSES, |_| {});
    scatter_to_all(&mut mesh);
    mesh.kill(1);
    mesh.run_until_idle(20_000_000);
    mesh.restart(1);
    mesh.run_until_idle(20_000_000);
    scatter_to_all(&mut mesh);
    mesh.run_until_idle(20_000_000);
    let reported: Vec<_> = mesh.nodes.iter().map(|node| node.reported.len()).collect();
    mesh.controller.extra = mesh.controller.history.clone();
    scatter_to_all(&mut mesh);
    mesh.run_until_idle(20_000_000);
    mesh.controller.take_over(&[]);
    scatter_to_all(&mut mesh);
    mesh.run(100_000);
    mesh.kill(2);
    mesh.run(60_000);
    mesh.controller.extra = mesh.controller.history.clone();
    mesh.run_until_idle(20_000_000);
    mesh.check_all();
    for at in [0, 3] {
        assert_eq!(mesh.nodes[at].reported.len(), reported[at] + 1);
        assert!(mesh.nodes[at].excluded.is_none());
    }
    assert!(mesh.nodes[0].end.control_stats().floods_stale > 0);
}

//= spec/failure.md#R25
#[test]
fn commits_wait_for_failure_callbacks() {
    let mut mesh = Mesh::new(PROCESSES, |_| {});
    scatter_to_all(&mut mesh);
    mesh.run_until_idle(3_000_000);
    mesh.nodes[2].is_callback_stalled = true;
    mesh.scatter(0, &ALL, 30);
    mesh.kill(3);
    mesh.run(3_000_000);
    let before: Vec<_> = mesh.nodes.iter().map(|node| node.end.commit_barrier()).collect();
    scatter_to_all(&mut mesh);
    mesh.run(1_000_000);
    let after: Vec<_> = mesh.nodes.iter().map(|node| node.end.commit_barrier()).collect();
    assert_eq!(before, after, "commits wait for the callback");
    mesh.nodes[2].is_callback_stalled = false;
    mesh.run_until_idle(3_000_000);
    mesh.check_all();
}
