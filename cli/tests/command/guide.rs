//! The commands of a guide work as described.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::lab::Switch;
use crate::program::{Running, errors, exclusive, onepipe};

/// Returns the console blocks of a guide, each with its commands.
fn blocks(guide: &str) -> Vec<Vec<Vec<String>>> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/guide").join(guide);
    let text = std::fs::read_to_string(path).expect("guide exists");
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while lines.any(|line| line == "```console") {
        let block = lines.by_ref().take_while(|line| *line != "```");
        let commands = block.filter_map(|line| line.strip_prefix("$ onepipe "));
        let words = |line: &str| {
            let command = line.split(" #").next().unwrap_or_default();
            command.split_whitespace().map(str::to_owned).collect()
        };
        blocks.push(commands.map(words).collect());
    }
    blocks
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
