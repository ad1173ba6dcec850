//! A rolling restart: every program ends by Ctrl-C and starts again, one after the other.

use crate::lab::{Controller, Node, Switch};
use crate::program::exclusive;

const CONTROLLERS: [&str; 2] = ["--controllers", "1000"];
const PROCESSES: usize = 3;

struct Fabric {
    switch: Switch,
    controller: Option<Controller>,
    nodes: Vec<Node>,
    store: tempfile::TempDir,
    lines: usize,
}

impl Fabric {
    fn start() -> Self {
        let switch = Switch::start(&CONTROLLERS);
        let store = tempfile::tempdir().expect("a folder");
        let mut fabric = Self { switch, controller: None, nodes: Vec::new(), store, lines: 0 };
        fabric.start_controller();
        fabric.nodes = (0..PROCESSES).map(|process| fabric.node(process)).collect();
        fabric
    }

    fn start_controller(&mut self) {
        let store = self.store.path().join("decisions").to_string_lossy().into_owned();
        let common = ["--udp", &self.switch.address, "--store", &store];
        self.controller = Some(Controller::start(&[&common[..], &CONTROLLERS].concat()));
    }

    fn controller(&self) -> &Controller {
        self.controller.as_ref().expect("it runs")
    }

    fn node(&self, process: usize) -> Node {
        let id = process.to_string();
        let node = Node::start(&["--udp", &self.switch.address, "--process", &id, "--reliable"]);
        node.joins(self.controller(), process as u32);
        node
    }

    fn restart_switch(&mut self) {
        self.switch.process.signal("-INT");
        assert_eq!(self.switch.process.status(), Some(0));
        self.switch = Switch::start_at(&self.switch.address, &CONTROLLERS);
    }

    fn restart_controller(&mut self) {
        let mut controller = self.controller.take().expect("it runs");
        controller.process.signal("-INT");
        assert_eq!(controller.process.status(), Some(0));
        self.start_controller();
    }

    /// A line to the previous instance of the process would be lost, and reported so: the others
    /// send once they know of the leave.
    fn restart_node(&mut self, process: usize) {
        end(&mut self.nodes[process]);
        let left = format!(" INFO onepipe::node: process {process} has left");
        for (other, node) in self.nodes.iter_mut().enumerate() {
            while other != process && !next_error(node).ends_with(&left) {}
        }
        self.nodes[process] = self.node(process);
    }

    /// Each process sends a line to all, and all print all lines in one order.
    fn exchange(&mut self) {
        self.lines += 1;
        for (process, node) in self.nodes.iter_mut().enumerate() {
            node.type_line(&format!("0,1,2 line {} of {process}", self.lines));
        }
        let orders: Vec<Vec<_>> = self
            .nodes
            .iter_mut()
            .map(|node| (0..PROCESSES).map(|_| node.process.line()).collect())
            .collect();
        for order in &orders {
            assert_eq!(order, &orders[0]);
            let end = format!("line {} of", self.lines);
            assert!(order.iter().all(|line| line.contains(&end)), "{order:?}");
        }
    }
}

/// Returns the next line of the standard error of a node, which sees no failure and no message
/// without a delivery.
fn next_error(node: &mut Node) -> String {
    let line = node.process.stderr_line();
    assert!(!line.contains("failed") && !line.contains("message to"), "{line}");
    line
}

/// Ends a node by Ctrl-C.
fn end(node: &mut Node) {
    node.process.signal("-INT");
    assert_eq!(node.process.status(), Some(0));
    assert_eq!(node.process.remaining_lines(), [""; 0], "lines that nobody waited for");
    while !next_error(node).is_empty() {}
}

//= spec/failure.md#R49
//= spec/failure.md#R51
#[test]
fn rolling_restart_fails_nobody() {
    let _guard = exclusive();
    let mut fabric = Fabric::start();
    fabric.exchange();
    for _ in 0..2 {
        fabric.restart_switch();
        fabric.exchange();
        fabric.restart_controller();
        fabric.exchange();
        for process in 0..PROCESSES {
            fabric.restart_node(process);
            fabric.exchange();
        }
    }
    fabric.nodes.iter_mut().for_each(end);
    let status = fabric.controller().status();
    assert_eq!(status["failures"].as_array().map(Vec::len), Some(0), "{status}");
}
