//! Properties of warehouses that receive parts and states of any bytes. Shared with `verify/fuzz`.

use onepipe_base::Timestamp;
use onepipe_tpcc::{
    Answer, Database, Generator, Mix, Scale, TRANSACTION_MAX_BYTES, Transaction, Warehouse, check,
};
use onepipe_transaction::{Exact, State};
use rand_xoshiro::Xoshiro256StarStar;
use rand_xoshiro::rand_core::SeedableRng;

const SCALE: Scale = Scale { warehouses: 2, districts: 1, customers: 5, items: 9 };

fn database() -> Database {
    Database::new(SCALE, 1).expect("the scale is in range")
}

fn warehouses() -> Vec<Warehouse> {
    let (database, catalogue) = (database(), database().catalogue());
    (1..=2).filter_map(|w_id| database.warehouse(w_id, catalogue.clone())).collect()
}

/// Checks what arbitrary bytes do, of which the first chooses what they are: parts of transactions,
/// a damaged state, or an answer.
pub fn check_state(bytes: &[u8]) {
    let Some((mode, bytes)) = bytes.split_first() else { return };
    match mode % 3 {
        0 => check_parts(bytes),
        1 => check_damaged(mode / 3, bytes),
        _ => check_answer(bytes),
    }
}

/// Executes parts, each after its length, at all warehouses. Whether a part is applied is decided
/// alike at all of them, so that they stay consistent.
fn check_parts(mut bytes: &[u8]) {
    let (mut warehouses, mut now_ns) = (warehouses(), 1);
    while let Some((len, rest)) = bytes.split_first() {
        let (part, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        (bytes, now_ns) = (rest, now_ns + 1);
        if let Some(transaction) = Transaction::parse(part) {
            assert!(part.len() <= TRANSACTION_MAX_BYTES);
            assert_eq!(transaction.to_bytes(), part, "what is parsed is encoded as it was");
        }
        for warehouse in &mut warehouses {
            execute(warehouse, now_ns, part);
        }
    }
    check(&warehouses.iter().collect::<Vec<_>>()).expect("the warehouses are consistent");
}

fn execute(warehouse: &mut Warehouse, at_ns: u64, part: &[u8]) {
    let (at, before) = (Timestamp::from_ns(at_ns), warehouse.digest());
    let (mut read, mut results) = (Vec::new(), Vec::new());
    let Exact { from, until } = warehouse.read(at, part, &mut read);
    assert!(from <= Some(at) && until.is_none(), "{from:?}");
    warehouse.execute(at, part, &mut results);
    let answers = [&read, &results].map(|results| Answer::parse(results).expect("an answer"));
    if answers[0] != Answer::Refused {
        assert_eq!(answers[0], answers[1], "a read answers what the same part in a write does");
    }
    if answers[0] != Answer::Refused || answers[1] == Answer::Refused {
        assert_eq!(warehouse.digest(), before, "reads and refused parts change nothing");
    }
}

/// Loads the state of a warehouse of which bytes are changed, or that is cut. One that is loaded is
/// saved as it was, and executes transactions without a panic.
fn check_damaged(mode: u8, bytes: &[u8]) {
    let mut warehouses = warehouses();
    let mut state = Vec::new();
    warehouses[0].save(&mut state);
    match mode % 3 {
        0 => state = bytes.to_vec(),
        1 => state.truncate(bytes.len() << 6),
        _ => {
            for edit in bytes.chunks_exact(3) {
                let at = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % state.len();
                state[at] ^= edit[2];
            }
        }
    }
    let before = warehouses[0].digest();
    if warehouses[0].load(&state) {
        let mut again = Vec::new();
        warehouses[0].save(&mut again);
        assert_eq!(again, state);
    } else {
        assert_eq!(warehouses[0].digest(), before, "a refused state changes nothing");
    }
    let terminal = Generator::new(&database(), 1, Mix::default()).expect("warehouse 1 exists");
    let mut random = Xoshiro256StarStar::seed_from_u64(u64::from(mode));
    for at_ns in 1..6 {
        let status = Transaction::OrderStatus(terminal.order_status(&mut random));
        for transaction in [terminal.transaction(&mut random), status] {
            for (shard, part) in transaction.parts() {
                let warehouse = &mut warehouses[usize::from(shard)];
                warehouse.execute(Timestamp::from_ns(at_ns), &part, &mut Vec::new());
            }
        }
    }
    // The damaged one need not be consistent.
    let _ = check(&warehouses.iter().collect::<Vec<_>>());
}

fn check_answer(bytes: &[u8]) {
    if let Some(answer) = Answer::parse(bytes) {
        let mut again = Vec::new();
        answer.append_to(&mut again);
        assert_eq!(again, bytes);
    }
    let terminal = Generator::new(&database(), 1, Mix::default()).expect("warehouse 1 exists");
    let mut random = Xoshiro256StarStar::seed_from_u64(bytes.len() as u64);
    for _ in 0..3 {
        let transaction = terminal.transaction(&mut random);
        // An error says which answer does not fit.
        let _ = transaction.assemble(&[(0, bytes), (1, bytes)]);
    }
}
