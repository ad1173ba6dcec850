//! The commands of a guide work as described.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::lab::{Controller, Node, Switch};
use crate::program::{Running, errors, exclusive, onepipe, output, unique, wait_until};

/// Returns the text of a guide.
fn text(guide: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/guide").join(guide);
    std::fs::read_to_string(path).expect("guide exists")
}

/// Returns the fenced blocks in this language, each with its lines.
fn fenced<'a>(text: &'a str, language: &str) -> Vec<Vec<&'a str>> {
    let (mut blocks, mut lines) = (Vec::new(), text.lines());
    while lines.any(|line| line.strip_prefix("```") == Some(language)) {
        blocks.push(lines.by_ref().take_while(|line| *line != "```").collect());
    }
    blocks
}

/// Returns the console blocks of a guide, each with its commands.
fn blocks(guide: &str) -> Vec<Vec<Vec<String>>> {
    let words = |line: &str| {
        let command = line.split(" #").next().unwrap_or_default();
        command.split_whitespace().map(str::to_owned).collect()
    };
    let commands = |block: Vec<&str>| {
        let commands = block.into_iter().filter_map(|line| line.strip_prefix("$ onepipe "));
        commands.map(words).collect()
    };
    fenced(&text(guide), "console").into_iter().map(commands).collect()
}

/// Running programs, and their actual addresses in place of those in the guide.
struct Terminals<'a> {
    folder: &'a Path,
    switch: Switch,
    arbiters: Vec<Running>,
    receivers: Vec<Running>,
    status: BTreeMap<String, String>,
}

impl Terminals<'_> {
    fn command(&self, words: &[String]) -> Command {
        let arguments = words.iter().map(|word| {
            let words = word.split(',');
            let arguments = words.map(|word| match word {
                "127.0.0.1:4410" => &self.switch.address,
                word => self.status.get(word).map_or(word, String::as_str),
            });
            arguments.collect::<Vec<_>>().join(",")
        });
        let arguments: Vec<String> = arguments.collect();
        let mut command = onepipe(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        command.current_dir(self.folder).env("ONEPIPE_SWITCH", &self.switch.address);
        command
    }

    fn arbiter(&mut self, words: &[String]) {
        let listen = words.iter().position(|word| word == "--status-listen");
        let listen_address = listen.map(|at| words[at + 1].clone());
        let any = |word: &String| match Some(word) == listen_address.as_ref() {
            true => "127.0.0.1:0".to_owned(),
            false => word.clone(),
        };
        let words: Vec<String> = words.iter().map(any).collect();
        let mut arbiter = Running::start(&mut self.command(&words));
        assert!(arbiter.line().starts_with("arbiter "), "{words:?}");
        if let Some(listen_address) = listen_address {
            let line = arbiter.line();
            let at = line.strip_prefix("status at http://");
            let at = at.and_then(|at| at.strip_suffix("/status")).expect("address is printed");
            self.status.insert(listen_address, at.to_owned());
        }
        self.arbiters.push(arbiter);
    }

    fn run(&mut self, words: &[String]) {
        let name: Vec<&str> = words.iter().map(String::as_str).collect();
        match name[..] {
            ["arbiter", ..] => self.arbiter(words),
            ["transfer", "receive", ..] => {
                let mut receiver = Running::start(&mut self.command(words));
                assert!(receiver.line().starts_with("process 0 behind "));
                assert!(receiver.line().starts_with("ready: arbiter 100"));
                self.receivers.push(receiver);
            }
            _ => {
                let output = self.command(words).output().expect("the program starts");
                assert_eq!(output.status.code(), Some(0), "{words:?}: {}", errors(&output));
            }
        }
    }
}

#[test]
fn commands_of_transfer_guide_work() {
    let _guard = exclusive();
    let blocks = blocks("transfer.md");
    assert_eq!(blocks.iter().map(Vec::len).collect::<Vec<_>>(), [4, 6, 5], "of the guide");
    for commands in blocks {
        let folder = TempDir::new().expect("a folder");
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        [&from, &to]
            .iter()
            .for_each(|path| std::fs::create_dir(path).expect("test file is written"));
        std::fs::write(from.join("disk.img"), vec![7; 100_000]).expect("test file is written");
        let ["switch", options @ ..] =
            &commands[0].iter().map(String::as_str).collect::<Vec<_>>()[..]
        else {
            panic!("{:?} is no switch", commands[0]);
        };
        let mut terminals = Terminals {
            folder: &from,
            switch: Switch::start(options),
            arbiters: Vec::new(),
            receivers: Vec::new(),
            status: BTreeMap::new(),
        };
        for words in &commands[1..] {
            terminals.folder = if words[1] == "receive" { &to } else { &from };
            terminals.run(words);
        }
        assert_eq!(terminals.receivers.len(), 1);
        assert_eq!(terminals.receivers[0].status(), Some(0));
        let received = std::fs::read(to.join("disk.img")).expect("file exists");
        assert!(received == vec![7; 100_000], "{} bytes", received.len());
    }
}

/// Returns a line without its numbers, which differ from run to run.
fn without_numbers(line: &str) -> String {
    let mut without = String::new();
    for character in line.chars() {
        match character.is_ascii_digit() {
            true if without.ends_with('0') => {}
            true => without.push('0'),
            false => without.push(character),
        }
    }
    without
}

/// Asserts that a program prints each of these lines, in any order, with any numbers.
fn assert_prints(quoted: &[&str], mut printed: impl FnMut() -> Option<String>) {
    let mut missing: Vec<String> = quoted.iter().map(|line| without_numbers(line)).collect();
    while !missing.is_empty() {
        let Some(line) = printed() else {
            panic!("the guide quotes, but not printed: {missing:?}")
        };
        missing.retain(|quoted| *quoted != without_numbers(&line));
    }
}

/// The programs of the guide for operators.
struct Operated {
    _switch: Switch,
    controller: Controller,
    nodes: Vec<Node>,
}

impl Operated {
    /// Starts what the guide starts, by the commands of the guide.
    fn start(commands: &[Vec<String>], state: &Path) -> Self {
        let commands: Vec<Vec<&str>> =
            commands.iter().map(|words| words.iter().map(String::as_str).collect()).collect();
        let [switch, controller, nodes @ .., status, clean] = &commands[..] else {
            panic!("{commands:?}");
        };
        assert_eq!((switch[0], controller[0]), ("switch", "controller"));
        assert_eq!((&status[..], clean[0]), (&["status"][..], "clean"));
        assert_eq!(output(clean).status.code(), Some(0));
        let switch = Switch::start(&switch[1..]);
        let with_address = |words: &[&str]| -> Vec<String> {
            let own = |word: &&str| match *word {
                "127.0.0.1:4410" => switch.address.clone(),
                word => word.to_owned(),
            };
            words.iter().map(own).collect()
        };
        let mut command = onepipe(&[]);
        command.args(with_address(controller)).env("XDG_STATE_HOME", state);
        let controller = Controller::begin_with_stderr(&mut command);
        let start = |(process, words): (u32, &Vec<&str>)| {
            assert_eq!(words[0], "node");
            let words = with_address(&words[1..]);
            let node = Node::start(&words.iter().map(String::as_str).collect::<Vec<_>>());
            node.joins(&controller, process);
            node
        };
        let nodes = (0..).zip(nodes).map(start).collect();
        Self { _switch: switch, controller, nodes }
    }
}

#[test]
fn operations_guide_quotes_what_is_printed() {
    let _guard = exclusive();
    let state = TempDir::new().expect("a folder");
    let text = text("operations.md");
    let quoted = fenced(&text, "text");
    let [pause, log, status, _json] = &quoted[..] else { panic!("{quoted:?}") };
    let mut operated = Operated::start(&blocks("operations.md")[0], state.path());
    assert_eq!(operated.nodes.len(), 3);
    let store = state.path().join("onepipe");
    assert_eq!(store.read_dir().expect("the state directory").count(), 1);

    operated.nodes[1].process.signal("-KILL");
    operated.controller.until("the failure is complete", |status| {
        let count = |list: &str| status[list].as_array().map_or(0, Vec::len);
        (count("failures"), count("open"), count("frozen")) == (1, 0, 0)
    });
    operated.nodes[2].process.signal("-INT");
    assert_eq!(operated.nodes[2].process.status(), Some(0));
    wait_until("the status is as in the guide", || {
        let table = operated.controller.table();
        let lines: Vec<String> = table.lines().map(without_numbers).collect();
        status.iter().all(|quoted| lines.contains(&without_numbers(quoted)))
    });
    assert_prints(log, || error_line(&mut operated.controller.process));

    // The link timeout is one second: half of it is a pause, and no failure.
    let still = &mut operated.nodes[0];
    still.process.signal("-STOP");
    std::thread::sleep(std::time::Duration::from_millis(500));
    still.process.signal("-CONT");
    assert_prints(pause, || error_line(&mut still.process));

    let metrics = operated.controller.metrics();
    for name in names(&text, "onepipe_controller_") {
        assert!(metrics.contains(&format!("\n{name} ")), "{name} is no metric");
    }
}

#[test]
fn operations_guide_quotes_json_log() {
    let (fabric, folder) = (unique("json"), TempDir::new().expect("a folder"));
    let store = folder.path().join("store").display().to_string();
    let mut command = onepipe(&["controller", "--fabric", &fabric, "--store", &store]);
    let mut controller = Controller::begin_with_stderr(command.args(["--log-format", "json"]));
    // A process that was there before is no event.
    controller.until("the controller is active", |status| status["epoch"].is_u64());
    let _node = Node::start(&["--fabric", &fabric, "--process", "0", "--reliable"]);
    let text = text("operations.md");
    assert_prints(&fenced(&text, "text")[3], || error_line(&mut controller.process));
}

/// Returns the next line of the standard error, if there is one.
fn error_line(process: &mut Running) -> Option<String> {
    Some(process.stderr_line()).filter(|line| !line.is_empty())
}

/// Returns the metrics that a text names.
fn names<'a>(text: &'a str, prefix: &str) -> Vec<&'a str> {
    let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let words = text.split(|character| !is_part(character));
    let names: Vec<&str> = words.filter(|word| word.starts_with(prefix)).collect();
    assert!(!names.is_empty());
    names
}

#[test]
fn commands_of_memory_guide_work() {
    let _guard = exclusive();
    let commands: Vec<Vec<String>> = blocks("memory.md").concat();
    assert!(!commands.is_empty(), "the guide has a command");
    for words in commands {
        let output = output(&words.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", errors(&output));
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("insert replicas=2"), "{text}");
    }
}
