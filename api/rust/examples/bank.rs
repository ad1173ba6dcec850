//! A bank with branches in three processes, over a bad network. A transfer is one reliable
//! scattering: one message withdraws the money from an account, the other deposits it. So no
//! transfer is done by half, although the network loses frames; and an audit, which is a scattering
//! too, finds the same total at every time, because all branches see transfers and audits in one
//! order.
//!
//! A transfer that is reported as lost has moved no money. A branch that was declared failed takes
//! back what it has booked of its own transfers from the failure on: the others have not booked it.
//!
//! `cargo run -p onepipe --example bank`

use std::error::Error;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onepipe::{Event, Message, Outcome, Pipe, ProcessId, Received, Timestamp};
use onepipe_daemon_switch::{Config, Faults, SoftwareSwitch};

const BRANCHES: u32 = 3;
const TRANSFERS: u32 = 300;
/// Number of transfers between two audits of a branch.
const AUDIT_EVERY: u32 = 30;
const OPENING_BALANCE: i64 = 1_000;
const TIMEOUT: Duration = Duration::from_secs(30);

/// The balances of one branch in each audit, in the order of audits, and its final balance.
type Books = (Vec<i64>, i64);

fn main() -> Result<(), Box<dyn Error>> {
    let mut config = Config::new("127.0.0.1:0".parse()?);
    config.faults = Faults { loss: 0.01, seed: 7, ..Faults::default() };
    config.link_timeout_ns = 10_000_000_000;
    let mut switch = SoftwareSwitch::new(&config)?;
    let address = switch.local_addr();
    let is_over = AtomicBool::new(false);
    let books: Vec<Books> = std::thread::scope(|scope| -> Result<_, Box<dyn Error>> {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let progress = switch.turn(|_| {});
                switch.rest(progress);
            }
        });
        // Threads here; usually each branch is a process on a machine of its own.
        let branches: Vec<_> = (0..BRANCHES)
            .map(|branch| scope.spawn(move || bank(branch, address).map_err(|e| e.to_string())))
            .collect();
        let books = branches
            .into_iter()
            .map(|branch| branch.join().map_err(|_| "a thread has panicked")?);
        let books = books.collect::<Result<_, String>>();
        is_over.store(true, Ordering::Relaxed);
        Ok(books?)
    })?;
    let expected = OPENING_BALANCE * i64::from(BRANCHES);
    let audits = books[0].0.len();
    for audit in 0..audits {
        let sum: i64 = books.iter().map(|(counted, _)| counted[audit]).sum();
        if sum != expected {
            return Err(format!("audit {audit} found {sum} instead of {expected}").into());
        }
    }
    let sum: i64 = books.iter().map(|(_, balance)| balance).sum();
    println!("{} transfers, {audits} audits, always {expected}; {sum} in the end", TRANSFERS * 3);
    Ok(())
}

/// A request to a branch.
pub(crate) enum Request {
    Add(i64),
    Audit,
    Close,
}

impl Request {
    pub(crate) fn write(&self) -> [u8; 9] {
        let (kind, amount) = match self {
            Self::Add(amount) => (b'+', *amount),
            Self::Audit => (b'?', 0),
            Self::Close => (b'.', 0),
        };
        let mut bytes = [kind; 9];
        bytes[1..].copy_from_slice(&amount.to_be_bytes());
        bytes
    }

    fn read(message: &Received) -> Option<Self> {
        let (kind, amount) = message.payload.split_first()?;
        let amount = i64::from_be_bytes(amount.try_into().ok()?);
        match kind {
            b'+' => Some(Self::Add(amount)),
            b'?' => Some(Self::Audit),
            b'.' => Some(Self::Close),
            _ => None,
        }
    }
}

/// The books of a branch while it is open.
pub(crate) struct Branch {
    own: ProcessId,
    /// Its bookings in the order of delivery: timestamp, sender and amount.
    bookings: Vec<(Timestamp, ProcessId, i64)>,
    /// Its balance in each audit.
    counted: Vec<i64>,
    /// Number of branches that have closed.
    closed: u32,
}

impl Branch {
    pub(crate) fn new(own: ProcessId) -> Self {
        Self { own, bookings: Vec::new(), counted: Vec::new(), closed: 0 }
    }

    pub(crate) fn on_event(&mut self, event: Event) -> Result<(), Box<dyn Error>> {
        match event {
            Event::Message(message) => match Request::read(&message).ok_or("no request")? {
                Request::Add(amount) => {
                    self.bookings.push((message.timestamp, message.from, amount));
                }
                Request::Audit => self.counted.push(self.balance()),
                Request::Close => self.closed += 1,
            },
            // Neither account has changed.
            Event::SendFailed(failed) if failed.outcome == Outcome::Lost => {}
            // In a fabric with controllers: no other branch delivers its part of the transfers of
            // this one from here on.
            Event::Excluded { void_from } => {
                let is_void = |(timestamp, sender, _): &(Timestamp, ProcessId, i64)| {
                    *sender == self.own && *timestamp >= void_from
                };
                self.bookings.retain(|booking| !is_void(booking));
                return Err(format!("declared failed with balance {}", self.balance()).into());
            }
            event => return Err(format!("{event:?}").into()),
        }
        Ok(())
    }

    fn balance(&self) -> i64 {
        OPENING_BALANCE + self.bookings.iter().map(|(.., amount)| amount).sum::<i64>()
    }
}

/// Runs one branch from opening to closing time.
fn bank(branch: u32, switch: SocketAddr) -> Result<Books, Box<dyn Error>> {
    let mut pipe = Pipe::builder().process(branch).udp(switch).join()?;
    for transfer in 0..TRANSFERS {
        let amount = i64::from(transfer % 17);
        let (take, pay) = (Request::Add(-amount).write(), Request::Add(amount).write());
        let other = ProcessId((branch + 1 + transfer % (BRANCHES - 1)) % BRANCHES);
        // Both, or neither.
        let both = [
            Message { to: ProcessId(branch), payload: &take },
            Message { to: other, payload: &pay },
        ];
        pipe.scatter_reliably_wait(&both, TIMEOUT)?;
        if transfer % AUDIT_EVERY == 0 {
            send_to_all(&mut pipe, &Request::Audit)?;
        }
    }
    send_to_all(&mut pipe, &Request::Close)?;

    let mut books = Branch::new(pipe.process());
    while books.closed < BRANCHES {
        books.on_event(pipe.recv_timeout(TIMEOUT).ok_or("no event arrived in time")?)?;
    }
    pipe.leave()?;
    let balance = books.balance();
    Ok((books.counted, balance))
}

fn send_to_all(pipe: &mut Pipe, request: &Request) -> Result<(), Box<dyn Error>> {
    let payload = request.write();
    let to = |branch| Message { to: ProcessId(branch), payload: &payload };
    let all: Vec<Message<'_>> = (0..BRANCHES).map(to).collect();
    pipe.scatter_reliably_wait(&all, TIMEOUT)?;
    Ok(())
}
