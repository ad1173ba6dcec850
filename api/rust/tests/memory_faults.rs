//! Registered memory when its owner is killed, and when a process sends what is no request.

#[path = "api/harness/mod.rs"]
mod harness;

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use harness::switch::Running;
use harness::{DEADLINE, fabric, message, process};
use onepipe::memory::{
    MemoryError, Operation, OperationError, Processes, RegionId, RequestError, Rights,
};
use onepipe::{Builder, Event, Pipe, ProcessId};
use onepipe_base::Controllers;
use onepipe_daemon_controller::{
    Attachment, Config as ControllerConfig, ControllerDaemon, RedbStore,
};
use onepipe_endpoint::{Config, Endpoint, Links, Message, SendError};
use onepipe_memory::{Order, Reply, Request};
use onepipe_transport_clock::SystemClock;
use onepipe_transport_driver::{Config as DriverConfig, Driver};
use onepipe_transport_shm::{Config as ShmConfig, Shm};
use onepipe_wire::{MarkedMessage, Service};

const REGION: RegionId = RegionId(3);
/// Set in a child process that owns a region: the fabric, or "udp " and the address of the switch.
const ROLE: &str = "ONEPIPE_TEST_OWNER";
const OWNER: ProcessId = ProcessId(2);
/// Without controllers, a scattering to a process that was killed is given up after this time.
const GIVE_UP_NS: u64 = 500_000_000;
/// With a controller, a process that sends nothing for this time has failed.
const LINK_TIMEOUT_NS: u64 = 1_500_000_000;

fn impatient(builder: Builder) -> Builder {
    builder
        .tune(|config| config.give_up_after_ns = GIVE_UP_NS)
        .tune_memory(|options| options.client.give_up_ns = DEADLINE.as_nanos() as u64)
}

/// Runs the child process: owns a region, and does nothing until it is killed.
fn own_forever(name: &str) {
    let builder = match name.strip_prefix("udp ") {
        Some(address) => Pipe::builder().process(OWNER.0).processes(8).udp(address),
        None => impatient(process(name, OWNER.0)),
    };
    let mut pipe = builder.join().expect("the id is free");
    pipe.register(REGION, vec![0; 8], Rights::all()).expect("it is the first");
    loop {
        std::thread::park();
    }
}

struct Owner(Child);

impl Owner {
    fn start(test: &str, name: &str) -> Self {
        let child = Command::new(std::env::current_exe().expect("this test has a path"))
            .args(["--exact", test, "--nocapture"])
            .env(ROLE, name)
            .stdout(Stdio::null())
            .spawn();
        Self(child.expect("this test can start itself"))
    }
}

impl Drop for Owner {
    /// The process never ends by itself, also when an assertion has failed here.
    fn drop(&mut self) {
        self.0.kill().expect("the process is a child");
        self.0.wait().expect("the process is a child");
    }
}

/// Waits until the child has registered its region, and adds to its word.
fn add_when_ready(pipe: &mut Pipe) -> u64 {
    let began = Instant::now();
    loop {
        match pipe.remote(OWNER, REGION).fetch_add(0, 1) {
            Ok(before) => return before,
            Err(OperationError::Failed { reason: MemoryError::Refused(_), .. }) => {}
            Err(error) => panic!("{error}"),
        }
        assert!(began.elapsed() < DEADLINE, "the child does not register its region");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn killed_owner_ends_its_requests_alone() {
    if let Ok(name) = std::env::var(ROLE) {
        return own_forever(&name);
    }
    let name = fabric("killed-owner");
    let join = |id| impatient(process(&name, id)).join().expect("the id is free");
    let (mut client, mut other) = (join(0), join(1));
    other.register(REGION, vec![0; 8], Rights::all()).expect("it is the first");
    let add = [Operation::FetchAdd { region: REGION, offset: 0, addend: 1 }];
    for _ in 0..2 {
        let owner = Owner::start("killed_owner_ends_its_requests_alone", &name);
        assert!(client.wait_for_peers(2, DEADLINE));
        // Each incarnation has a region of its own.
        assert_eq!(add_when_ready(&mut client), 0);
        assert_eq!(client.remote(OWNER, REGION).fetch_add(0, 1), Ok(1));
        drop(owner);
        let error = client.remote(OWNER, REGION).fetch_add(0, 1).expect_err("it was killed");
        assert!(
            matches!(&error, OperationError::Failed { reason: MemoryError::OwnerEnded, .. }),
            "{error}"
        );
        assert!(error.may_be_executed());
        // The other owner goes on, alone and beside the one that was killed.
        let before = client.remote(ProcessId(1), REGION).fetch_add(0, 1).expect("it is alive");
        assert_eq!(client.remote(ProcessId(1), REGION).fetch_add(0, 1), Ok(before + 1));
        assert_eq!(client.remote(ProcessId(1), REGION).read(0, 1), Ok(vec![before as u8 + 2]));
    }
    // A process that has never been there is no owner.
    let refused = client.execute(&[(ProcessId(1), &add), (ProcessId(1), &add)]);
    assert!(matches!(refused, Err(RequestError::Submit(_))), "{refused:?}");
}

/// Without shared memory, the controllers decide that the owner has failed.
#[test]
fn controllers_end_requests_to_killed_owner() {
    if let Ok(name) = std::env::var(ROLE) {
        return own_forever(&name);
    }
    const CONTROLLERS: Controllers = Controllers { first: ProcessId(7), count: 1 };
    let switch = Running::start_with("127.0.0.1:0", |config| {
        config.controllers = Some(CONTROLLERS);
        config.link_timeout_ns = LINK_TIMEOUT_NS;
    });
    let folder = tempfile::tempdir().expect("a folder");
    let attachment = Attachment::Switch(switch.address);
    let config = ControllerConfig::new(attachment, CONTROLLERS.first, CONTROLLERS);
    let daemon = ControllerDaemon::new(&config, RedbStore::new(folder.path().join("store")));
    let daemon = daemon.expect("the daemon starts");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| daemon.run(&stop, |_| {}).expect("its store works"));
        let _stopping = Stopping(&stop);
        let builder = Pipe::builder().process(0).processes(8).udp(switch.address);
        let give_up_ns = DEADLINE.as_nanos() as u64;
        let builder = builder.tune_memory(|options| options.client.give_up_ns = give_up_ns);
        let mut client = builder.join().expect("the switch is there");
        let role = format!("udp {}", switch.address);
        let owner = Owner::start("controllers_end_requests_to_killed_owner", &role);
        assert!(client.wait_for_peers(1, DEADLINE));
        assert_eq!(add_when_ready(&mut client), 0);
        drop(owner);
        let error = client.remote(OWNER, REGION).fetch_add(0, 1).expect_err("it was killed");
        assert!(
            matches!(&error, OperationError::Failed { reason: MemoryError::OwnerEnded, .. }),
            "{error}"
        );
        let Some(Event::ProcessFailed(failed)) = client.recv_timeout(DEADLINE) else {
            panic!("the application is notified, too")
        };
        assert_eq!(failed.process, OWNER);
    });
}

/// Stops the controller when it is dropped, also when an assertion has failed.
struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A process that sends what it likes: its endpoint neither marks nor escapes.
type RawProcess = Driver<Endpoint, Shm, SystemClock>;

fn join_raw(name: &str, id: u32) -> RawProcess {
    let shm = Shm::attach(name, Some(ProcessId(id)), &ShmConfig::default()).expect("it is free");
    let config = Config {
        processes_max: shm.config().processes_max,
        links: Links::Mesh,
        frame_len_max: shm.config().frame_len_max,
        has_checksums: shm.config().has_checksums,
        link_timeout_ns: shm.config().link_timeout_ns,
        beacon_interval_ns: 0,
        probes_max: 100_000,
        ..Config::new(shm.process(), shm.incarnation())
    };
    let clock = shm.clock();
    let endpoint = Endpoint::new(config).expect("a sound configuration");
    Driver::new(endpoint, shm, clock, DriverConfig::default())
}

/// Sends a payload as it is, when there is capacity.
fn send_raw(raw: &mut RawProcess, service: Service, payload: &[u8]) {
    let message = [Message { to: ProcessId(0), payload }];
    loop {
        let endpoint = raw.machine_mut();
        let sent = match service {
            Service::BestEffort => endpoint.scatter(&message),
            Service::Reliable => endpoint.scatter_reliably(&message),
        };
        match sent {
            Ok(_) => break,
            Err(SendError::BufferFull { .. }) => turn_raw(raw),
            Err(error) => panic!("{error}"),
        }
    }
}

fn turn_raw(raw: &mut RawProcess) {
    raw.turn(|endpoint, event| {
        if let onepipe_endpoint::Event::Delivered(delivery) = event {
            endpoint.release(delivery);
        }
    });
    std::thread::yield_now();
}

/// Returns what may be taken for a request or a reply, and is none that changes the region.
fn hostile_payloads() -> Vec<Vec<u8>> {
    let marked = |body: &[u8]| {
        let mut marked = Vec::new();
        MarkedMessage::Memory(body).write(|part| marked.extend_from_slice(part));
        marked
    };
    let operations = vec![
        Operation::Read { region: REGION, offset: u64::MAX, len: u32::MAX },
        Operation::Write { region: REGION, offset: 0, bytes: b"evil" },
        Operation::CompareAndSwap { region: REGION, offset: 0, expected: 0, new: 1 },
        Operation::FetchAdd { region: REGION, offset: 0, addend: 1 },
    ];
    let execute =
        Request::Execute { session: 1, number: 9, finished: 3, order: Order::Total, operations }
            .to_bytes();
    let ask = Request::Ask { session: u64::MAX, number: u64::MAX }.to_bytes();
    let at = onepipe::Timestamp::from_ns(1);
    let reply = Reply { session: 1, number: 1, at, result: Ok(vec![]) }.to_bytes();
    let mut all = vec![marked(&execute)[..7].to_vec()];
    for whole in [&execute, &ask, &reply] {
        // Every beginning, and every byte changed.
        for len in 0..=whole.len() {
            all.push(marked(&whole[..len]));
        }
        for at in 0..whole.len() {
            for change in [0x01, 0x80, 0xff] {
                let mut changed = whole.clone();
                changed[at] ^= change;
                all.push(marked(&changed));
            }
        }
    }
    for kind in [0, 3, 77, 255] {
        let mut unknown = marked(b"?");
        unknown[7] = kind;
        all.push(unknown);
    }
    all
}

#[test]
fn hostile_requests_change_nothing_and_are_no_events() {
    let name = fabric("hostile-memory");
    let mut owner = impatient(process(&name, 0)).join().expect("the id is free");
    // Process 1 alone may do anything; process 2 may only read.
    let only = || Processes::Only([ProcessId(1)].into());
    let rights = Rights { read: Processes::All, write: only(), atomics: only() };
    owner.register(REGION, b"unchanged".to_vec(), rights).expect("it is the first");
    let mut client = impatient(process(&name, 1)).join().expect("the id is free");
    let mut raw = join_raw(&name, OWNER.0);
    assert!(owner.wait_for_peers(2, DEADLINE));
    let payloads = hostile_payloads();
    for service in [Service::BestEffort, Service::Reliable] {
        for payload in &payloads {
            send_raw(&mut raw, service, payload);
        }
        send_raw(&mut raw, service, b"the end");
        let began = Instant::now();
        while !raw.machine().is_drained() {
            assert!(began.elapsed() < DEADLINE, "{:?}", raw.machine().stats());
            turn_raw(&mut raw);
        }
        // The application gets this message only.
        assert_eq!(message(&mut owner).payload, b"the end");
        assert_eq!(owner.try_recv(), None);
    }
    let stats = owner.memory_stats().expect("it has not left");
    assert!(stats.malformed >= 10, "{stats:?}");
    assert!(stats.owner.malformed >= 100, "{stats:?}");
    assert!(stats.owner.refused >= 10, "{stats:?}");
    assert_eq!(owner.with_region(REGION, |bytes| bytes.to_vec()), Ok(b"unchanged".to_vec()));
    let mut region = client.remote(ProcessId(0), REGION);
    region.write(2, b"CHAN").expect("process 1 may write");
    assert_eq!(region.read(0, 9), Ok(b"unCHANged".to_vec()));
}
