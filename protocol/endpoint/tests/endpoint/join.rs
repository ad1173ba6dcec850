//! A joining process whose promise is below the commit barriers that others have received.

use crate::harness;

use harness::{Harness, ORIGIN_NS, TestFrame, connect, data};
use onepipe_base::Timestamp;
use onepipe_wire::Opcode;

fn reliable(opcode: Opcode, frame: TestFrame) -> TestFrame {
    TestFrame { opcode, ..frame }
}

//= spec/failure.md#R5
#[test]
fn rejects_reliable_message_below_its_commit_promise() {
    let mut harness = Harness::new(|_| {});
    harness.receive(1, 1, &reliable(Opcode::ReliableConnect, connect(0, 0, 0)));
    let at = |ns| Timestamp::from_ns(ORIGIN_NS + 1_000_000 + ns);
    let first = reliable(Opcode::ReliableData, data(0, b"in time"));
    harness.receive_at(1, 1, &first, at(100), at(100));
    // The frame that promised 300 first was lost on the last link.
    let second = reliable(Opcode::ReliableData, data(1, b"not committed"));
    harness.receive_at(1, 1, &second, at(200), at(300));
    assert_eq!(harness.end.stats().packets_late, 1);
    assert_eq!(
        harness.take_sent(Opcode::ReliableNak, 1).len(),
        1,
        "its sender recalls the scattering"
    );
    assert_eq!(harness.end.pending(), 1);
}
