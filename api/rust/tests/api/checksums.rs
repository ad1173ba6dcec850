//! Checksums in shared memory: the first process of a fabric decides.

use crate::harness;

use harness::{DEADLINE, fabric, message, process, to};

#[test]
fn fabric_delivers_with_and_without_checksums() {
    for has_checksums in [false, true] {
        let fabric = fabric(if has_checksums { "summed" } else { "unsummed" });
        let mut one = process(&fabric, 0).checksums(has_checksums).join().expect("free");
        // The setting of the second process has no effect.
        let mut other = process(&fabric, 1).checksums(false).join().expect("free");
        assert!(one.wait_for_peers(1, DEADLINE) && other.wait_for_peers(1, DEADLINE));
        one.scatter(&[to(1, b"there")]).expect("there is capacity");
        assert_eq!(message(&mut other).payload, b"there");
        other.scatter(&[to(0, b"back")]).expect("there is capacity");
        assert_eq!(message(&mut one).payload, b"back");
    }
}

#[test]
fn tuned_endpoint_keeps_the_checksums_of_its_fabric() {
    let fabric = fabric("tuned");
    let mut one = process(&fabric, 0).join().expect("free");
    let tuned = process(&fabric, 1).tune(|config| config.has_checksums = true);
    let mut other = tuned.join().expect("free");
    assert!(one.wait_for_peers(1, DEADLINE));
    one.scatter(&[to(1, b"there")]).expect("there is capacity");
    assert_eq!(message(&mut other).payload, b"there");
}
