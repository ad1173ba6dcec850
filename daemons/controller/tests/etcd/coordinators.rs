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
use crate::conformance::TIMEOUT;

/// An event, with the index of its coordinator.
type CoordinatorNotice = (usize, CoordinatorEvent);

/// Runs a node in a thread of its own until it is stopped: that is how it dies.
fn run_node<'scope, M: DrivenMachine + Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    mut mesh_driver: MeshDriver<M>,
    stop: &'scope AtomicBool,
) {
    scope.spawn(move || {
        while !stop.load(Ordering::Acquire) {
            let progress = mesh_driver.turn(|_, _| {});
            mesh_driver.rest(progress);
        }
    });
}

fn run_coordinator<'scope>(
    scope: &'scope Scope<'scope, '_>,
    (index, directory, etcd): (usize, &Directory, &EtcdConfig),
    stop: &'scope AtomicBool,
    notices_tx: Sender<CoordinatorNotice>,
) {
    let mut config =
        CoordinatorConfig::new(directory.clone(), directory.of(Role::Coordinator)[index]);
    // A leader that is merely slow on a busy machine is not replaced.
    (config.probe_interval, config.leader_timeout) =
        (Duration::from_millis(100), Duration::from_secs(2));
    let store = onepipe_daemon_controller::EtcdStore::new(etcd).expect("these are addresses");
    let mut daemon = CoordinatorDaemon::new(&config, store).expect("there is a port");
    scope.spawn(move || {
        // The test may be over by the time it resigns.
        let ran = daemon.run(stop, |event| {
            let _ = notices_tx.send((index, event));
        });
        ran.expect("its store works");
    });
}

/// Stops all nodes when the test is over, however it ends.
struct StopAll<'a>([&'a AtomicBool; 4]);

impl Drop for StopAll<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|stop| stop.store(true, Ordering::Release));
    }
}

/// Waits for a matching event and returns it.
fn await_notice(
    notices_rx: &Receiver<CoordinatorNotice>,
    is_it: impl Fn(&CoordinatorNotice) -> bool,
) -> CoordinatorNotice {
    let began = Instant::now();
    loop {
        let left = TIMEOUT.saturating_sub(began.elapsed());
        let notice = notices_rx.recv_timeout(left).expect("an event of a coordinator");
        if is_it(&notice) {
            return notice;
        }
    }
}

/// Sends a message and drives both ends until it is delivered.
fn deliver(client: &mut MeshDriver<Client>, replica: &mut MeshDriver<Replica>, message: &[u8]) {
    let now = client.now();
    let to = GroupSet::EMPTY.with(GroupId(0));
    client.machine_mut().amcast(now, to, message).expect("the window is wider");
    let (began, mut is_delivered) = (Instant::now(), false);
    while !is_delivered {
        assert!(began.elapsed() < TIMEOUT, "{message:?} is not delivered");
        client.turn(|_, _| {});
        replica.turn(|machine, event| {
            if let ReplicaEvent::Delivered(delivery) = event {
                assert_eq!(machine.message(&delivery), message, "one at a time");
                is_delivered = true;
            }
        });
        std::thread::yield_now();
    }
}

#[test]
fn leader_is_replaced_while_store_members_die() {
    let mut cluster = Cluster::start();
    let etcd = cluster.config();
    let loopback = Loopback { groups: 1, members: 3, replicas: 1, clients: 1, coordinators: 2 };
    let directory = loopback.directory().expect("there are ports");
    let options = Options::default();
    let [first, second, others] = [const { AtomicBool::new(false) }; 3];
    let first_member = AtomicBool::new(false);
    let (notices_tx, notices_rx) = channel();
    let is_active =
        |index| move |notice: &CoordinatorNotice| *notice == (index, CoordinatorEvent::Active);
    std::thread::scope(|scope| {
        let _stop = StopAll([&first, &second, &others, &first_member]);
        for (index, at) in directory.of(Role::Member(GroupId(0))).into_iter().enumerate() {
            let mesh_driver = open(&directory, (at, "member"), &options, Member::new);
            let stop = if index == 0 { &first_member } else { &others };
            run_node(scope, mesh_driver.expect("there is a port"), stop);
        }
        let at = directory.of(Role::Replica(GroupId(0)))[0];
        let mut replica = open(&directory, (at, "replica"), &options, Replica::new).expect("one");
        let at = directory.of(Role::Client)[0];
        let mut client = open(&directory, (at, "client"), &options, Client::new).expect("one");

        run_coordinator(scope, (0, &directory, &etcd), &first, notices_tx.clone());
        await_notice(&notices_rx, is_active(0));
        run_coordinator(scope, (1, &directory, &etcd), &second, notices_tx.clone());
        deliver(&mut client, &mut replica, b"before");

        // Both at once: the leader of the group, and the leader of the store of the next decision.
        let etcd_leader = cluster.leader();
        cluster.kill(etcd_leader);
        first_member.store(true, Ordering::Release);
        let leads = |notice: &CoordinatorNotice| matches!(notice.1, CoordinatorEvent::Leads(_));
        let (_, CoordinatorEvent::Leads(decision)) = await_notice(&notices_rx, leads) else {
            unreachable!("filtered above")
        };
        assert!(decision.epoch > 1 && decision.leader.0 != 0, "{decision:?}");
        deliver(&mut client, &mut replica, b"after");
        cluster.start_member(etcd_leader);
        cluster.leader();

        // Another coordinator continues from the recorded state.
        first.store(true, Ordering::Release);
        await_notice(&notices_rx, is_active(1));
        deliver(&mut client, &mut replica, b"with another one");
        let log = cluster.replica().load().expect("available");
        let is_written = |record: &Record| {
            matches!(record, Record::Leads(leads)
                if (leads.epoch, leads.leader) == (decision.epoch, decision.leader))
        };
        assert!(log.iter().any(is_written), "{log:?}");
    });
}
