//! The crate `redis`: both protocols, pipelines and transactions.

use std::sync::Arc;

use onepipe_kv_server::front::{Front, FrontOptions};
use redis::{Commands, Connection, pipe};

use crate::memory::{Memory, Threaded, start, start_with};

fn connect(front: &Front, options: &str) -> Connection {
    let url = format!("redis://{}/{options}", front.local_addr());
    let client = redis::Client::open(url).expect("the address is valid");
    client.get_connection().expect("the front accepts")
}

fn use_commands(connection: &mut Connection) {
    let _: () = connection.set("a", "1").expect("a reply");
    let value: i64 = connection.incr("a", 41).expect("a reply");
    assert_eq!(value, 42);
    let missing: Option<String> = connection.get("nothing").expect("a reply");
    assert_eq!(missing, None);
    let _: () = connection.hset_multiple("h", &[("x", 1), ("y", 2)]).expect("a reply");
    let map: std::collections::BTreeMap<String, i64> = connection.hgetall("h").expect("a reply");
    assert_eq!(map, [("x".into(), 1), ("y".into(), 2)].into());
    let _: i64 = connection.zadd("z", "m", 2.5).expect("a reply");
    let scores: Vec<(String, f64)> = connection.zrange_withscores("z", 0, -1).expect("a reply");
    assert_eq!(scores, [("m".into(), 2.5)]);
    let error = connection.lpush::<_, _, i64>("a", 1).expect_err("it is not a list");
    assert_eq!(error.code(), Some("WRONGTYPE"));
    let (one, two): (i64, i64) =
        pipe().set("p", 7).ignore().get("p").incr("p", 1).query(connection).expect("replies");
    assert_eq!((one, two), (7, 8));
    let (one, two): (i64, i64) =
        pipe().atomic().incr("t1", 1).incr("t2", 2).query(connection).expect("replies");
    assert_eq!((one, two), (1, 2));
    let _: () = redis::cmd("FLUSHALL").query(connection).expect("a reply");
}

#[test]
fn rust_client_works_with_both_protocols() {
    for backend in [true, false] {
        let front = match backend {
            true => start(),
            false => start_with(Arc::new(Threaded::start()), FrontOptions::default()),
        };
        use_commands(&mut connect(&front, ""));
        use_commands(&mut connect(&front, "?protocol=resp3"));
        front.stop();
    }
}

#[test]
fn transactions_over_shards_are_atomic() {
    const TRANSFERS: i64 = 300;
    let front = start_with(
        Arc::new(Threaded::start()),
        FrontOptions { threads: 2, ..FrontOptions::default() },
    );
    let accounts = ["a", "b", "c", "d"];
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let mut connection = connect(&front, "");
            scope.spawn(move || {
                for n in 0..TRANSFERS {
                    let (from, to) = (accounts[writer], accounts[(writer + 1) % 4]);
                    let mut transfer = pipe();
                    transfer.atomic().decr(from, n).incr(to, n);
                    let _: (i64, i64) = transfer.query(&mut connection).expect("replies");
                }
            });
        }
        let mut connection = connect(&front, "");
        scope.spawn(move || {
            for _ in 0..TRANSFERS {
                let values: Vec<Option<i64>> = connection.mget(&accounts).expect("a reply");
                let sum: i64 = values.into_iter().flatten().sum();
                assert_eq!(sum, 0);
            }
        });
    });
}

#[test]
fn pipelines_are_few_transactions_in_their_order() {
    let memory = Arc::new(Memory::default());
    let front = start_with(memory.clone(), FrontOptions::default());
    let mut pipeline = pipe();
    for n in 0..1_000 {
        pipeline.cmd("RPUSH").arg("list").arg(n).ignore();
    }
    let _: () = pipeline.query(&mut connect(&front, "")).expect("replies");
    assert!(memory.transactions() <= 20, "{} transactions", memory.transactions());
    let list: Vec<i64> = connect(&front, "").lrange("list", 0, -1).expect("a reply");
    assert!(list.iter().copied().eq(0..1_000));
}
