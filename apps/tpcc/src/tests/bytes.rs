//! Arbitrary and damaged bytes: nothing panics, and what is refused changes nothing.

use alloc::vec::Vec;

use onepipe_base::Timestamp;
use onepipe_transaction::State;
use proptest::prelude::*;

use super::Shards;
use crate::random::stream;
use crate::{Answer, Mix, Scale, TRANSACTION_MAX_BYTES, Transaction};

const TINY: Scale = Scale { warehouses: 2, districts: 1, customers: 5, items: 9 };

fn any_id() -> impl Strategy<Value = u16> {
    prop_oneof![0..4u16, any::<u16>()]
}

/// Bytes that begin like a transaction, so that many of them are parsed.
fn nearly_transaction() -> impl Strategy<Value = Vec<u8>> {
    let new_order = (any_id(), 0..3u8, 0..8u32, 4..17u8, any::<Vec<(u8, u8, u8)>>());
    let new_order = new_order.prop_map(|(w_id, d_id, c_id, length, lines)| {
        let mut bytes = [&[0][..], &w_id.to_be_bytes(), &[d_id], &c_id.to_be_bytes()].concat();
        bytes.push(length);
        for at in 0..usize::from(length) {
            let (i_id, supply, quantity) = lines.get(at).copied().unwrap_or((3, 1, 5));
            bytes.extend([0, 0, 0, i_id % 12, 0, supply % 4, quantity % 12]);
        }
        bytes
    });
    let payment = (any_id(), 0..3u8, any_id(), 0..3u8, any::<bool>(), 0..8u16, any::<u32>());
    let payment = payment.prop_map(|(w_id, d_id, c_w_id, c_d_id, is_id, id, cents)| {
        let mut bytes = [&[1][..], &w_id.to_be_bytes(), &[d_id], &c_w_id.to_be_bytes()].concat();
        bytes.extend([c_d_id, u8::from(!is_id)]);
        bytes.extend_from_slice(&[0, 0][..if is_id { 2 } else { 0 }]);
        bytes.extend(id.to_be_bytes());
        bytes.extend((cents % 600_000).to_be_bytes());
        bytes
    });
    prop_oneof![any::<Vec<u8>>(), new_order, payment]
}

proptest! {
    #[test]
    fn parts_never_panic_and_refused_ones_change_nothing(
        parts in prop::collection::vec(nearly_transaction(), 1..20),
    ) {
        let mut shards = Shards::new(TINY, 1);
        for (part, at_ns) in parts.iter().zip(1..) {
            for warehouse in &mut shards.warehouses {
                let before = warehouse.digest();
                let mut results = Vec::new();
                warehouse.execute(Timestamp::from_ns(at_ns), part, &mut results);
                let answer = Answer::parse(&results).expect("results can be parsed");
                prop_assert!(answer != Answer::Refused || warehouse.digest() == before);
                warehouse.read(Timestamp::from_ns(at_ns), part, &mut Vec::new());
            }
        }
        prop_assert_eq!(shards.check(), Ok(()));
    }

    #[test]
    fn transactions_survive_encoding(seed: u64) {
        let terminal = Shards::new(TINY, 1).terminal(1, Mix::default());
        let mut random = stream(seed, &[]);
        for transaction in [
            terminal.transaction(&mut random),
            Transaction::OrderStatus(terminal.order_status(&mut random)),
        ] {
            let bytes = transaction.to_bytes();
            prop_assert!(bytes.len() <= TRANSACTION_MAX_BYTES);
            prop_assert_eq!(Transaction::parse(&bytes), Some(transaction));
            prop_assert_eq!(Transaction::parse(&bytes[1..]), None);
            prop_assert_eq!(Transaction::parse(&bytes[..bytes.len() - 1]), None);
        }
    }

    #[test]
    fn answers_and_assembly_never_panic(
        kind in 0..5u8, rest: Vec<u8>, seed: u64, shard in 0..2u16,
    ) {
        let bytes = [&[kind][..], &rest].concat();
        let parsed = Answer::parse(&bytes);
        if let Some(answer) = parsed {
            let mut again = Vec::new();
            answer.append_to(&mut again);
            prop_assert_eq!(again, bytes.clone());
        }
        let terminal = Shards::new(TINY, 1).terminal(1, Mix::default());
        let transaction = terminal.transaction(&mut stream(seed, &[]));
        let _ = transaction.assemble(&[(shard, &bytes), (1 - shard, &[0])]);
    }

    /// A damaged state is refused or loaded; what was loaded executes without a panic.
    #[test]
    fn damaged_states_never_panic(
        at: prop::sample::Index, byte: u8, cut: Option<prop::sample::Index>, seed: u64,
    ) {
        let mut shards = Shards::new(TINY, 1);
        let mut bytes = Vec::new();
        shards.warehouses[0].save(&mut bytes);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let before = shards.digests();
        let is_loaded = shards.warehouses[0].load(&bytes);
        prop_assert!(is_loaded || shards.digests() == before);
        let _ = shards.check();
        let terminal = shards.terminal(1, Mix::default());
        let mut random = stream(seed, &[]);
        for _ in 0..10 {
            let _ = shards.run(&terminal.transaction(&mut random));
            let status = Transaction::OrderStatus(terminal.order_status(&mut random));
            shards.warehouses[0].read(Timestamp::from_ns(99), &status.to_bytes(), &mut Vec::new());
        }
    }
}
