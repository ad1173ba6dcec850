//! Coordinators of agreed multicast whose decisions are in a real etcd.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Scope;
use std::time::{Duration, Instant};

use onepipe_amcast::{Client, GroupId, GroupSet, Member, Replica, ReplicaEvent};
use onepipe_controller::{Record, Store};
use onepipe_daemon_controller::{
    CoordinatorConfig, CoordinatorDaemon, CoordinatorEvent, EtcdConfig,
};
use onepipe_transport_amcast::{Directory, Loopback, MeshDriver, Options, Role, open};
use onepipe_transport_driver::DrivenMachine;

use crate::cluster::Cluster;
use crate::conformance::PATIENCE;

/// Whoever is named, told with the place of the coordinator that says so.
type News = (usize, CoordinatorEvent);

/// One who works in a thread of its own, until it is told to stop: that is how it dies.
fn work<'scope, M: DrivenMachine + Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    mut station: MeshDriver<M>,
    stop: &'scope AtomicBool,
) {
    scope.spawn(move || {
        while !stop.load(Ordering::Acquire) {
            let progress = station.turn(|_, _| {});
            station.rest(progress);
        }
    });
}

fn coordinate<'scope>(
    scope: &'scope Scope<'scope, '_>,
    (place, directory, etcd): (usize, &Directory, &EtcdConfig),
    stop: &'scope AtomicBool,
    tell: Sender<News>,
) {
    let mut config =
        CoordinatorConfig::new(directory.clone(), directory.of(Role::Coordinator)[place]);
    // Who is merely slow on a busy machine is not replaced.
    (config.ask, config.silence) = (Duration::from_millis(100), Duration::from_secs(2));
    let store = onepipe_daemon_controller::EtcdStore::new(etcd).expect("these are addresses");
    let mut daemon = CoordinatorDaemon::new(&config, store).expect("there is a port");
    scope.spawn(move || {
        // The test may be over by the time it resigns.
        daemon.run(stop, |event| {
            let _ = tell.send((place, event));
        });
    });
}

/// Stops everybody when the test is over, however it ends.
struct Stop<'a>([&'a AtomicBool; 4]);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|stop| stop.store(true, Ordering::Release));
    }
}

/// Waits for news of one kind. Answers them.
fn await_news(told: &Receiver<News>, is_it: impl Fn(&News) -> bool) -> News {
    let began = Instant::now();
    loop {
        let left = PATIENCE.saturating_sub(began.elapsed());
        let news = told.recv_timeout(left).expect("a coordinator says so");
        if is_it(&news) {
            return news;
        }
    }
}

/// Sends a message and drives both ends until it is delivered.
fn deliver(client: &mut MeshDriver<Client>, replica: &mut MeshDriver<Replica>, message: &[u8]) {
    let now = client.now();
    let to = GroupSet::EMPTY.with(GroupId(0));
    client.machine_mut().amcast(now, to, message).expect("the window is wider");
    let (began, mut has_come) = (Instant::now(), false);
    while !has_come {
        assert!(began.elapsed() < PATIENCE, "{message:?} is not delivered");
        client.turn(|_, _| {});
        replica.turn(|machine, event| {
            if let ReplicaEvent::Delivered(delivery) = event {
                assert_eq!(machine.message(&delivery), message, "one at a time");
                has_come = true;
            }
        });
        std::thread::yield_now();
    }
}

#[test]
fn a_leader_is_replaced_while_members_of_the_store_die_too() {
    let mut cluster = Cluster::start();
    let etcd = cluster.config();
    let world = Loopback { groups: 1, members: 3, replicas: 1, clients: 1, coordinators: 2 };
    let directory = world.directory().expect("there are ports");
    let options = Options::default();
    let [first, second, others] = [const { AtomicBool::new(false) }; 3];
    let first_member = AtomicBool::new(false);
    let (tell, told) = channel();
    let is_active = |place| move |news: &News| *news == (place, CoordinatorEvent::Active);
    std::thread::scope(|scope| {
        let _stop = Stop([&first, &second, &others, &first_member]);
        for (place, at) in directory.of(Role::Member(GroupId(0))).into_iter().enumerate() {
            let station = open(&directory, (at, "member"), &options, Member::new);
            let stop = if place == 0 { &first_member } else { &others };
            work(scope, station.expect("there is a port"), stop);
        }
        let at = directory.of(Role::Replica(GroupId(0)))[0];
        let mut replica = open(&directory, (at, "replica"), &options, Replica::new).expect("one");
        let at = directory.of(Role::Client)[0];
        let mut client = open(&directory, (at, "client"), &options, Client::new).expect("one");

        coordinate(scope, (0, &directory, &etcd), &first, tell.clone());
        await_news(&told, is_active(0));
        coordinate(scope, (1, &directory, &etcd), &second, tell.clone());
        deliver(&mut client, &mut replica, b"before");

        // Both at once: who leads the group, and who leads the store that is to say who does next.
        let etcd_leader = cluster.leader();
        cluster.kill(etcd_leader);
        first_member.store(true, Ordering::Release);
        let leads = |news: &News| matches!(news.1, CoordinatorEvent::Leads(_));
        let (_, CoordinatorEvent::Leads(decision)) = await_news(&told, leads) else {
            unreachable!("that was waited for")
        };
        assert!(decision.epoch > 1 && decision.leader.0 != 0, "{decision:?}");
        deliver(&mut client, &mut replica, b"after");
        cluster.revive(etcd_leader);
        cluster.leader();

        // Another coordinator goes on from what is written there.
        first.store(true, Ordering::Release);
        await_news(&told, is_active(1));
        deliver(&mut client, &mut replica, b"with another one");
        let log = cluster.replica().load().expect("available");
        let is_written = |record: &Record| {
            matches!(record, Record::Leads(leads)
                if (leads.epoch, leads.leader) == (decision.epoch, decision.leader))
        };
        assert!(log.iter().any(is_written), "{log:?}");
    });
}
