//! A crash at every event of a run: of each replica, of a client, and of all replicas at once with
//! the loss of what is not stored.

mod fabric;

use fabric::Fabric;
use fabric::run::{crash_while_returning, fabric};
use fabric::store::{JournalStore, ListStore, Store};

/// Events between two appends.
const APPEND_EVERY: usize = 5;
const APPENDS: usize = 8;
/// Events from one loss of a best-effort message to the next.
const LOSS_EVERY: usize = 9;
/// Limit on the events of the undisturbed run. Only a run that never ends reaches it.
const EVENTS_MAX: usize = 10_000;

/// A run without faults but losses, one event at a time.
struct Script<S> {
    fabric: Fabric<S>,
    events: usize,
}

impl<S: Store> Script<S> {
    fn new(has_states: bool) -> Self {
        let fabric = fabric();
        Self { fabric: if has_states { fabric.with_states() } else { fabric }, events: 0 }
    }

    /// Takes one step. Returns false at the end.
    fn next(&mut self) -> bool {
        let (fabric, event) = (&mut self.fabric, self.events);
        self.events += 1;
        if event % APPEND_EVERY == 0 && event / APPEND_EVERY < APPENDS {
            fabric.append(event / APPEND_EVERY % fabric.users.len());
            return true;
        }
        if event % LOSS_EVERY == 1 {
            let nodes = fabric.nodes.len();
            fabric.nodes[event / LOSS_EVERY % nodes].queue.pop_front();
        }
        if fabric.step() {
            return true;
        }
        let is_done = fabric
            .users
            .iter()
            .all(|user| user.client.is_none() || user.committed.len() as u64 == user.appended);
        if !is_done || event / APPEND_EVERY < APPENDS {
            fabric.advance();
        }
        !is_done || event / APPEND_EVERY < APPENDS
    }

    fn until(events: usize, has_states: bool) -> Self {
        let mut script = Self::new(has_states);
        while script.events < events && script.next() {}
        script
    }

    /// Takes up to `events` steps, and returns what is wrong.
    fn go_on(&mut self, events: usize) -> Result<(), String> {
        for _ in 0..events {
            self.next();
            self.fabric.check()?;
        }
        Ok(())
    }

    fn count(has_states: bool) -> usize {
        let mut script = Self::new(has_states);
        while script.next() {
            assert!(script.events < EVENTS_MAX, "the run does not end");
        }
        script.events
    }
}

/// Disturbs the run at every event, and lets it end.
fn sweep_of<S: Store>(
    what: &str,
    has_states: bool,
    disturb: impl Fn(&mut Script<S>) -> Result<(), String>,
) -> usize {
    let events = Script::<S>::count(has_states);
    for event in 0..events {
        let mut script = Script::until(event, has_states);
        let ended = disturb(&mut script).and_then(|()| script.fabric.finish());
        assert_eq!(ended, Ok(()), "{what} at event {event} of {events}");
    }
    println!("{what} at each of {events} events");
    events
}

fn sweep(what: &str, disturb: impl Fn(&mut Script<ListStore>) -> Result<(), String>) -> usize {
    sweep_of(what, false, disturb)
}

/// With states, and journals on disks that lose what is not synchronised.
fn sweep_states(
    what: &str,
    disturb: impl Fn(&mut Script<JournalStore>) -> Result<(), String>,
) -> usize {
    sweep_of(what, true, disturb)
}

#[test]
fn crash_of_each_replica_at_every_event() {
    for replica in 0..3 {
        for down in [0, 7, 60] {
            let events = sweep("a crash of one replica", |script| {
                script.fabric.crash(replica);
                script.go_on(down)?;
                script.fabric.restart(replica);
                script.go_on(down)
            });
            assert!(events > 100, "the run has {events} events");
        }
    }
}

#[test]
fn second_crash_at_every_event_of_a_recovery() {
    for first in 0..3 {
        sweep("a crash of one replica, and of another", |script| {
            // The other one crashes as often before the recovery has begun as after its end.
            let events = script.events;
            script.fabric = Script::until(40, false).fabric;
            script.fabric.crash(first);
            script.go_on(20)?;
            script.fabric.restart(first);
            script.go_on(events)?;
            script.fabric.crash((first + 1) % 3);
            script.go_on(15)?;
            script.fabric.restart((first + 1) % 3);
            Ok(())
        });
    }
}

#[test]
fn exclusion_of_each_replica_at_every_event() {
    for replica in 0..3 {
        sweep("an exclusion of one replica", |script| {
            script.fabric.exclude(replica);
            script.go_on(30)?;
            script.fabric.rejoin(replica);
            Ok(())
        });
    }
}

#[test]
fn crash_of_a_client_at_every_event() {
    for user in 0..2 {
        sweep("a crash of a client", |script| {
            script.fabric.crash_client(user);
            Ok(())
        });
    }
}

/// A fabric without controllers: only the replica itself says that it ends.
fn without_controllers<S: Store>(script: &mut Script<S>) {
    script.fabric.lacks_controller = true;
}

#[test]
fn leave_of_each_replica_at_every_event() {
    for replica in 0..3 {
        for down in [0, 7] {
            let leave = |script: &mut Script<ListStore>| {
                assert!(script.fabric.leave(replica, false), "the others receive it");
                script.go_on(down)?;
                script.fabric.go_on_without_ended()?;
                script.fabric.restart(replica);
                script.go_on(down)
            };
            sweep("a leave", leave);
            sweep("a leave without controllers", |script| {
                without_controllers(script);
                leave(script)
            });
        }
    }
}

#[test]
fn leave_with_a_state_at_every_event() {
    for replica in 0..3 {
        sweep_states("a leave without controllers, with a state", |script| {
            without_controllers(script);
            script.fabric.leave(replica, false);
            script.fabric.go_on_without_ended()?;
            script.fabric.restart(replica);
            Ok(())
        });
    }
}

#[test]
fn return_soon_after_a_leave_at_every_event() {
    for replica in 0..3 {
        sweep("a leave, and a return before the others know", |script| {
            without_controllers(script);
            script.fabric.leave(replica, false);
            script.fabric.restart(replica);
            Ok(())
        });
    }
}

#[test]
fn leave_whose_message_is_lost_at_every_event() {
    for replica in 0..3 {
        sweep("a leave whose message is lost", |script| {
            script.fabric.leave(replica, true);
            script.fabric.go_on_without_ended()?;
            script.fabric.restart(replica);
            Ok(())
        });
        // No controller decides on the end: the others wait until the replica returns.
        sweep("a leave whose message is lost, without controllers", |script| {
            without_controllers(script);
            script.fabric.leave(replica, true);
            script.go_on(20)?;
            script.fabric.restart(replica);
            Ok(())
        });
    }
}

#[test]
fn leave_beside_a_crash_at_every_event() {
    for replica in 0..3 {
        let other = (replica + 1) % 3;
        for between in [0, 3, 15] {
            sweep("a leave, and a crash of another replica", |script| {
                script.fabric.leave(replica, false);
                script.go_on(between)?;
                script.fabric.crash(other);
                script.fabric.go_on_without_ended()?;
                script.fabric.restart(replica);
                script.go_on(between)?;
                script.fabric.restart(other);
                Ok(())
            });
            sweep("a crash, and a leave of another replica", |script| {
                script.fabric.crash(other);
                script.go_on(between)?;
                script.fabric.leave(replica, false);
                script.fabric.go_on_without_ended()?;
                script.fabric.restart(replica);
                script.go_on(between)?;
                script.fabric.restart(other);
                Ok(())
            });
        }
    }
}

#[test]
fn leaves_of_two_replicas_at_every_event() {
    for last in 0..3 {
        let (first, second) = ((last + 1) % 3, (last + 2) % 3);
        for between in [0, 4, 20] {
            sweep("two leaves", |script| {
                without_controllers(script);
                script.fabric.leave(first, false);
                script.go_on(between)?;
                script.fabric.leave(second, false);
                script.go_on(between)?;
                script.fabric.restart(second);
                script.fabric.restart(first);
                Ok(())
            });
        }
    }
}

/// Lets a replica leave at every event of the return of another one, or of its own.
#[test]
fn leave_at_every_event_of_a_recovery() {
    for first in 0..3 {
        for leaver in 0..3 {
            sweep("a leave during a recovery", |script| {
                let events = script.events;
                script.fabric = Script::until(40, false).fabric;
                without_controllers(script);
                script.fabric.leave(first, false);
                script.fabric.go_on_without_ended()?;
                script.fabric.restart(first);
                script.go_on(events)?;
                script.fabric.leave(leaver, false);
                script.fabric.go_on_without_ended()?;
                script.fabric.restart(leaver);
                Ok(())
            });
        }
    }
}

#[test]
fn loss_of_power_at_every_event() {
    sweep("a loss of power", |script| {
        script.fabric.power_loss();
        Ok(())
    });
    sweep("a crash, and a loss of power", |script| {
        script.fabric.crash(1);
        script.go_on(12)?;
        script.fabric.power_loss();
        Ok(())
    });
    sweep("two losses of power", |script| {
        script.fabric.power_loss();
        script.go_on(9)?;
        script.fabric.power_loss();
        Ok(())
    });
}

#[test]
fn crash_with_a_state_at_every_event() {
    for replica in 0..3 {
        for down in [0, 60] {
            sweep_states("a crash of one replica with a state", |script| {
                script.fabric.crash(replica);
                script.go_on(down)?;
                script.fabric.restart(replica);
                script.go_on(down)
            });
        }
    }
}

#[test]
fn loss_of_power_with_states_at_every_event() {
    sweep_states("a loss of power with states", |script| {
        script.fabric.power_loss();
        Ok(())
    });
    sweep_states("a crash with states, and a loss of power", |script| {
        script.fabric.crash(1);
        script.go_on(40)?;
        script.fabric.restart(1);
        script.go_on(9)?;
        script.fabric.power_loss();
        script.go_on(9)?;
        script.fabric.power_loss();
        Ok(())
    });
}

/// Lets the disks of some replicas be full after a number of operations. Each of these replicas
/// goes on for `delay` events, as it looks at its disk from time to time, then ends, and starts
/// again once its disk has space. Returns whether a disk was full.
fn fill_logs(replicas: &[usize], operations: u64, delay: usize) -> Result<bool, String> {
    let mut script = Script::<JournalStore>::new(true);
    for replica in replicas {
        script.fabric.nodes[*replica].store.fill_after(Some(operations));
    }
    let (mut ended, mut full_since) = (0, [None; 3]);
    while ended < replicas.len() && (script.next() || full_since.iter().any(Option::is_some)) {
        for replica in replicas {
            let node = &script.fabric.nodes[*replica];
            if node.replica.is_some() && node.store.was_full() {
                let since = *full_since[*replica].get_or_insert(script.events);
                if script.events >= since + delay {
                    script.fabric.crash(*replica);
                    full_since[*replica] = None;
                    ended += 1;
                }
            }
        }
        script.fabric.check()?;
    }
    let are_all = ended == script.fabric.nodes.len();
    if !are_all {
        script.go_on(20)?;
    }
    for replica in replicas {
        script.fabric.nodes[*replica].store.fill_after(None);
    }
    match are_all {
        true => script.fabric.power_loss(),
        false => replicas.iter().for_each(|replica| script.fabric.restart(*replica)),
    }
    script.fabric.finish()?;
    Ok(ended > 0)
}

#[test]
fn full_log_at_every_operation_loses_nothing() {
    for (replicas, delay) in [&[0][..], &[1], &[0, 2], &[0, 1, 2]].into_iter().zip([0, 7, 7, 40]) {
        let fill = |operations: &u64| match fill_logs(replicas, *operations, delay) {
            Ok(was_full) => was_full,
            Err(error) => panic!("{replicas:?} full after {operations} operations: {error}"),
        };
        let count = (0..).take_while(fill).count();
        println!("{replicas:?}: a full disk at each of {count} operations");
        assert!(count > 5, "a run has more operations");
    }
}

#[test]
fn crash_at_every_event_of_a_state_transfer() {
    let mut events = 0;
    let crash = |events, variant| match crash_while_returning(events, variant) {
        Ok(is_early) => is_early,
        Err(error) => panic!("a crash at event {events}, variant {variant}: {error}"),
    };
    // Whether the crash is early does not depend on what it loses.
    while (0..8).fold(false, |_, variant| crash(events, variant)) {
        events += 1;
        assert!(events < EVENTS_MAX, "the replica never returns");
    }
    println!("a crash at each of {events} events of a return");
    assert!(events > 25, "the return has {events} events");
}
