//! Prints how long each check of a history of 20,000 transactions takes.

#[path = "../tests/history/store/mod.rs"]
mod store;

use std::time::Instant;

use onepipe_history::{
    FinalReads, Order, Verdict, durability, linearizability, serializability,
    strict_serializability,
};
use store::{Load, Mistake, generate};

fn main() {
    for (has_registers, failures) in [(false, 0), (false, 1), (true, 0), (true, 1)] {
        let (clients, transactions, keys, writes_max) = (20, 20_000, 50, 100);
        let (seed, mistake) = (1, Mistake::None);
        let load = Load {
            seed,
            clients,
            transactions,
            keys,
            writes_max,
            has_registers,
            failures,
            mistake,
        };
        let (history, _) = generate(load);
        println!(
            "{} of {} transactions, {failures} % fail, as many of unknown outcome",
            if has_registers { "registers" } else { "lists" },
            history.transactions().len()
        );
        let measure = |name: &str, check: &dyn Fn() -> Verdict| {
            let begin = Instant::now();
            let verdict = check();
            println!("  {name:>24}: {:>6.0?} {verdict}", begin.elapsed());
        };
        measure("strict serializability", &|| strict_serializability(&history));
        measure("in sessions", &|| serializability(&history, Order::Session));
        measure("serializability", &|| serializability(&history, Order::Data));
        measure("linearizability", &|| linearizability(&history));
        measure("durability", &|| durability(&history, &FinalReads::of(&history)));
    }
}
