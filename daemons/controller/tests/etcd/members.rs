//! Members of the cluster that are killed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use onepipe_base::ProcessId;
use onepipe_controller::{Epoch, Record, Store, StoreError};
use onepipe_daemon_controller::{EtcdError, EtcdStore};

use crate::cluster::Cluster;
use crate::conformance::{ONE, OTHER, TIMEOUT, campaign, numbers, record};

/// Appends until stopped, and sends the numbers of acknowledged records. Returns the epoch and the
/// number of failed calls.
fn append_until_stopped(
    mut store: EtcdStore,
    stop: &AtomicBool,
    acked_tx: &Sender<u32>,
) -> (Epoch, u32) {
    let epoch = campaign(&mut store, ONE);
    let (mut number, mut failures) = (0, 0);
    let mut renewed = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        match store.append(epoch, &record(number)) {
            Ok(()) => {
                acked_tx.send(number).expect("the receiver is open");
                number += 1;
            }
            Err(StoreError::Failed(EtcdError::Unavailable { .. })) => failures += 1,
            Err(error) => panic!("{error:?}"),
        }
        if renewed.elapsed() > Duration::from_millis(500) {
            renewed = Instant::now();
            match store.renew(epoch) {
                Ok(()) | Err(StoreError::Failed(EtcdError::Unavailable { .. })) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
    }
    (epoch, failures)
}

#[test]
fn killed_leader_loses_no_record() {
    let mut cluster = Cluster::start();
    let stop = AtomicBool::new(false);
    let (acked_tx, acked_rx) = channel();
    let store = cluster.replica();
    let (acknowledged, epoch, gap) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| append_until_stopped(store, &stop, &acked_tx));
        let mut acknowledged = Vec::new();
        let mut gap = Duration::ZERO;
        let mut take = |count: usize, gap: &mut Duration| {
            for _ in 0..count {
                let began = Instant::now();
                acknowledged.push(acked_rx.recv_timeout(TIMEOUT).expect("appends go on"));
                *gap = (*gap).max(began.elapsed());
            }
        };
        // The first ones wait for the campaign as well.
        take(100, &mut gap);
        gap = Duration::ZERO;
        for _ in 0..2 {
            let leader = cluster.leader();
            cluster.kill(leader);
            // More than can have been in flight already.
            take(200, &mut gap);
            cluster.start_member(leader);
            cluster.leader();
            take(100, &mut gap);
        }
        stop.store(true, Ordering::Relaxed);
        let (epoch, failures) = writer.join().expect("the thread has not panicked");
        acknowledged.extend(acked_rx.try_iter());
        println!("longest gap {gap:?}, {failures} calls failed");
        (acknowledged, epoch, gap)
    });
    assert!(gap < Duration::from_secs(60), "{gap:?}");
    let mut other = cluster.replica();
    let later = campaign(&mut other, OTHER);
    assert!(later > epoch);
    let found = numbers(&other.load().expect("available"));
    assert!(found.is_sorted(), "{found:?}");
    let found: BTreeSet<u32> = found.into_iter().collect();
    let lost: Vec<&u32> = acknowledged.iter().filter(|number| !found.contains(number)).collect();
    assert!(lost.is_empty(), "{lost:?}");
}

#[test]
fn contending_replicas_never_share_an_epoch() {
    let mut cluster = Cluster::start();
    let stop = AtomicBool::new(false);
    let stores: Vec<EtcdStore> = (0..3).map(|_| cluster.replica()).collect();
    let contend = |mut store: EtcdStore, replica: ProcessId| {
        let mut epochs = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let Ok(Some(epoch)) = store.campaign(replica) else {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            };
            epochs.push(epoch);
            let is_written = store.append(epoch, &record(epoch.0)).is_ok();
            // Every third replica stops without resigning, and its lease has to expire.
            if epoch.0 % 3 != 0 {
                let _ = store.resign(epoch);
            }
            println!("{replica:?} {epoch:?} {is_written}");
        }
        epochs
    };
    let (epochs, log) = std::thread::scope(|scope| {
        let contend = &contend;
        let replicas = stores.into_iter().zip(0..);
        let threads: Vec<_> = replicas
            .map(|(store, number)| scope.spawn(move || contend(store, ProcessId(90 + number))))
            .collect();
        for _ in 0..2 {
            std::thread::sleep(Duration::from_secs(3));
            let leader = cluster.leader();
            cluster.kill(leader);
            std::thread::sleep(Duration::from_secs(3));
            cluster.start_member(leader);
        }
        cluster.leader();
        std::thread::sleep(Duration::from_secs(2));
        stop.store(true, Ordering::Relaxed);
        let epochs: Vec<Epoch> = threads
            .into_iter()
            .flat_map(|thread| thread.join().expect("the thread has not panicked"))
            .collect();
        (epochs, cluster.replica().load().expect("available"))
    });
    let distinct: BTreeSet<Epoch> = epochs.iter().copied().collect();
    assert_eq!(distinct.len(), epochs.len(), "an epoch twice: {epochs:?}");
    assert!(distinct.len() > 3, "they did take turns: {epochs:?}");
    let mut last = None;
    for entry in &log {
        match entry {
            Record::Epoch { epoch, .. } => {
                assert!(last < Some(*epoch), "{epoch:?} after {last:?}");
                last = Some(*epoch);
            }
            other => assert_eq!(numbers(std::slice::from_ref(other)), [last.map_or(0, |l| l.0)]),
        }
    }
}

#[test]
fn unavailable_without_quorum_and_resumes_with_one() {
    let mut cluster = Cluster::start();
    let mut store = cluster.replica();
    let epoch = campaign(&mut store, ONE);
    store.append(epoch, &record(1)).expect("active");
    cluster.kill(0);
    cluster.kill(1);
    let began = Instant::now();
    let failed = store.append(epoch, &record(2));
    assert!(matches!(failed, Err(StoreError::Failed(EtcdError::Unavailable { .. }))), "{failed:?}");
    assert!(matches!(store.renew(epoch), Err(StoreError::Failed(EtcdError::Unavailable { .. }))));
    assert!(matches!(store.load(), Err(EtcdError::Unavailable { .. })));
    let mut other = cluster.replica();
    assert!(matches!(other.campaign(OTHER), Err(EtcdError::Unavailable { .. })));
    // Each of these calls has a deadline.
    assert!(began.elapsed() < TIMEOUT, "{:?}", began.elapsed());

    cluster.start_member(0);
    cluster.start_member(1);
    cluster.leader();
    let began = Instant::now();
    // Its lease may have expired, but no replica has taken over.
    while let Err(error) = store.renew(epoch) {
        assert!(matches!(error, StoreError::Failed(EtcdError::Unavailable { .. })), "{error:?}");
        assert!(began.elapsed() < TIMEOUT, "the lease is not renewed");
    }
    store.append(epoch, &record(3)).expect("there is a quorum");
    let found = numbers(&store.load().expect("there is a quorum"));
    assert!(found == [1, 3] || found == [1, 2, 3], "{found:?}");
}
