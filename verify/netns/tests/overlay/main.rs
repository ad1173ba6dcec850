//! Three hosts in network namespaces on a lossy network: two aggregators in a tree and three
//! processes over real sockets (docs/design/overlay.md).
//!
//! Needs root, `ip` and `nft`; without them prints a message and passes.

mod lab;

use std::collections::BTreeSet;

use lab::Lab;

/// Number of scatterings of each process to all three.
const COUNT: usize = 400;

/// A line `delivered TIMESTAMP FROM NUMBER`.
type Entry = (u64, u32, usize);

fn entries(lines: &[String]) -> Vec<Entry> {
    let entry = |line: &String| {
        let words: Vec<&str> = line.split(' ').collect();
        let ["delivered", at, from, number] = words[..] else { return None };
        let numbers = "timestamp and process are numbers";
        Some((at.parse().expect(numbers), from.parse().expect(numbers), number.parse().ok()?))
    };
    lines.iter().filter_map(entry).collect()
}

#[test]
fn hosts_agree_on_order_over_a_lossy_network() {
    let Some(mut lab) = Lab::new(3) else { return };
    lab.drop_percent(4);
    // The root aggregator runs on the first host, a leaf on the second.
    let (root, leaf) = ("10.77.0.1:4410", "10.77.0.2:4410");
    lab.start(0, "aggregator", &["aggregator", root]);
    lab.wait_for("aggregator", "listening");
    lab.start(1, "leaf", &["aggregator", leaf, root]);
    lab.wait_for("leaf", "listening");
    let count = COUNT.to_string();
    let nodes = ["node 0", "node 1", "node 2"];
    for (host, aggregator) in [root, leaf, leaf].into_iter().enumerate() {
        let id = host.to_string();
        lab.start(host, nodes[host], &["node", aggregator, &id, "3", &count]);
    }
    let logs = nodes.map(|node| lab.wait_for(node, "done"));

    let all: Vec<Vec<Entry>> = logs.iter().map(|lines| entries(lines)).collect();
    for log in &all {
        assert!(log.windows(2).all(|pair| pair[0] < pair[1]), "in the total order");
    }
    let whole: BTreeSet<(u32, usize)> = all[0].iter().map(|(_, from, n)| (*from, *n)).collect();
    assert_eq!((whole.len(), all[0].len()), (3 * COUNT, 3 * COUNT), "everything exactly once");
    assert_eq!(all[0], all[1], "hosts 0 and 1");
    assert_eq!(all[0], all[2], "hosts 0 and 2");
    for lines in &logs {
        let done = lines.last().expect("`done` was waited for");
        let frames: Vec<u64> = done.split(' ').filter_map(|word| word.parse().ok()).collect();
        assert!(frames[0] > 10 * frames[1], "most frames go directly: {done}");
    }
    assert!(lab.dropped() > 100, "the network dropped {} datagrams", lab.dropped());
}

/// A host loses its network: it must be detected by timeout alone, and every scattering that it had
/// sent reaches both survivors or neither.
#[test]
fn survivors_agree_after_a_host_is_cut_off() {
    let Some(mut lab) = Lab::new(3) else { return };
    let store = tempfile::tempdir().expect("a temporary directory can be created");
    let path = store.path().join("decisions").to_string_lossy().into_owned();
    let (root, leaf) = ("10.77.0.1:4410", "10.77.0.2:4410");
    lab.start(0, "root", &["controlled", root, "1"]);
    lab.wait_for("root", "listening");
    lab.start(1, "leaf", &["controlled", leaf, "2", root]);
    lab.wait_for("leaf", "listening");
    lab.start(0, "controller", &["controller", root, &path]);
    let count = (2 * COUNT).to_string();
    let nodes = ["node 0", "node 1", "node 2"];
    for (host, aggregator) in [root, leaf, root].into_iter().enumerate() {
        let id = host.to_string();
        lab.start(host, nodes[host], &["member", aggregator, &id, "3", &count]);
    }
    for node in nodes {
        lab.wait_for(node, "delivered");
    }
    lab.cut(2);
    let logs = [nodes[0], nodes[1]].map(|node| lab.wait_for(node, "done"));

    let gone = logs.each_ref().map(|lines| {
        let gone: Vec<&String> = lines.iter().filter(|line| line.starts_with("gone ")).collect();
        assert_eq!(gone.len(), 1, "{gone:?}");
        gone[0].clone()
    });
    assert!(gone[0].starts_with("gone 2 ") && gone[0] == gone[1], "{gone:?}");
    let failed_at: u64 = gone[0][7..].parse().expect("the timestamp is a number");
    let all = logs.each_ref().map(|lines| entries(lines));
    assert!(all[0].windows(2).all(|pair| pair[0] < pair[1]), "in the total order");
    assert_eq!(all[0], all[1], "both survivors delivered the same");
    let of = |from: u32| all[0].iter().filter(move |entry| entry.1 == from);
    assert!(of(2).all(|entry| entry.0 < failed_at), "nothing from its failure timestamp on");
    for (from, lines) in logs.iter().enumerate() {
        // Recalled everywhere, or delivered to both survivors.
        let own = format!(" {from}");
        let recalled =
            lines.iter().filter(|line| line.starts_with("failed ") && line.ends_with(&own)).count();
        assert_eq!(of(from as u32).count() + recalled, 2 * COUNT, "process {from}");
    }
}
