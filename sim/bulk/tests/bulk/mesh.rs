//! Full mesh of members, compared with the paper's formulas.

use onepipe_bulk::{Algorithm, Plain};
use onepipe_sim_bulk::{Flow, Mesh};

const BLOCK: u32 = 1 << 14;
const HALF_RATE: u64 = 50_000_000_000;

/// Returns the length of `count` blocks in bytes.
fn blocks(count: usize) -> usize {
    count * BLOCK as usize
}

/// Returns a mesh with links that are short compared to a block, as with blocks of 1 MiB.
fn mesh(members: usize, count: usize) -> Mesh {
    Mesh { latency_ns: 50, ..Mesh::new(members, blocks(count), BLOCK) }
}

/// Returns the duration of a transfer in block times.
fn steps(mesh: &Mesh) -> f64 {
    mesh.run().last_ns as f64 / mesh.block_ns()
}

#[test]
fn pipeline_takes_its_steps_and_tree_far_longer() {
    for (plain, steps_of, most) in [
        (Plain::Pipeline, 64.0 + 3.0 - 1.0, 1.10),
        (Plain::Chain, 64.0 + 8.0 - 2.0, 1.12),
        (Plain::Tree, 64.0 * 3.0, 1.05),
        (Plain::Sequential, 64.0 * 7.0, 1.05),
    ] {
        let algorithm = Algorithm::Plain(plain);
        let found = steps(&Mesh { algorithm, ..mesh(8, 64) }) / steps_of;
        assert!((0.99..most).contains(&found), "{plain:?}: {found}");
    }
}

#[test]
fn mean_slack_is_about_two_steps() {
    // The formula for strict steps is 2(1 - (l-1)/(n-2)). Separate queues let members run ahead.
    for n in [8, 32] {
        let even = mesh(n, 128);
        let strict = 2.0 * (1.0 - f64::from(n.ilog2() - 1) / (n as f64 - 2.0));
        let found = even.run().slack(even.block_ns());
        assert!((strict..strict + 1.0).contains(&found), "{n}: {found}, {strict} by the formula");
    }
}

#[test]
fn slow_link_costs_pipeline_little_and_chain_half() {
    let slow = Some((0, 1, HALF_RATE));
    let rate_share = |mesh: Mesh| steps(&mesh) / steps(&Mesh { slow, ..mesh.clone() });
    let even = mesh(64, 128);
    let chain = Mesh { algorithm: Algorithm::Plain(Plain::Chain), ..mesh(8, 128) };
    let (pipeline, chain) = (rate_share(even), rate_share(chain));
    assert!(pipeline > 0.95, "{pipeline}");
    assert!((0.45..0.55).contains(&chain), "{chain}");
}

#[test]
fn stalled_member_is_awaited_and_runs_repeat() {
    let calm = mesh(4, 64);
    let even = calm.run();
    assert_eq!(even, calm.run());
    let whole = |flow: &Flow| flow.hops[3].iter().all(|hop| hop.complete_ns >= hop.sent_ns);
    assert!(whole(&even) && even.hops[0].iter().all(|hop| hop.complete_ns == 0));
    let stalled = Mesh { stall: Some((1, 30_000, 20_000)), ..calm }.run();
    let more = stalled.last_ns - even.last_ns;
    assert!((2_000..25_000).contains(&more), "{more} ns more");
}

#[test]
fn several_senders_share_links() {
    let mesh = Mesh { senders: 4, ..mesh(4, 64) };
    // Four objects, each to three members, over four links.
    let found = steps(&mesh) / (4.0 * 64.0 * 3.0 / 4.0);
    assert!((1.0..1.15).contains(&found), "{found}");
    let small = Mesh { objects: 20, senders: 2, ..Mesh::new(5, 1, BLOCK) };
    assert!(small.run().last_ns > 0);
}

#[test]
fn strict_steps_wait_for_a_slow_link_as_the_formula_says() {
    // The slow link is used in every third step of 8 members, and its block then takes twice as
    // long: 3/4 is left, and more as a step is longer than its block (latencies, control frames).
    let mesh = Mesh { has_strict_steps: true, ..mesh(8, 256) };
    let slow = Mesh { slow: Some((0, 1, HALF_RATE)), ..mesh.clone() };
    let ratio = steps(&mesh) / steps(&slow);
    assert!((0.74..0.79).contains(&ratio), "{ratio}");
    let free = |mesh: &Mesh| steps(&Mesh { has_strict_steps: false, ..mesh.clone() });
    let ratio = free(&mesh) / free(&slow);
    assert!(ratio > 0.95, "without steps only some members wait: {ratio}");
}
