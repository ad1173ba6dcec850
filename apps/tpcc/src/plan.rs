//! A transaction's parts per shard, and its outcome from the shards' answers.
//!
//! Each part is the encoded input of the whole transaction; a shard executes what concerns its
//! warehouse. So every shard sees every item id, and decides alike whether the transaction is valid
//! and whether it is rolled back: all shards apply it, or none. A part has at most
//! [`TRANSACTION_MAX_BYTES`](crate::TRANSACTION_MAX_BYTES).

use alloc::boxed::Box;
use alloc::vec::Vec;

use thiserror::Error;

use crate::answer::{
    Answer, HomeAnswer, LineAnswer, NewOrderAnswer, OrderStatusAnswer, PayeeAnswer, PayerAnswer,
    PaymentAnswer, StockAnswer,
};
use crate::input::Transaction;

/// The number of basis points in 1.
const BP: u64 = 10_000;

/// Returns the shard that has a warehouse: W_ID counts from 1, shards from 0.
pub fn shard_of(w_id: u16) -> u16 {
    w_id.saturating_sub(1)
}

impl Transaction {
    /// Returns the shards concerned, ascending.
    pub fn shards(&self) -> Vec<u16> {
        let mut shards = Vec::new();
        match self {
            Self::NewOrder(order) => {
                shards.push(shard_of(order.w_id));
                shards.extend(order.lines.iter().map(|line| shard_of(line.supply_w_id)));
            }
            Self::Payment(payment) => {
                shards.extend([shard_of(payment.w_id), shard_of(payment.c_w_id)]);
            }
            Self::OrderStatus(status) => shards.push(shard_of(status.w_id)),
        }
        shards.sort_unstable();
        shards.dedup();
        shards
    }

    /// Returns each shard concerned, ascending, with its part.
    pub fn parts(&self) -> Vec<(u16, Vec<u8>)> {
        let part = self.to_bytes();
        self.shards().into_iter().map(|shard| (shard, part.clone())).collect()
    }

    /// Returns whether the transaction may write. Order-Status only reads.
    pub fn is_write(&self) -> bool {
        !matches!(self, Self::OrderStatus(_))
    }

    /// Returns the outcome, from the results of each shard in [`Transaction::shards`]; other shards
    /// are ignored.
    pub fn assemble(&self, results: &[(u16, &[u8])]) -> Result<Outcome, AssembleError> {
        let answer = |shard| {
            let (_, bytes) = results
                .iter()
                .find(|(of, _)| *of == shard)
                .ok_or(AssembleError::Missing { shard })?;
            match Answer::parse(bytes).ok_or(AssembleError::Malformed { shard })? {
                Answer::Refused => Err(AssembleError::Refused { shard }),
                answer => Ok((shard, answer)),
            }
        };
        let answers: Vec<(u16, Answer)> =
            self.shards().into_iter().map(answer).collect::<Result<_, _>>()?;
        match self {
            Self::NewOrder(order) => assemble_order(order.lines.len(), answers),
            Self::Payment(_) => assemble_payment(answers),
            Self::OrderStatus(_) => assemble_status(answers),
        }
    }
}

/// What a transaction returns to its terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The order was entered.
    Ordered(Receipt),
    /// "Item number is not valid": nothing was changed (clause 2.4.3.4). `lines` is empty.
    RolledBack(HomeAnswer),
    /// The payment was made.
    Paid(Box<PaymentReceipt>),
    /// The status of an order.
    Status(OrderStatusAnswer),
}

/// An order that was entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Results of the home part.
    pub home: HomeAnswer,
    /// What the supplying shard returned of each line of `home`.
    pub stock: Vec<StockAnswer>,
    /// total-amount (clause 2.4.2.2), in cents, rounded half up.
    pub total_cents: u64,
}

/// A payment that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaymentReceipt {
    /// Results of the home part.
    pub home: PayeeAnswer,
    /// Results of the customer part.
    pub customer: PayerAnswer,
}

/// Results from which no outcome can be assembled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AssembleError {
    /// A shard has not returned results.
    #[error("shard {shard} has not returned results")]
    Missing {
        /// The shard.
        shard: u16,
    },
    /// The results of a shard cannot be parsed, or belong to another kind of transaction.
    #[error("the results of shard {shard} are malformed")]
    Malformed {
        /// The shard.
        shard: u16,
    },
    /// A shard has refused its part.
    #[error("shard {shard} refused its part")]
    Refused {
        /// The shard.
        shard: u16,
    },
    /// Some shards applied the transaction and others rolled it back, or lines are missing. Shards
    /// of different databases can cause this.
    #[error("the shards disagree about the transaction")]
    Disagree,
}

fn assemble_order(lines: usize, answers: Vec<(u16, Answer)>) -> Result<Outcome, AssembleError> {
    let (mut home, mut stock, mut rollbacks) = (None, Vec::new(), 0);
    let shards = answers.len();
    for (shard, answer) in answers {
        let Answer::NewOrder(NewOrderAnswer { is_rolled_back, home: part, stock: rows }) = answer
        else {
            return Err(AssembleError::Malformed { shard });
        };
        rollbacks += usize::from(is_rolled_back);
        home = home.or(part);
        stock.extend(rows);
    }
    let home = home.ok_or(AssembleError::Disagree)?;
    if rollbacks == shards {
        return Ok(Outcome::RolledBack(home));
    }
    stock.sort_by_key(|row| row.number);
    let is_complete = stock.iter().map(|row| usize::from(row.number)).eq(1..=lines);
    if rollbacks > 0 || !is_complete || home.lines.len() != lines {
        return Err(AssembleError::Disagree);
    }
    let total_cents = total_cents(&home).ok_or(AssembleError::Disagree)?;
    Ok(Outcome::Ordered(Receipt { home, stock, total_cents }))
}

/// Returns sum(OL_AMOUNT) * (1 - C_DISCOUNT) * (1 + W_TAX + D_TAX), rounded half up. `None` if a
/// discount is above 1.
fn total_cents(home: &HomeAnswer) -> Option<u64> {
    let amount = |line: &LineAnswer| u64::from(line.amount_cents);
    let sum: u64 = home.lines.iter().map(amount).sum();
    let paid_bp = BP.checked_sub(home.discount_bp.into())?;
    let taxed_bp = BP + u64::from(home.w_tax_bp) + u64::from(home.d_tax_bp);
    // Below 2^36 cents, 2^14 and 2^18: the product fits 128 bits, the quotient 64.
    let product = u128::from(sum) * u128::from(paid_bp) * u128::from(taxed_bp);
    let unit = u128::from(BP * BP);
    u64::try_from((product + unit / 2) / unit).ok()
}

fn assemble_payment(answers: Vec<(u16, Answer)>) -> Result<Outcome, AssembleError> {
    let (mut payee, mut payer) = (None, None);
    for (shard, answer) in answers {
        let Answer::Payment(answer) = answer else {
            return Err(AssembleError::Malformed { shard });
        };
        let PaymentAnswer { home, customer } = *answer;
        payee = payee.or(home);
        payer = payer.or(customer);
    }
    match (payee, payer) {
        (Some(home), Some(customer)) => {
            Ok(Outcome::Paid(Box::new(PaymentReceipt { home, customer })))
        }
        _ => Err(AssembleError::Disagree),
    }
}

fn assemble_status(answers: Vec<(u16, Answer)>) -> Result<Outcome, AssembleError> {
    match answers.into_iter().next() {
        Some((_, Answer::OrderStatus(answer))) => Ok(Outcome::Status(answer)),
        Some((shard, _)) => Err(AssembleError::Malformed { shard }),
        None => Err(AssembleError::Disagree),
    }
}
