//! A replicated register: three replicas of one group keep a value that two clients write. All see
//! the same writes in the same order, so all have the same value after each write. The third
//! replica joins late, with the state of the first.
//!
//! `cargo run -p onepipe --example register`

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onepipe::{
    Amcast, AmcastOptions, AmcastReplica, DeliveryPoint, Directory, GroupId, Loopback, Role,
};
use onepipe_daemon_member::MemberDaemon;

const TIMEOUT: Duration = Duration::from_secs(60);
const WRITES: usize = 50;
const GROUP: u16 = 0;

fn main() -> Result<(), Box<dyn Error>> {
    // Three members, three replicas and two clients on this machine; usually each is a process of
    // its own (`onepipe member`), and a file lists them.
    let loopback = Loopback { groups: 1, members: 3, replicas: 3, clients: 2, coordinators: 0 };
    let directory = loopback.directory()?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        let mut doorbells = Vec::new();
        for at in directory.of(Role::Member(GroupId(GROUP))) {
            let mut member = MemberDaemon::new(&directory, at, &AmcastOptions::default())?;
            doorbells.push(member.doorbell());
            let stop = &stop;
            scope.spawn(move || member.run(stop, |_| {}));
        }
        let outcome = write_and_read(&directory);
        stop.store(true, Ordering::Release);
        doorbells.iter().for_each(|doorbell| doorbell.ring());
        outcome
    })
}

fn write_and_read(directory: &Directory) -> Result<(), Box<dyn Error>> {
    let mut replicas = directory.of(Role::Replica(GroupId(GROUP)));
    let late_at = replicas.pop().ok_or("there are three")?;
    let mut replicas: Vec<_> = replicas
        .into_iter()
        .map(|at| AmcastReplica::open(directory, at))
        .collect::<Result<_, _>>()?;
    let mut clients: Vec<_> = directory
        .of(Role::Client)
        .into_iter()
        .map(|at| Amcast::open(directory, at))
        .collect::<Result<_, _>>()?;

    // Both write concurrently: the group orders the writes.
    for number in 0..WRITES {
        let mut writes = Vec::new();
        for (name, client) in ["ada", "bob"].iter().zip(&mut clients) {
            let value = format!("{name} {number}");
            writes.push(client.amcast(&[GROUP], value.as_bytes())?);
        }
        for (client, write) in clients.iter_mut().zip(writes) {
            client.wait(write, TIMEOUT)?;
        }
    }

    // The successive values of each replica.
    let mut histories = vec![Vec::new(); replicas.len()];
    for (replica, values) in replicas.iter_mut().zip(&mut histories) {
        while values.len() < clients.len() * WRITES {
            let has_come = replica.wait(TIMEOUT, |value, _, _| {
                values.push(String::from_utf8_lossy(value).into_owned());
            })?;
            if !has_come {
                return Err("a write was not delivered".into());
            }
        }
    }

    // The state here is the history of values, and the point is its position in the order. Both are
    // transferred to the new replica, which continues from there.
    let point = replicas[0].point().ok_or("the replica has delivered messages")?.to_bytes();
    let state = histories[0].clone();
    replicas.push(AmcastReplica::join(directory, late_at, DeliveryPoint::from_bytes(point))?);
    histories.push(state);
    let write = clients[0].amcast(&[GROUP], b"ada once more")?;
    clients[0].wait(write, TIMEOUT)?;
    for (replica, values) in replicas.iter_mut().zip(&mut histories) {
        replica.wait(TIMEOUT, |value, _, _| {
            values.push(String::from_utf8_lossy(value).into_owned());
        })?;
    }
    let is_same = histories.iter().all(|values| *values == histories[0]);
    if !is_same {
        return Err("the replicas differ".into());
    }
    let last = histories[0].last().ok_or("nothing was written")?;
    println!(
        "{} replicas, {} values each, all the same; the last: {last}",
        replicas.len(),
        histories[0].len()
    );
    Ok(())
}
