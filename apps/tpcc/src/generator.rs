//! The inputs that a terminal generates, by clauses 2.4.1, 2.5.1 and 2.6.1.

use rand_xoshiro::rand_core::Rng;

use crate::database::Database;
use crate::input::{
    AMOUNT_MAX_CENTS, AMOUNT_MIN_CENTS, LINES_MAX, LINES_MIN, Line, NewOrder, OrderStatus, Payment,
    QUANTITY_MAX, Selector, Transaction,
};
use crate::random::{A_C_ID, A_C_LAST, A_OL_I_ID, Constants, is_chosen, nurand, within};
use crate::scale::Scale;

/// Shares of what a generator draws, each in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mix {
    /// Share of New-Order; the others are Payment. Default: 50, as in 1Pipe section 7.3.2.
    pub new_order_percent: u8,
    /// Share of orders with an unused item id (clause 2.4.1.4). Default: 1.
    pub rollback_percent: u8,
    /// Share of order lines that another warehouse supplies (clause 2.4.1.5). Default: 1.
    pub remote_line_percent: u8,
    /// Share of payments by a customer of another warehouse (clause 2.5.1.2). Default: 15.
    pub remote_payment_percent: u8,
    /// Share of customers selected by last name (clauses 2.5.1.2 and 2.6.1.2). Default: 60.
    pub last_name_percent: u8,
}

impl Default for Mix {
    fn default() -> Self {
        Self {
            new_order_percent: 50,
            rollback_percent: 1,
            remote_line_percent: 1,
            remote_payment_percent: 15,
            last_name_percent: 60,
        }
    }
}

/// A generator of the inputs of one home warehouse. It holds no random state: each call takes the
/// source of its draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generator {
    scale: Scale,
    constants: Constants,
    w_id: u16,
    mix: Mix,
}

impl Generator {
    /// Returns a generator for the terminals of warehouse `w_id` of `database`. `None` if there is
    /// no such warehouse.
    pub fn new(database: &Database, w_id: u16, mix: Mix) -> Option<Self> {
        let constants = Constants::of_run(database.seed);
        let scale = database.scale;
        scale.has_warehouse(w_id).then_some(Self { scale, constants, w_id, mix })
    }

    /// Returns the input of a New-Order or a Payment.
    pub fn transaction(&self, random: &mut impl Rng) -> Transaction {
        match is_chosen(random, self.mix.new_order_percent) {
            true => Transaction::NewOrder(self.new_order(random)),
            false => Transaction::Payment(self.payment(random)),
        }
    }

    /// Returns the input of a New-Order (clause 2.4.1).
    pub fn new_order(&self, random: &mut impl Rng) -> NewOrder {
        let d_id = self.district(random);
        let c_id = self.customer(random);
        let count = within(random, LINES_MIN as u64, LINES_MAX as u64);
        let mut order = NewOrder { w_id: self.w_id, d_id, c_id, lines: Default::default() };
        order.lines.extend((0..count).map(|_| self.line(random)));
        if is_chosen(random, self.mix.rollback_percent)
            && let Some(last) = order.lines.last_mut()
        {
            last.i_id = self.scale.unused_item();
        }
        order
    }

    /// Returns the input of a Payment (clause 2.5.1).
    pub fn payment(&self, random: &mut impl Rng) -> Payment {
        let d_id = self.district(random);
        let (c_w_id, c_d_id) = match is_chosen(random, self.mix.remote_payment_percent) {
            true => (self.other_warehouse(random), self.district(random)),
            false => (self.w_id, d_id),
        };
        Payment {
            w_id: self.w_id,
            d_id,
            c_w_id,
            c_d_id,
            customer: self.selector(random),
            amount_cents: within(random, AMOUNT_MIN_CENTS.into(), AMOUNT_MAX_CENTS.into()) as u32,
        }
    }

    /// Returns the input of an Order-Status (clause 2.6.1).
    pub fn order_status(&self, random: &mut impl Rng) -> OrderStatus {
        let d_id = self.district(random);
        OrderStatus { w_id: self.w_id, d_id, customer: self.selector(random) }
    }

    fn line(&self, random: &mut impl Rng) -> Line {
        let constants = (A_OL_I_ID, self.constants.i_id);
        let i_id = nurand(random, constants, (1, self.scale.items.into())) as u32;
        let supply_w_id = match is_chosen(random, self.mix.remote_line_percent) {
            true => self.other_warehouse(random),
            false => self.w_id,
        };
        Line { i_id, supply_w_id, quantity: within(random, 1, QUANTITY_MAX.into()) as u8 }
    }

    fn district(&self, random: &mut impl Rng) -> u8 {
        within(random, 1, self.scale.districts.into()) as u8
    }

    fn customer(&self, random: &mut impl Rng) -> u32 {
        nurand(random, (A_C_ID, self.constants.c_id), (1, self.scale.customers.into())) as u32
    }

    fn selector(&self, random: &mut impl Rng) -> Selector {
        if !is_chosen(random, self.mix.last_name_percent) {
            return Selector::Id(self.customer(random));
        }
        let last = u64::from(self.scale.last_names()) - 1;
        Selector::LastName(nurand(random, (A_C_LAST, self.constants.c_last), (0, last)) as u16)
    }

    /// Returns a warehouse other than the home warehouse, each with the same probability; the home
    /// warehouse if it is the only one.
    fn other_warehouse(&self, random: &mut impl Rng) -> u16 {
        if self.scale.warehouses == 1 {
            return self.w_id;
        }
        let drawn = within(random, 1, u64::from(self.scale.warehouses) - 1) as u16;
        drawn + u16::from(drawn >= self.w_id)
    }
}
