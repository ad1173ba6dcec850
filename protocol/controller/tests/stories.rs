//! What happens, told one failure at a time.

mod fabric;

use fabric::{Fabric, process, switch};
use onepipe_controller::Event;

const MS: u64 = 1_000_000;

fn settled(mut fabric: Fabric) -> Fabric {
    fabric.run(fabric.now + MS);
    fabric.campaign(0);
    fabric.run(fabric.now + MS);
    fabric.check_liveness().expect("nothing has happened");
    assert!(fabric.decided.is_empty(), "{:?}", fabric.decided);
    fabric
}

fn healthy(fabric: &Fabric) {
    fabric.check_safety().expect("safe");
    fabric.check_liveness().expect("alive");
}

#[test]
fn a_process_dies() {
    for flat in [false, true] {
        let mut fabric = Fabric::leaf_spine(3, 2, 3, 1);
        fabric.flat = flat;
        fabric.start_replica(0);
        let mut fabric = settled(fabric);
        let victim = fabric.find(process(5));
        let life = fabric.nodes[victim].life();
        fabric.kill(victim);
        fabric.run(fabric.now + 2 * MS);
        assert_eq!(fabric.decided.keys().copied().collect::<Vec<_>>(), [life]);
        healthy(&fabric);
    }
}

#[test]
fn a_leaf_dies_and_all_below_it() {
    for flat in [false, true] {
        let mut fabric = Fabric::leaf_spine(4, 2, 3, 2);
        fabric.flat = flat;
        fabric.start_replica(0);
        let mut fabric = settled(fabric);
        let leaf = fabric.find(switch(2));
        fabric.kill(leaf);
        fabric.run(fabric.now + 3 * MS);
        assert_eq!(fabric.decided.len(), 3);
        let failed = |event: &&Event| matches!(event, Event::Failed { .. });
        assert_eq!(fabric.events.iter().filter(failed).count(), 4);
        for number in [6, 7, 8] {
            let node = fabric.find(process(number));
            fabric.kill(node);
        }
        healthy(&fabric);
    }
}

#[test]
fn a_process_of_a_mesh_dies() {
    for flat in [false, true] {
        let mut fabric = Fabric::mesh(4, 3);
        fabric.flat = flat;
        fabric.start_replica(0);
        let mut fabric = settled(fabric);
        let life = fabric.nodes[2].life();
        fabric.kill(2);
        fabric.run(fabric.now + 2 * MS);
        assert_eq!(fabric.decided.keys().copied().collect::<Vec<_>>(), [life]);
        healthy(&fabric);
    }
}
