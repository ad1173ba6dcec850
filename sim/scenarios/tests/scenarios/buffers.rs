//! Scenarios of slow readers and full buffers.

use crate::fixture;

use fixture::{end, plan};
use onepipe_endpoint::SendError;
use onepipe_sim_scenarios::Fabric;

/// Returns a fabric without load and with small buffers.
fn narrow(shape: &str, seed: u64) -> Fabric {
    let mut plan = plan(shape, 1, seed);
    plan.load = None;
    plan.endpoint.receive_buffer_bytes_max = 1 << 20;
    plan.endpoint.message_len_max = 1 << 18;
    plan.endpoint.send_buffer_bytes_max = 1 << 19;
    let mut fabric = Fabric::new(plan);
    fabric.run_us(100);
    fabric
}

#[test]
fn slow_reader_closes_its_window_without_loss() {
    let mut fabric = narrow("star:3", 1);
    fabric.set_slow(2, true);
    let mut accepted = 0;
    for _ in 0..300 {
        let results = [fabric.scatter(0, &[(2, 10_000)]), fabric.scatter(1, &[(2, 10_000)])];
        for result in results.into_iter().flatten() {
            match result {
                Ok(_) => accepted += 1,
                Err(SendError::BufferFull { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
        fabric.run_us(20);
    }
    let delivered = fabric.report().messages.delivered;
    assert!(delivered < accepted, "the window never closed");
    fabric.run_us(500);
    assert_eq!(fabric.report().messages.delivered, delivered, "the window is closed");
    let report = end(fabric);
    assert_eq!((report.messages.lost, report.messages.unknown), (0, 0));
    assert!(report.receive_buffer_bytes > 1 << 18, "{}", report.receive_buffer_bytes);
}

#[test]
fn large_and_small_scatterings_share_a_window() {
    let mut fabric = narrow("star:4", 2);
    for round in 0..40 {
        // Wide scatterings collect credit of three receivers while narrow ones overtake them.
        fabric.scatter(0, &[(1, 100_000), (2, 100_000), (3, 100_000)]);
        for to in 1..4 {
            fabric.scatter(0, &[(to, 50 + round)]);
        }
        fabric.run_us(10);
    }
    end(fabric);
}

#[test]
fn sixteen_mebibytes_arrive_whole() {
    let mut plan = plan("star:3", 1, 3);
    plan.load = None;
    let mut fabric = Fabric::new(plan);
    fabric.run_us(100);
    let bytes = 16 << 20;
    fabric.scatter(0, &[(1, bytes), (2, 8)]).expect("runs").expect("it fits");
    fabric.scatter(2, &[(1, 64)]).expect("runs").expect("it fits");
    assert!(fabric.drain_us(10_000));
    assert_eq!(fabric.report().messages.delivered, 3);
    end(fabric);
}
