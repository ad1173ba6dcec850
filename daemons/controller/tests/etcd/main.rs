//! The store in a real etcd of three members.

mod cluster;
#[path = "../conformance/mod.rs"]
mod conformance;
mod coordinators;
mod members;

use std::sync::atomic::{AtomicU32, Ordering};

use onepipe_controller::{Epoch, Store, StoreError};
use onepipe_daemon_controller::{EtcdConfig, EtcdError, EtcdStore};

use cluster::Cluster;
use conformance::{ONE, OTHER, Shared, campaign, check_conformance, numbers, record};

/// One fabric of many in the same cluster.
struct Fabric<'a> {
    cluster: &'a Cluster,
    prefix: String,
}

impl Shared for Fabric<'_> {
    type Store = EtcdStore;

    fn replica(&mut self) -> EtcdStore {
        let config = EtcdConfig { prefix: self.prefix.clone(), ..self.cluster.config() };
        EtcdStore::new(&config).expect("the endpoints are addresses")
    }

    fn stop_renewing(&mut self, _: &mut EtcdStore) {
        // Its lease expires without renewals.
    }
}

#[test]
fn etcd_conforms() {
    let cluster = Cluster::start();
    let number = AtomicU32::new(0);
    check_conformance(|| {
        let number = number.fetch_add(1, Ordering::Relaxed);
        Fabric { cluster: &cluster, prefix: format!("/onepipe/fabric{number}/") }
    });
}

#[test]
fn expired_lease_is_rebound_if_nobody_took_over() {
    let cluster = Cluster::start();
    let mut one = cluster.replica();
    let epoch = campaign(&mut one, ONE);
    // As long as two leases; if that is not enough for once, the rest holds all the same.
    std::thread::sleep(std::time::Duration::from_secs(10));
    one.append(epoch, &record(1)).expect("no other replica has become active");
    one.renew(epoch).expect("no other replica has become active");
    let mut other = cluster.replica();
    assert_eq!(other.campaign(OTHER).expect("available"), None, "it is bound to a new lease");
    let second = campaign(&mut other, OTHER);
    assert!(matches!(one.renew(epoch), Err(StoreError::Deposed)));
    assert!(second > epoch);
}

#[test]
fn one_of_two_duplicate_replicas_writes() {
    let cluster = Cluster::start();
    let (mut one, mut duplicate) = (cluster.replica(), cluster.replica());
    let first = campaign(&mut one, ONE);
    let second = duplicate.campaign(ONE).expect("available").expect("it was active itself");
    assert!(second > first);
    // Its lease is alive, but its epoch is over.
    assert!(matches!(one.renew(first), Err(StoreError::Deposed)));
    duplicate.renew(second).expect("active");
    duplicate.append(second, &record(1)).expect("active");
    let third = one.campaign(ONE).expect("available").expect("it wins as well");
    assert!(matches!(duplicate.append(second, &record(2)), Err(StoreError::Deposed)));
    one.append(third, &record(3)).expect("active");
    assert_eq!(numbers(&one.load().expect("available")), [1, 3]);
}

#[test]
fn compaction_keeps_the_log() {
    let cluster = Cluster::start();
    let mut store = cluster.replica();
    let epoch = campaign(&mut store, ONE);
    let many: Vec<_> = (0..700).map(record).collect();
    store.replace(epoch, &many).expect("active");
    cluster.compact();
    assert_eq!(store.load().expect("available"), many);
    store.append(epoch, &record(700)).expect("active");
    cluster.compact();
    let expected: Vec<u32> = (0..=700).collect();
    assert_eq!(numbers(&cluster.replica().load().expect("available")), expected);
    assert_eq!(campaign(&mut store, ONE), Epoch(epoch.0 + 1));
}

#[test]
fn invalid_endpoints_are_reported() {
    let none = EtcdConfig::new(Vec::<String>::new());
    assert!(matches!(EtcdStore::new(&none), Err(EtcdError::NoEndpoint)));
    let wrong = EtcdConfig::new(["http://no such host/"]);
    let error = EtcdStore::new(&wrong).expect_err("no address");
    assert!(error.to_string().contains("no such host"), "{error}");
    let config = EtcdConfig {
        deadline: std::time::Duration::from_millis(300),
        ..EtcdConfig::new(["http://127.0.0.1:1"])
    };
    let mut store = EtcdStore::new(&config).expect("an address");
    let error = store.campaign(ONE).expect_err("no listener");
    assert!(matches!(error, EtcdError::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains("etcd at http://127.0.0.1:1 is unavailable"), "{error}");
}
