//! A rolling restart of every program, while reliable lines are sent and the cores are busy.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{ChildStdin, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::lab::{Controller, Switch, is};
use crate::program::{Running, exclusive, onepipe};

const CONTROLLERS: [&str; 2] = ["--controllers", "1010"];
/// Longer than a process is off its core beside four times as many busy threads as there are cores.
const LINK_TIMEOUT: [&str; 2] = ["--link-timeout", "5s"];
const PROCESSES: usize = 3;
const LINE_INTERVAL: Duration = Duration::from_millis(5);

/// Threads that keep all cores busy, four for each.
struct BusyCores {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl BusyCores {
    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let thread = |_| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || while !stop.load(Ordering::Relaxed) {})
        };
        let threads = (0..4 * cores).map(thread).collect();
        Self { stop, threads }
    }
}

impl Drop for BusyCores {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().expect("it only spins"));
    }
}

/// Types a line to all processes every few milliseconds, until it is stopped.
struct Typist {
    stop: Arc<AtomicBool>,
    typed: Arc<AtomicUsize>,
    thread: JoinHandle<ChildStdin>,
}

impl Typist {
    /// Types the lines of the process' `start`-th incarnation, from number `first` on.
    fn start(mut stdin: ChildStdin, start: usize, first: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let typed = Arc::new(AtomicUsize::new(first));
        let (is_stopped, count) = (Arc::clone(&stop), Arc::clone(&typed));
        let thread = std::thread::spawn(move || {
            while !is_stopped.load(Ordering::Relaxed) {
                let number = count.load(Ordering::Relaxed);
                writeln!(stdin, "0,1,2 {start}.{number}").expect("the process reads its input");
                count.store(number + 1, Ordering::Relaxed);
                std::thread::sleep(LINE_INTERVAL);
            }
            stdin
        });
        Self { stop, typed, thread }
    }
}

/// A line as a process has printed it: `TIMESTAMP FROM START.NUMBER`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    timestamp: u64,
    from: usize,
    start: usize,
    number: usize,
}

impl Line {
    fn parse(text: &str) -> Self {
        let fields = || {
            let mut words = text.split(' ');
            let (timestamp, from) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            let (start, number) = words.next()?.split_once('.')?;
            let (start, number) = (start.parse().ok()?, number.parse().ok()?);
            Some(Self { timestamp, from, start, number })
        };
        fields().unwrap_or_else(|| panic!("{text:?} is not a line of a process"))
    }
}

/// What an incarnation of a process has sent, received and reported.
struct Ended {
    process: usize,
    start: usize,
    typed: usize,
    received: Vec<Line>,
    errors: Vec<String>,
}

/// An incarnation of a process.
struct Process {
    id: usize,
    start: usize,
    program: Running,
    stdin: Option<ChildStdin>,
    typist: Option<Typist>,
    typed: usize,
    received: Vec<Line>,
}

impl Process {
    fn start(id: usize, start: usize, link: &[&str; 2]) -> Self {
        let process = id.to_string();
        let arguments = ["node", link[0], link[1], "--process", &process, "--reliable"];
        let mut command = onepipe(&arguments);
        let mut program = Running::start_with_stderr(command.stdin(Stdio::piped()));
        let stdin = program.child.stdin.take();
        Self { id, start, program, stdin, typist: None, typed: 0, received: Vec::new() }
    }

    fn begin_typing(&mut self) {
        let stdin = self.stdin.take().expect("it does not type");
        self.typist = Some(Typist::start(stdin, self.start, self.typed));
    }

    fn end_typing(&mut self) {
        if let Some(Typist { stop, typed, thread }) = self.typist.take() {
            stop.store(true, Ordering::Relaxed);
            self.stdin = Some(thread.join().expect("the process runs"));
            self.typed = typed.load(Ordering::Relaxed);
        }
    }

    fn typed_so_far(&self) -> usize {
        self.typist.as_ref().map_or(self.typed, |typist| typist.typed.load(Ordering::Relaxed))
    }

    fn receive(&mut self) -> Line {
        let text = self.program.line();
        if text.is_empty() {
            let errors: Vec<_> = std::iter::repeat_with(|| self.program.stderr_line())
                .take_while(|line| !line.is_empty())
                .collect();
            panic!("process {} has ended: {errors:?}", self.id);
        }
        let line = Line::parse(&text);
        self.received.push(line);
        line
    }

    /// Ends its input, and thereby the process: lines that are on their way have an outcome then.
    fn end(mut self) -> Ended {
        self.end_typing();
        drop(self.stdin.take());
        let status = self.program.status();
        let mut received = self.received;
        received.extend(self.program.remaining_lines().iter().map(|line| Line::parse(line)));
        let errors: Vec<String> = std::iter::repeat_with(|| self.program.stderr_line())
            .take_while(|line| !line.is_empty())
            .collect();
        assert_eq!(status, Some(0), "process {}: {errors:?}", self.id);
        Ended { process: self.id, start: self.start, typed: self.typed, received, errors }
    }
}

/// A fabric whose hubs are switches or aggregators; the first one is the root.
struct Fabric {
    hub: &'static str,
    link: &'static str,
    hubs: Vec<Switch>,
    controller: Option<Controller>,
    processes: Vec<Process>,
    ended: Vec<Ended>,
    store: tempfile::TempDir,
}

impl Fabric {
    fn start(hub: &'static str, link: &'static str, hubs: usize) -> Self {
        let store = tempfile::tempdir().expect("a folder");
        let (processes, ended) = (Vec::new(), Vec::new());
        let mut fabric =
            Self { hub, link, hubs: Vec::new(), controller: None, processes, ended, store };
        for id in 0..hubs {
            let hub = fabric.start_hub(id, "127.0.0.1:0");
            fabric.hubs.push(hub);
        }
        fabric.start_controller();
        for id in 0..PROCESSES {
            let process = fabric.start_process(id, 0);
            fabric.processes.push(process);
        }
        fabric
    }

    fn start_hub(&self, id: usize, address: &str) -> Switch {
        let own_id = (id + 1).to_string();
        let arguments = match self.hubs.first().filter(|_| id > 0) {
            Some(root) => vec!["--id", &own_id, "--parent", &root.address],
            None => [&["--id", &own_id], &CONTROLLERS[..], &LINK_TIMEOUT].concat(),
        };
        Switch::start_as(self.hub, address, &arguments)
    }

    fn start_controller(&mut self) {
        let store = self.store.path().join("decisions").to_string_lossy().into_owned();
        let common = ["--udp", &self.hubs[0].address, "--store", &store];
        self.controller = Some(Controller::start(&[&common[..], &CONTROLLERS].concat()));
    }

    fn start_process(&self, id: usize, start: usize) -> Process {
        let hub = &self.hubs[id % self.hubs.len()];
        let process = Process::start(id, start, &[self.link, &hub.address]);
        let (controller, name) =
            (self.controller.as_ref().expect("it runs"), format!("process {id}"));
        controller.until(&format!("{name} is up"), |status| is(status, &name, "up"));
        process
    }

    fn restart_hub(&mut self, id: usize) {
        interrupt(&mut self.hubs[id].process);
        self.hubs[id] = self.start_hub(id, &self.hubs[id].address);
        self.pass_load();
    }

    fn restart_controller(&mut self) {
        interrupt(&mut self.controller.take().expect("it runs").process);
        self.start_controller();
        self.pass_load();
    }

    /// The process ends with lines in flight from it and to it.
    fn restart_process(&mut self, id: usize) {
        let left = self.processes.remove(id);
        let start = left.start + 1;
        self.ended.push(left.end());
        let mut process = self.start_process(id, start);
        process.begin_typing();
        self.processes.insert(id, process);
        self.pass_load();
    }

    /// Waits until each process has received a line that each has typed from now on.
    fn pass_load(&mut self) {
        let of = |process: &Process| (process.start, process.typed_so_far());
        let typed: Vec<(usize, usize)> = self.processes.iter().map(of).collect();
        for process in &mut self.processes {
            let mut missing: Vec<usize> = (0..PROCESSES).collect();
            while !missing.is_empty() {
                let line = process.receive();
                let (start, number) = typed[line.from];
                if line.start == start && line.number >= number {
                    missing.retain(|from| *from != line.from);
                }
            }
        }
    }

    fn begin_typing(&mut self) {
        self.processes.iter_mut().for_each(Process::begin_typing);
    }

    /// Ends the typing, and waits until each process has received all lines.
    fn receive_all(&mut self) {
        self.processes.iter_mut().for_each(Process::end_typing);
        let typed: usize = self.processes.iter().map(|process| process.typed).sum();
        for process in &mut self.processes {
            while process.received.len() < typed {
                process.receive();
            }
        }
    }

    /// Ends all processes, and checks what they have sent and received.
    fn end(mut self) {
        self.processes.iter_mut().for_each(Process::end_typing);
        for process in std::mem::take(&mut self.processes) {
            self.ended.push(process.end());
        }
        for ended in &self.ended {
            let failed = |line: &&String| {
                let is_outcome = line.contains(": message to process ");
                (line.contains("failed") && !is_outcome) || line.contains("cannot send")
            };
            assert_eq!(ended.errors.iter().find(failed), None, "process {}", ended.process);
        }
        let received = received_once_in_order(&self.ended);
        for sender in &self.ended {
            (0..PROCESSES).for_each(|to| check_outcomes(sender, to, &received));
        }
        let status = self.controller.as_ref().expect("it runs").status();
        assert_eq!(status["failures"].as_array().map(Vec::len), Some(0), "{status}");
    }
}

/// Ends a daemon by Ctrl-C.
fn interrupt(daemon: &mut Running) {
    daemon.signal("-INT");
    assert_eq!(daemon.status(), Some(0));
}

/// By receiver, sender, its start and number: the timestamp of a line.
type ReceivedLines = BTreeMap<(usize, usize, usize, usize), u64>;

/// Returns the lines that were received, once each; each process has received them in the order of
/// their timestamps, which are the same at all.
fn received_once_in_order(ended: &[Ended]) -> ReceivedLines {
    let (mut received, mut timestamps) = (ReceivedLines::new(), BTreeMap::new());
    for process in ended {
        assert!(process.received.is_sorted(), "process {}", process.process);
        // A process that leaves prints what it has received and not delivered to standard error.
        let left = "not delivered before leaving: ";
        let undelivered = process.errors.iter().filter_map(|line| line.split_once(left));
        let undelivered = undelivered.map(|(_, line)| Line::parse(line));
        for line in process.received.iter().copied().chain(undelivered) {
            let Line { timestamp, from, start, number } = line;
            let earlier = received.insert((process.process, from, start, number), timestamp);
            assert_eq!(earlier, None, "{line:?} came twice to process {}", process.process);
            let at_first = *timestamps.entry((from, start, number)).or_insert(timestamp);
            assert_eq!(at_first, timestamp, "{line:?} at process {}", process.process);
        }
    }
    received
}

/// Checks that process `to` has received each line of `sender`, or that the sender has reported it.
fn check_outcomes(sender: &Ended, to: usize, received: &ReceivedLines) {
    let is_missing =
        |number: &usize| !received.contains_key(&(to, sender.process, sender.start, *number));
    let missing = (0..sender.typed).filter(is_missing).count();
    let report = format!("message to process {to}: ");
    let reports: Vec<&String> =
        sender.errors.iter().filter(|line| line.contains(&report)).collect();
    let lost = reports.iter().filter(|line| line.contains(": lost: ")).count();
    let link = format!("process {} start {} to {to}", sender.process, sender.start);
    assert!(missing <= reports.len(), "{link}: {missing} lines are missing, reported: {reports:?}");
    assert!(lost <= missing, "{link}: {missing} lines are missing, {lost} reported as lost");
}

/// Restarts the daemons, then the processes, each under load.
fn restart_all(mut fabric: Fabric, mut restart_others: impl FnMut(&mut Fabric)) {
    let busy = BusyCores::start();
    fabric.begin_typing();
    fabric.pass_load();
    for hub in 0..fabric.hubs.len() {
        fabric.restart_hub(hub);
    }
    fabric.restart_controller();
    restart_others(&mut fabric);
    // No line is lost while all processes stay.
    fabric.receive_all();
    fabric.begin_typing();
    for process in 0..PROCESSES {
        fabric.restart_process(process);
    }
    drop(busy);
    fabric.end();
}

//= spec/failure.md#R49
//= spec/failure.md#R51
#[test]
fn rolling_restart_under_load_loses_no_line() {
    let _guard = exclusive();
    let fabric = Fabric::start("switch", "--udp", 1);
    let arbiter = |fabric: &Fabric| {
        let arguments = ["arbiter", "--udp", &fabric.hubs[0].address, "--slot", "1ms"];
        let mut arbiter = Running::start(&mut onepipe(&arguments));
        assert!(arbiter.line().starts_with("arbiter "));
        assert!(arbiter.line().starts_with("primary from timeslot "));
        arbiter
    };
    let mut running = arbiter(&fabric);
    restart_all(fabric, |fabric| {
        assert!(running.child.try_wait().expect("own child").is_none(), "the arbiter has ended");
        interrupt(&mut running);
        running = arbiter(fabric);
        fabric.pass_load();
    });
    interrupt(&mut running);
}

//= spec/failure.md#R49
//= spec/failure.md#R51
#[test]
fn rolling_restart_of_an_overlay_loses_no_line() {
    let _guard = exclusive();
    restart_all(Fabric::start("aggregator", "--overlay", 2), |_| {});
}
