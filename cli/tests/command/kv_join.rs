//! A store whose replicas are programs of their own, which replace each other.

use redis::Commands;

use crate::kv_program::KvProgram;
use crate::program::{unique, wait_until};

const KEYS: [&str; 4] = ["a", "b", "c", "d"];

/// Every replica is killed and started again without its state, one after the other: no value is
/// lost, as each takes over the state of another one.
#[test]
fn programs_replace_each_other() {
    let fabric = unique("kv-join");
    let start = |process| KvProgram::start(process, &["--fabric", &fabric]);
    let mut programs: Vec<KvProgram> = (0..KvProgram::COUNT).map(start).collect();
    for round in 0..KvProgram::COUNT {
        let writer = &programs[(round + 1) % KvProgram::COUNT];
        let () = writer.connect().mset(&KEYS.map(|key| (key, round))).expect("the store goes on");
        programs[round].kill();
        programs[round].wait();
        programs[round] = start(round);
        wait_until("it catches up", || programs[round].has_caught_up());
    }
    for program in &programs {
        let read: Vec<Option<usize>> =
            program.connect().mget(&KEYS).expect("a replica of each shard is up");
        assert_eq!(read, [Some(KvProgram::COUNT - 1); 4]);
    }
}
