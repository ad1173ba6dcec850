//! A newcomer's promise lies below what others were told before it came.

mod rig;

use onepipe_base::Timestamp;
use onepipe_wire::Opcode;
use rig::{ORIGIN_NS, Rig, What, connect, data};

fn reliable(opcode: Opcode, what: What) -> What {
    What { opcode, ..what }
}

#[test]
fn a_reliable_message_below_the_commits_told_with_it_is_refused() {
    let mut rig = Rig::new(|_| {});
    rig.hear(1, 1, &reliable(Opcode::ReliableConnect, connect(0, 0, 0)));
    let at = |ns| Timestamp::from_ns(ORIGIN_NS + 1_000_000 + ns);
    let first = reliable(Opcode::ReliableData, data(0, b"in time"));
    rig.hear_at(1, 1, &first, at(100), at(100));
    // The frame that said 300 first was lost on the last link.
    let second = reliable(Opcode::ReliableData, data(1, b"not committed"));
    rig.hear_at(1, 1, &second, at(200), at(300));
    assert_eq!(rig.end.stats().packets_late, 1);
    assert_eq!(rig.take_sent(Opcode::ReliableNak, 1).len(), 1, "its sender takes it back");
    assert_eq!(rig.end.pending(), 1);
}
