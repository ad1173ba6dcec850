//! Two hazards of distributed memory, with and without ordered scattering (1Pipe, section 2).
//!
//! *Write after write*: A writes to store C and notifies B; after the notification, B writes to C
//! as well. Does C see B's write before A's?
//! *Independent reads of independent writes*: A and B write to both C and D at the same time. Does
//! C see A's write first and D see B's first?
//!
//! Four processes run both in rounds, first over plain channels (a socket for each pair, FIFO each,
//! without an order among them), then over one pipe. The plain rounds go on until both anomalies
//! were seen.
//!
//! `cargo run -p onepipe --example hazard`

use std::error::Error;
use std::io::{BufRead, BufReader, Lines, Write};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use onepipe::{Event, Message, Pipe, ProcessId};

type Failure = Box<dyn Error>;

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;
const D: usize = 3;
const PROCESSES: usize = 4;
/// Rounds per run.
const ROUNDS: u32 = 1_000;
/// Maximum number of plain rounds without an anomaly.
const PLAIN_ROUNDS_MAX: u32 = 50_000;
/// This bound only ends a hanging run.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Longest random pause before a send or a receive, in ns: as on a busy machine.
const PAUSE_NS_MAX: u64 = 20_000;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [] => coordinate(),
        [fabric, process] => run_worker(fabric, process.parse()?),
        _ => Err("no arguments, please".into()),
    }
}

// ---- the coordinator ----

/// Number of rounds, and of rounds with each anomaly.
#[derive(Default)]
struct Score {
    rounds: u32,
    write_after_write: u32,
    independent_reads: u32,
}

fn coordinate() -> Result<(), Failure> {
    let fabric = format!("hazard-{}", std::process::id());
    let mut workers = (0..PROCESSES)
        .map(|process| Worker::start(&fabric, process))
        .collect::<Result<Vec<_>, _>>()?;
    let addresses: Vec<String> =
        workers.iter_mut().map(Worker::answer).collect::<Result<_, _>>()?;
    for worker in &mut workers {
        writeln!(worker.stdin, "{}", addresses.join(";"))?;
    }

    let mut plain = Score::default();
    while plain.write_after_write == 0 || plain.independent_reads == 0 {
        if plain.rounds >= PLAIN_ROUNDS_MAX {
            return Err("no anomaly was seen over plain channels: the example shows nothing".into());
        }
        run_rounds(&mut workers, "plain", &mut plain)?;
    }
    let mut ordered = Score::default();
    while ordered.rounds < plain.rounds.max(5 * ROUNDS) {
        run_rounds(&mut workers, "ordered", &mut ordered)?;
    }
    for worker in workers {
        worker.stop()?;
    }

    println!("{:<20}{:>10}{:>16}{:>10}{:>10}", "", "rounds", "plain channels", "rounds", "onepipe");
    let rows = [
        ("write after write", plain.write_after_write, ordered.write_after_write),
        ("independent reads", plain.independent_reads, ordered.independent_reads),
    ];
    for (hazard, without, with) in rows {
        println!("{hazard:<20}{:>10}{without:>16}{:>10}{with:>10}", plain.rounds, ordered.rounds);
    }
    match ordered.write_after_write + ordered.independent_reads {
        0 => Ok(()),
        _ => Err("an anomaly over onepipe".into()),
    }
}

/// Runs some rounds and adds the anomalies that the readers saw.
fn run_rounds(workers: &mut [Worker], how: &str, score: &mut Score) -> Result<(), Failure> {
    for worker in workers.iter_mut() {
        writeln!(worker.stdin, "{how}")?;
    }
    // Each worker reports what it saw first in every round: of the two writes, and of the hazard.
    let seen = workers.iter_mut().map(Worker::answer).collect::<Result<Vec<_>, _>>()?;
    let (store, reads) = seen[C].split_once(' ').ok_or("the store saw nothing")?;
    score.rounds += ROUNDS;
    score.write_after_write += store.matches('B').count() as u32;
    let differ = reads.chars().zip(seen[D].trim().chars()).filter(|(at_c, at_d)| at_c != at_d);
    score.independent_reads += differ.count() as u32;
    Ok(())
}

struct Worker {
    child: Child,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    fn start(fabric: &str, process: usize) -> Result<Self, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([fabric, &process.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take().ok_or("stdin is not piped")?;
        let stdout = BufReader::new(child.stdout.take().ok_or("stdout is not piped")?).lines();
        Ok(Self { child, stdin, stdout })
    }

    fn answer(&mut self) -> Result<String, Failure> {
        Ok(self.stdout.next().ok_or("a worker has exited")??)
    }

    fn stop(mut self) -> Result<(), Failure> {
        drop(self.stdin);
        match self.child.wait()?.success() {
            true => Ok(()),
            false => Err("a worker failed".into()),
        }
    }
}

// ---- the workers ----

/// The messages between workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Signal {
    /// An independent write, to both readers.
    Write = b'w',
    /// A write to the store.
    Store = b's',
    Notify = b'n',
    /// The end of a hazard's round.
    Done = b'd',
}

/// The interface common to plain channels and a pipe.
trait Channel {
    fn send(&mut self, signal: Signal, to: &[usize]) -> Result<(), Failure>;
    fn receive(&mut self) -> Result<Option<(usize, u8)>, Failure>;
}

fn run_worker(fabric: &str, me: usize) -> Result<(), Failure> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ u64::from(std::process::id()));
    let mut lines = std::io::stdin().lines();
    let mut pipe = Pipe::builder().fabric(fabric).process(me as u32).processes(4).join()?;
    if !pipe.wait_for_peers(PROCESSES - 1, TIMEOUT) {
        return Err("not all processes joined".into());
    }
    let mut sockets = Sockets::open()?;
    println!("{}", sockets.addresses()?);
    let addresses = lines.next().ok_or("the coordinator has exited")??;
    sockets.connect(me, &addresses)?;
    for command in lines {
        let (reads, store) = match command?.as_str() {
            "plain" => run_round(me, &mut Plain(&mut sockets, &mut random.clone()), &mut random)?,
            "ordered" => run_round(me, &mut Ordered(&mut pipe), &mut random)?,
            other => return Err(format!("{other:?} is not a command").into()),
        };
        match me {
            C => println!("{store} {reads}"),
            _ => println!("{reads}"),
        }
    }
    pipe.leave()?;
    Ok(())
}

/// Runs some rounds. Returns the first writer seen in each: of the independent writes, and at the
/// store.
fn run_round(
    me: usize,
    channel: &mut impl Channel,
    random: &mut Random,
) -> Result<(String, String), Failure> {
    let (mut reads, mut store) = (String::new(), String::new());
    // Signals received before they were waited for.
    let pending = &mut Vec::new();
    for _ in 0..ROUNDS {
        // Independent writes: both at once.
        match me {
            A | B => {
                random.pause();
                channel.send(Signal::Write, &[C, D])?;
                wait_for(channel, pending, random, Signal::Done, 2)?;
            }
            _ => {
                let first = wait_for(channel, pending, random, Signal::Write, 2)?;
                reads.push(name(first));
                channel.send(Signal::Done, &[A, B])?;
            }
        }
        // One write after the other.
        match me {
            A => {
                // A notifies B without waiting for the store.
                channel.send(Signal::Store, &[C])?;
                channel.send(Signal::Notify, &[B])?;
                wait_for(channel, pending, random, Signal::Done, 1)?;
            }
            B => {
                wait_for(channel, pending, random, Signal::Notify, 1)?;
                channel.send(Signal::Store, &[C])?;
                wait_for(channel, pending, random, Signal::Done, 1)?;
            }
            C => {
                let first = wait_for(channel, pending, random, Signal::Store, 2)?;
                store.push(name(first));
                channel.send(Signal::Done, &[A, B, D])?;
            }
            _ => {
                wait_for(channel, pending, random, Signal::Done, 1)?;
            }
        }
    }
    Ok((reads, store))
}

/// Waits until a signal was received `count` times. Returns its first sender.
fn wait_for(
    channel: &mut impl Channel,
    pending: &mut Vec<(usize, u8)>,
    random: &mut Random,
    signal: Signal,
    count: usize,
) -> Result<usize, Failure> {
    let start = Instant::now();
    loop {
        let received = pending.iter().filter(|(_, said)| *said == signal as u8);
        if received.clone().count() >= count {
            let first = received.map(|(from, _)| *from).next().ok_or("count is zero")?;
            let mut rest = count;
            pending.retain(|(_, said)| {
                let is_taken = rest > 0 && *said == signal as u8;
                rest -= usize::from(is_taken);
                !is_taken
            });
            return Ok(first);
        }
        match channel.receive()? {
            Some(received) => pending.push(received),
            None if start.elapsed() > TIMEOUT => {
                return Err(format!("{signal:?} was not received in time").into());
            }
            None => random.pause(),
        }
    }
}

fn name(process: usize) -> char {
    ['A', 'B', 'C', 'D'][process]
}

// ---- plain channels ----

/// A socket for each other process: each channel is FIFO, but the order of polling them is random.
struct Sockets(Vec<UdpSocket>);

struct Plain<'a>(&'a mut Sockets, &'a mut Random);

impl Sockets {
    fn open() -> Result<Self, Failure> {
        let open = |_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
        Ok(Self((0..PROCESSES).map(open).collect::<Result<_, _>>()?))
    }

    fn addresses(&self) -> Result<String, Failure> {
        let text = |socket: &UdpSocket| Ok(socket.local_addr()?.to_string());
        Ok(self.0.iter().map(text).collect::<Result<Vec<_>, Failure>>()?.join(","))
    }

    /// Socket `i` here and socket `me` of process `i` are the two ends of a channel.
    fn connect(&mut self, me: usize, addresses: &str) -> Result<(), Failure> {
        for (socket, theirs) in self.0.iter().zip(addresses.split(';')) {
            let address: SocketAddr = theirs.split(',').nth(me).ok_or("no address")?.parse()?;
            socket.connect(address)?;
            socket.set_nonblocking(true)?;
        }
        Ok(())
    }
}

impl Channel for Plain<'_> {
    fn send(&mut self, signal: Signal, to: &[usize]) -> Result<(), Failure> {
        for &to in to {
            self.0.0[to].send(&[signal as u8])?;
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<Option<(usize, u8)>, Failure> {
        let first = self.1.below(PROCESSES as u64) as usize;
        for from in (first..first + PROCESSES).map(|from| from % PROCESSES) {
            let mut bytes = [0];
            match self.0.0[from].recv(&mut bytes) {
                Ok(_) => return Ok(Some((from, bytes[0]))),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }
}

// ---- one pipe ----

struct Ordered<'a>(&'a mut Pipe);

impl Channel for Ordered<'_> {
    fn send(&mut self, signal: Signal, to: &[usize]) -> Result<(), Failure> {
        let payload = &[signal as u8];
        let message = |to: &usize| Message { to: ProcessId(*to as u32), payload };
        let messages: Vec<_> = to.iter().map(message).collect();
        self.0.scatter_wait(&messages, TIMEOUT)?;
        Ok(())
    }

    fn receive(&mut self) -> Result<Option<(usize, u8)>, Failure> {
        match self.0.try_recv() {
            None => Ok(None),
            Some(Event::Message(message)) => Ok(Some((message.from.index(), message.payload[0]))),
            Some(other) => Err(format!("{other:?}").into()),
        }
    }
}

// ---- random numbers ----

/// Marsaglia's xorshift: enough to vary a schedule.
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    /// Pauses for up to [`PAUSE_NS_MAX`], yielding the core.
    fn pause(&mut self) {
        let pause = Duration::from_nanos(self.below(PAUSE_NS_MAX));
        let start = Instant::now();
        while start.elapsed() < pause {
            std::thread::yield_now();
        }
    }
}
