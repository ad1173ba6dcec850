//! Integration tests, as one program.

mod demand;
mod failures;
mod faults;
mod give_up;
mod harness;
mod hostile;
mod join;
mod leave;
mod overlay;
mod pair;
mod piggyback;
mod recovery;
mod reliable;
mod reorder_alloc;
mod sequence;
mod steady_state;
mod testnet;
mod trace;
mod unordered;
