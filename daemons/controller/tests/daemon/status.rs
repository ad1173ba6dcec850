//! The status of a controller without a fabric.

use onepipe_daemon_controller::{Attachment, ControllerDaemon, RedbStore, StartError};

use crate::harness::{Replica, TIMEOUT, config, get};

/// An address without a listener.
fn nowhere() -> Attachment {
    Attachment::Switch("127.0.0.1:9".parse().expect("an address"))
}

#[test]
fn controller_without_its_switch_becomes_active() {
    let folder = tempfile::tempdir().expect("a folder");
    let replica = Replica::start(&config(nowhere(), 6), &folder.path().join("log"));
    let report = replica.until("active", |report| report.epoch == Some(1));
    assert_eq!((report.replica, report.members.len()), (6, 0));
    assert_eq!(report.attachment, "switch 127.0.0.1:9");
    assert!(report.store.is_available && report.store.error.is_none());
    let (head, text) = get(replica.address, "/metrics");
    assert!(head.contains("200") && head.contains("application/openmetrics-text"), "{head}");
    assert!(text.contains("onepipe_controller_active 1\n"), "{text}");
    let (head, _) = get(replica.address, "/else");
    assert!(head.contains("404"), "{head}");
}

#[test]
fn idle_clients_leave_the_status_reachable() {
    let folder = tempfile::tempdir().expect("a folder");
    let replica = Replica::start(&config(nowhere(), 6), &folder.path().join("log"));
    let connect = || std::net::TcpStream::connect(replica.address).expect("it listens");
    let mut idle: Vec<_> = (0..200).map(|_| connect()).collect();
    // Most are closed at once, the others are cut off in time.
    for stream in &mut idle {
        stream.set_read_timeout(Some(TIMEOUT)).expect("a duration");
        let closed = std::io::Read::read(stream, &mut [0]);
        let is_open = closed.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
        assert!(!is_open, "a connection stays open");
    }
    let (head, text) = get(replica.address, "/metrics");
    assert!(head.contains("200"), "{head}");
    assert!(text.contains("onepipe_controller_status_connections_refused_total 1"), "{text}");
    assert!(text.contains("onepipe_controller_status_connections_timed_out_total "), "{text}");
}

#[test]
fn unusable_store_is_reported_and_retried() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("log");
    std::fs::write(&store, "no store").expect("write");
    let replica = Replica::start(&config(nowhere(), 6), &store);
    let report = replica.until("reported", |report| report.store.error.is_some());
    assert!(!report.store.is_available && report.epoch.is_none());
    let error = report.store.error.expect("there is one");
    assert!(error.contains("is not a controller's store"), "{error}");
    std::fs::remove_file(&store).expect("ours");
    replica.until("active", |report| report.epoch == Some(1) && report.store.is_available);
}

#[test]
fn replicas_share_one_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("log");
    let one = Replica::start(&config(nowhere(), 6), &store);
    one.until("active", |report| report.epoch == Some(1));
    let other = Replica::start(&config(nowhere(), 7), &store);
    other.until("asked", |report| report.store.is_available);
    assert_eq!(other.report().epoch, None);
    drop(one);
    other.until("active", |report| report.epoch == Some(2));
}

#[test]
fn start_errors_name_the_cause() {
    let store = || RedbStore::new("unused");
    let mut wrong = config(nowhere(), 5);
    let error = ControllerDaemon::new(&wrong, store()).expect_err("not one of them");
    assert!(matches!(error, StartError::Machine(_)), "{error:?}");
    wrong = config(Attachment::Segment("no/name".to_owned()), 6);
    let error = ControllerDaemon::new(&wrong, store()).expect_err("no name");
    assert!(matches!(error, StartError::Segment { .. }), "{error:?}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    wrong = config(nowhere(), 6);
    wrong.status_listen = taken.local_addr().ok();
    let error = ControllerDaemon::new(&wrong, store()).expect_err("the address is in use");
    assert!(matches!(error, StartError::Listen { .. }), "{error:?}");
}
