//! Three hosts, each a network namespace with an address of its own on one lossy network: two
//! aggregators in a tree, three processes, real sockets (design: docs/design/overlay.md).
//!
//! Needs root, `ip` and `nft`; says so and passes where it has not got them.

mod lab;

use std::collections::BTreeSet;

use lab::Lab;

/// What each process scatters to all three.
const COUNT: usize = 400;

/// A line `delivered TIMESTAMP FROM NUMBER`.
type Entry = (u64, u32, usize);

fn entries(lines: &[String]) -> Vec<Entry> {
    let entry = |line: &String| {
        let words: Vec<&str> = line.split(' ').collect();
        let ["delivered", at, from, number] = words[..] else { return None };
        let numbers = "every field is a number";
        Some((at.parse().expect(numbers), from.parse().expect(numbers), number.parse().ok()?))
    };
    lines.iter().filter_map(entry).collect()
}

#[test]
fn three_hosts_agree_over_a_lossy_network() {
    let Some(mut lab) = Lab::new(3) else { return };
    lab.lose_percent(4);
    // A tree: the root on the first host, a leaf on the second.
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
    assert_eq!((whole.len(), all[0].len()), (3 * COUNT, 3 * COUNT), "everything, once");
    assert_eq!(all[0], all[1], "hosts 0 and 1");
    assert_eq!(all[0], all[2], "hosts 0 and 2");
    for lines in &logs {
        let done = lines.last().expect("waited for");
        let frames: Vec<u64> = done.split(' ').filter_map(|word| word.parse().ok()).collect();
        assert!(frames[0] > 10 * frames[1], "most go directly: {done}");
    }
    assert!(lab.lost() > 100, "the network loses: {}", lab.lost());
}
