//! A warehouse as the state of a shard.

use alloc::boxed::Box;
use alloc::vec::Vec;

use onepipe_base::Timestamp;
use onepipe_transaction::{Exact, State};

use crate::answer::Answer;
use crate::input::Transaction;
use crate::warehouse::Warehouse;
use crate::{new_order, order_status, payment};

impl State for Warehouse {
    fn execute(&mut self, at: Timestamp, part: &[u8], results: &mut Vec<u8>) {
        let transaction =
            Transaction::parse(part).filter(|transaction| transaction.is_valid(self.scale()));
        let answer = match transaction {
            None => None,
            Some(Transaction::NewOrder(order)) => {
                new_order::execute(self, at, &order).map(Answer::NewOrder)
            }
            Some(Transaction::Payment(payment)) => {
                payment::execute(self, at, &payment).map(Box::new).map(Answer::Payment)
            }
            Some(Transaction::OrderStatus(status)) => {
                order_status::read(self, &status).map(|(answer, _)| Answer::OrderStatus(answer))
            }
        };
        answer.unwrap_or(Answer::Refused).append_to(results);
    }

    /// Answers Order-Status, and refuses any other part.
    fn read(&self, _at: Timestamp, part: &[u8], results: &mut Vec<u8>) -> Exact {
        let read = match Transaction::parse(part) {
            Some(Transaction::OrderStatus(status)) => order_status::read(self, &status),
            _ => None,
        };
        let (answer, from) = match read {
            Some((answer, changed)) => (Answer::OrderStatus(answer), changed),
            // No write makes a refused part valid.
            None => (Answer::Refused, None),
        };
        answer.append_to(results);
        Exact { from, until: None }
    }

    fn digest(&self) -> u64 {
        self.compute_digest()
    }

    fn save(&self, bytes: &mut Vec<u8>) {
        self.encode_tables(bytes);
    }

    fn load(&mut self, bytes: &[u8]) -> bool {
        match self.decode_tables(bytes) {
            Some(warehouse) => {
                *self = warehouse;
                true
            }
            None => false,
        }
    }
}
