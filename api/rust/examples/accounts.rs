//! Two groups keep the accounts of two banks. A transfer is one message to both groups: both book
//! it, in the same order among all transfers, or neither does; so the total never changes, and both
//! refuse the same transfers.
//!
//! `cargo run -p onepipe --example accounts`

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onepipe::{Amcast, AmcastOptions, AmcastReplica, Directory, GroupId, Loopback, Role};
use onepipe_daemon_member::MemberDaemon;

const TIMEOUT: Duration = Duration::from_secs(60);
const BANKS: u16 = 2;
const TRANSFERS: u64 = 60;
const BEGIN: i64 = 100;

/// A transfer between the two banks: the paying bank and the amount.
#[derive(Clone, Copy)]
struct Transfer {
    from: u8,
    amount: i64,
}

impl Transfer {
    fn to_bytes(self) -> [u8; 9] {
        let mut bytes = [self.from; 9];
        bytes[1..].copy_from_slice(&self.amount.to_be_bytes());
        bytes
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (from, amount) = bytes.split_first()?;
        Some(Self { from: *from, amount: i64::from_be_bytes(amount.try_into().ok()?) })
    }
}

/// The state of a replica of either bank: both balances, as a bank must know whether the other can
/// pay. Every transfer is for both, so all replicas have the same state.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Book {
    balances: [i64; BANKS as usize],
    booked: usize,
    refused: usize,
}

impl Book {
    fn take(&mut self, transfer: Transfer) {
        let from = usize::from(transfer.from) % self.balances.len();
        if self.balances[from] < transfer.amount {
            self.refused += 1;
            return;
        }
        self.balances[from] -= transfer.amount;
        self.balances[1 - from] += transfer.amount;
        self.booked += 1;
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let loopback = Loopback { groups: BANKS, members: 3, replicas: 1, clients: 2, coordinators: 0 };
    let directory = loopback.directory()?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        let mut doorbells = Vec::new();
        for at in (0..BANKS).flat_map(|bank| directory.of(Role::Member(GroupId(bank)))) {
            let mut member = MemberDaemon::new(&directory, at, &AmcastOptions::default())?;
            doorbells.push(member.doorbell());
            let stop = &stop;
            scope.spawn(move || member.run(stop, |_| {}));
        }
        let outcome = bank(&directory);
        stop.store(true, Ordering::Release);
        doorbells.iter().for_each(|doorbell| doorbell.ring());
        outcome
    })
}

fn bank(directory: &Directory) -> Result<(), Box<dyn Error>> {
    let mut clients = Vec::new();
    for at in directory.of(Role::Client) {
        clients.push(Amcast::open(directory, at)?);
    }
    // One client at each bank, both at once; some transfers exceed the balance.
    let mut sent = Vec::new();
    for number in 0..TRANSFERS {
        let at = (number % 2) as usize;
        let amount = (number * 37 % 90) as i64;
        let transfer = Transfer { from: at as u8, amount };
        sent.push((at, clients[at].amcast(&[0, 1], &transfer.to_bytes())?));
    }
    for (at, id) in sent {
        clients[at].wait(id, TIMEOUT)?;
    }
    let mut books = Vec::new();
    for at in (0..BANKS).flat_map(|bank| directory.of(Role::Replica(GroupId(bank)))) {
        let mut replica = AmcastReplica::open(directory, at)?;
        let (mut book, mut seen) = (Book { balances: [BEGIN; 2], booked: 0, refused: 0 }, 0);
        while seen < TRANSFERS {
            let has_come = replica.wait(TIMEOUT, |bytes, _, _| {
                seen += 1;
                if let Some(transfer) = Transfer::read(bytes) {
                    book.take(transfer);
                }
            })?;
            if !has_come {
                return Err("a transfer was not delivered".into());
            }
        }
        books.push(book);
    }
    let [one, other] = &books[..] else { return Err("there are two banks".into()) };
    if one != other {
        return Err(format!("the banks differ: {one:?}, {other:?}").into());
    }
    let Book { balances, booked, refused } = one;
    let total: i64 = balances.iter().sum();
    println!(
        "{TRANSFERS} transfers, {booked} booked and {refused} refused by both; {total} in the end"
    );
    Ok(())
}
