//! Real processes whose shared file is shortened by a third one: they end with an error, not by
//! SIGBUS, and other faults still reach the program's own handler.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use onepipe_base::{Port, ProcessId, Transmit, Verdict};
use onepipe_transport_clock::Clock;
use onepipe_transport_driver::Transport;
use onepipe_transport_shm::{
    AttachError, Config, PageLocation, PagePool, PageReader, SegmentLost, Shm,
};

/// Set in a child process: its role and the name of its segment.
const ROLE: &str = "ONEPIPE_TEST_ROLE";
/// The exit status of a process that has reported the error.
const REPORTED: i32 = 3;
const PAGE_BYTES: usize = 4096;
const WAIT_NS: u64 = 100_000_000;

fn name(test: &str) -> String {
    format!("test-{}-short-{test}", std::process::id())
}

/// A child process with its standard input and output.
struct Peer {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Peer {
    /// Starts `test` of this file once more, in a process with this role.
    fn start(test: &str, role: &str, name: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this test has a path"))
            .args(["--exact", &format!("shortened::{test}"), "--nocapture"])
            .env(ROLE, format!("{role} {name}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this test can start itself");
        let output = BufReader::new(child.stdout.take().expect("the output is piped"));
        Self { child, output }
    }

    /// Returns the rest of the next line that contains `word`.
    fn find(&mut self, word: &str) -> String {
        loop {
            let mut line = String::new();
            let len = self.output.read_line(&mut line).expect("the child prints text");
            assert!(len > 0, "the child has ended: {:?}", self.child.wait());
            if let Some((_, rest)) = line.split_once(word) {
                return rest.trim_end().to_owned();
            }
        }
    }

    fn send(&mut self, line: &str) {
        let mut input = self.child.stdin.as_ref().expect("the input is piped");
        writeln!(input, "{line}").expect("the child reads");
    }

    /// Waits until it ends. Returns what it has printed since, and how it has ended.
    fn end(mut self) -> (String, ExitStatus) {
        let mut output = String::new();
        self.output.read_to_string(&mut output).expect("the child prints text");
        (output, self.child.wait().expect("the process is a child"))
    }

    /// Waits until it has ended with the error of the file at `path`.
    fn ends_with_error_of(self, path: &str) {
        let (output, status) = self.end();
        assert_eq!((status.signal(), status.code()), (None, Some(REPORTED)), "{output}");
        let expected = format!("{path} was shortened or overwritten by another process");
        assert!(output.contains(&expected), "{output}");
    }
}

/// Shortens a file, as any process of the user can.
fn shorten(path: &Path, bytes: u64) {
    let file = OpenOptions::new().write(true).open(path).expect("the file exists");
    file.set_len(bytes).expect("the file belongs to this user");
}

fn read_line() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("the parent writes text");
    line.trim_end().to_owned()
}

fn report(lost: &SegmentLost) -> ! {
    println!("{lost}");
    std::process::exit(REPORTED);
}

fn attach(name: &str, process: u32) -> Shm {
    Shm::attach(name, Some(ProcessId(process)), &Config::default()).expect("the id is free")
}

/// Takes one turn, and sends a frame to process `to` if there is one.
fn turn(shm: &mut Shm, clock: &mut impl Clock, to: Option<u16>) -> usize {
    let now = clock.read();
    let frames = shm.receive(now, |_, _| Verdict::Consumed);
    shm.poll_peers(|_, _| {});
    shm.poll_promises(now, |_, _| {});
    shm.poll_links_down(|_, _| {});
    let Some(to) = to else { return frames };
    if shm.can_begin_burst(now) {
        shm.begin_burst(now, None);
        let bytes = shm.config().frame_len_max;
        if shm.slot().is_some() {
            shm.send(Transmit { port: Port(to), bytes });
        }
        shm.end_burst(None);
    }
    frames
}

/// Runs a process of a segment, one that sends without a pause or one that waits, until it is lost.
fn use_segment(name: &str, process: u32, is_waiting: bool) {
    let mut shm = attach(name, process);
    let mut clock = shm.clock();
    let mut has_reported = false;
    println!("path {}", shm.path().display());
    loop {
        let to = (!is_waiting).then_some(1 - process as u16);
        let frames = turn(&mut shm, &mut clock, to);
        if shm.peers().count() > 0 && (frames > 0 || is_waiting) && !has_reported {
            println!("running");
            has_reported = true;
        }
        if let Some(lost) = shm.loss() {
            drop(shm);
            report(&lost);
        }
        if is_waiting {
            shm.wait(WAIT_NS);
        }
    }
}

/// Runs the child process, if this is one. Returns whether it is.
fn run_role() -> bool {
    let Ok(role) = std::env::var(ROLE) else { return false };
    let (role, name) = role.split_once(' ').expect("the parent has set both");
    match role {
        "sender-0" => use_segment(name, 0, false),
        "sender-1" => use_segment(name, 1, false),
        "waiter-0" => use_segment(name, 0, true),
        "waiter-1" => use_segment(name, 1, true),
        "owner" => own_pool(name),
        "reader" => read_pool(name),
        "info" | "plain" | "default" | "sent" => handle_own_faults(name, role),
        _ => panic!("unknown role {role}"),
    }
    true
}

//= spec/ordering.md#R84
#[test]
fn shortened_segment_ends_processes_with_an_error() {
    if run_role() {
        return;
    }
    let test = "shortened_segment_ends_processes_with_an_error";
    // Nothing is left of the file, or the part that every turn reads.
    for (kind, bytes) in [("sender", 0), ("waiter", 0), ("sender", PAGE_BYTES as u64)] {
        let name = name(kind);
        let mut peers =
            [0, 1].map(|process| Peer::start(test, &format!("{kind}-{process}"), &name));
        let path = peers.each_mut().map(|peer| peer.find("path ")).into_iter().next();
        let path = path.expect("there are two");
        for peer in &mut peers {
            peer.find("running");
        }
        shorten(Path::new(&path), bytes);
        for peer in peers {
            peer.ends_with_error_of(&path);
        }
        assert!(!Path::new(&path).exists(), "the last to end has removed the file");
    }
}

/// The owner of a pool, which reads its page and allocates another one after the file was
/// shortened.
fn own_pool(name: &str) {
    let page_pool = PagePool::create(name).expect("the name is free");
    let mut page_mut = page_pool.alloc(PAGE_BYTES).expect("there is memory");
    page_mut.fill(7);
    let page = page_mut.freeze();
    let hex: String = page.location().to_bytes().iter().map(|b| format!("{b:02x}")).collect();
    println!("location {hex}");
    read_line();
    assert!(page.iter().all(|byte| *byte == 0) && page.is_lost());
    assert!(page_pool.alloc(1).is_none(), "the pool is refused");
    let lost = page_pool.loss().expect("it was lost");
    drop((page, page_pool));
    report(&lost);
}

/// A reader of the pool, which uses a page that was mapped before the file was shortened.
fn read_pool(name: &str) {
    let reader = PageReader::open(name, 1).expect("the pool exists");
    let hex = read_line();
    let byte = |at: usize| u8::from_str_radix(&hex[2 * at..][..2], 16).expect("two digits");
    let bytes: Vec<u8> = (0..hex.len() / 2).map(byte).collect();
    let location = PageLocation::parse(&bytes).expect("the owner has sent it");
    let page = reader.page(location, PAGE_BYTES).expect("the page exists");
    assert!(page.iter().all(|byte| *byte == 7) && !page.is_lost());
    println!("read");
    read_line();
    assert!(page.iter().all(|byte| *byte == 0) && page.is_lost());
    assert_eq!(reader.page(location, PAGE_BYTES), None, "the pool is refused");
    report(&reader.loss().expect("it was lost"));
}

//= spec/ordering.md#R84
#[test]
fn shortened_page_pool_is_refused_and_reads_as_zeros() {
    if run_role() {
        return;
    }
    let test = "shortened_page_pool_is_refused_and_reads_as_zeros";
    let name = name("pool");
    let mut owner = Peer::start(test, "owner", &name);
    let location = owner.find("location ");
    let mut reader = Peer::start(test, "reader", &name);
    reader.send(&location);
    reader.find("read");
    // The owner's user id is that of this process.
    let suffix = format!("-{name}");
    let entries = std::fs::read_dir("/dev/shm").expect("/dev/shm is available").flatten();
    let path = entries
        .map(|entry| entry.path())
        .find(|path| path.to_string_lossy().ends_with(&suffix))
        .expect("the pool has a name");
    shorten(&path, 0);
    for mut peer in [reader, owner] {
        peer.send("shortened");
        peer.ends_with_error_of(&path.display().to_string());
    }
    assert!(!path.exists(), "the owner has removed the file");
}

/// The program's own mapping of a file that has no pages, and the faults that its handler got.
static OWN_MAPPING: AtomicUsize = AtomicUsize::new(0);
static OWN_FAULTS: AtomicUsize = AtomicUsize::new(0);

/// The program's handler: maps memory where its own mapping has none.
extern "C" fn on_fault(_: libc::c_int) {
    OWN_FAULTS.fetch_add(1, Ordering::Relaxed);
    let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let base = std::ptr::with_exposed_provenance_mut(OWN_MAPPING.load(Ordering::Relaxed));
    // SAFETY: the range is that of the mapping that `map_own_file` has made and never removes.
    let mapped = unsafe { libc::mmap(base, PAGE_BYTES, libc::PROT_READ, flags, -1, 0) };
    assert_ne!(mapped, libc::MAP_FAILED);
}

extern "C" fn on_fault_with_info(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _: *mut libc::c_void,
) {
    // SAFETY: the signal reports a fault, so it has an address.
    let address = unsafe { (*info).si_addr().addr() };
    assert_eq!(address, OWN_MAPPING.load(Ordering::Relaxed));
    on_fault(signal);
}

/// Maps a page that its file does not have.
fn map_own_file(name: &str) -> *const u8 {
    let path = format!("/dev/shm/{name}-own");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
    let file = file.expect("the name is free");
    std::fs::remove_file(path).expect("it was made above");
    // SAFETY: a new mapping at an address of the kernel's choice.
    let base = unsafe {
        let (access, flags) = (libc::PROT_READ, libc::MAP_SHARED);
        libc::mmap(std::ptr::null_mut(), PAGE_BYTES, access, flags, file.as_raw_fd(), 0)
    };
    assert_ne!(base, libc::MAP_FAILED);
    OWN_MAPPING.store(base.expose_provenance(), Ordering::Relaxed);
    base.cast()
}

/// A program with a handler of its own, or none, that also uses a segment.
fn handle_own_faults(name: &str, handler: &str) {
    let (function, flags) = match handler {
        "info" => (on_fault_with_info as *const () as usize, libc::SA_SIGINFO),
        "plain" => (on_fault as *const () as usize, 0),
        _ => (libc::SIG_DFL, 0),
    };
    // SAFETY: all zeros is a valid `sigaction`; the handlers are async-signal-safe, except for
    // assertions that end the test.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (action.sa_sigaction, action.sa_flags) = (function, flags);
        assert_eq!(libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()), 0);
    }
    let mut shm = attach(name, 0);
    let mut clock = shm.clock();
    let own = map_own_file(name);
    println!("path {}", shm.path().display());
    if handler == "sent" {
        // SAFETY: takes a number only.
        unsafe { libc::raise(libc::SIGBUS) };
    }
    // SAFETY: the page is mapped; the handler, if there is one, maps memory there.
    assert_eq!(unsafe { own.read_volatile() }, 0);
    assert_eq!(OWN_FAULTS.load(Ordering::Relaxed), 1);
    shorten(shm.path(), 0);
    turn(&mut shm, &mut clock, None);
    assert_eq!(OWN_FAULTS.load(Ordering::Relaxed), 1, "this fault is not the program's");
    let lost = shm.loss().expect("it was lost");
    drop(shm);
    report(&lost);
}

#[test]
fn faults_of_other_mappings_reach_the_earlier_handler() {
    if run_role() {
        return;
    }
    let test = "faults_of_other_mappings_reach_the_earlier_handler";
    for handler in ["info", "plain"] {
        let mut peer = Peer::start(test, handler, &name(handler));
        let path = peer.find("path ");
        peer.ends_with_error_of(&path);
    }
    for role in ["default", "sent"] {
        let mut peer = Peer::start(test, role, &name(role));
        let path = peer.find("path ");
        let (output, status) = peer.end();
        std::fs::remove_file(path).expect("no process has removed it");
        assert_eq!(status.signal(), Some(libc::SIGBUS), "{role}: {output}");
    }
}

#[test]
fn shortened_segment_cannot_be_joined() {
    let name = name("join");
    let mut shm = attach(&name, 0);
    let mut clock = shm.clock();
    turn(&mut shm, &mut clock, None);
    for bytes in [PAGE_BYTES as u64, 0] {
        shorten(shm.path(), bytes);
        let refused = Shm::attach(&name, Some(ProcessId(1)), &Config::default());
        assert!(matches!(&refused, Err(AttachError::SegmentLost(lost)) if lost.path == shm.path()));
    }
    // Extended again, the file shows zeros without any fault.
    let bytes = 1 << 30;
    shorten(shm.path(), bytes);
    turn(&mut shm, &mut clock, None);
    assert_eq!(shm.loss().map(|lost| lost.path), Some(shm.path().to_owned()));
}
