//! Redis' own load generator.

use anyhow::{Context, Result, ensure};

use super::server::output_of;

/// Number of connections: the default of `redis-benchmark`.
pub(super) const CONNECTIONS: u64 = 50;

/// A load for `redis-benchmark`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BenchmarkLoad {
    pub command: Command,
    /// Number of commands that a connection sends at once.
    pub pipeline: u64,
    pub value_bytes: usize,
    pub keys: u64,
}

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Set,
    Get,
    /// `MSET` of this number of random keys.
    Mset(usize),
}

/// What `redis-benchmark` has measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Figures {
    pub rate: f64,
    pub p50_us: f64,
    pub p99_us: f64,
}

/// Sends `count` commands.
pub(super) fn run(
    load: &BenchmarkLoad,
    port: u16,
    is_cluster: bool,
    count: u64,
) -> Result<Figures> {
    let value = "v".repeat(load.value_bytes);
    let numbers = [u64::from(port), CONNECTIONS, load.pipeline, count, load.keys];
    let [port, connections, pipeline, count, keys] = numbers.map(|number| number.to_string());
    let bytes = load.value_bytes.to_string();
    let mut command = vec!["redis-benchmark", "-h", "127.0.0.1", "-p", &port, "-c", &connections];
    // A cluster would get a thread for each of its nodes, and the other sides one.
    command.extend(["-P", &pipeline, "-n", &count, "-r", &keys, "--threads", "1", "--csv"]);
    if is_cluster {
        command.push("--cluster");
    }
    match load.command {
        Command::Set => command.extend(["-d", &bytes, "-t", "set"]),
        Command::Get => command.extend(["-d", &bytes, "-t", "get"]),
        Command::Mset(count) => {
            command.push("MSET");
            (0..count).for_each(|_| command.extend(["key:__rand_int__", value.as_str()]));
        }
    }
    let output = output_of(&command)?;
    figures_in(&output).with_context(|| format!("reading the output of redis-benchmark: {output}"))
}

/// Finds the figures in the output: a line of names, then one of figures, all in quotes.
fn figures_in(output: &str) -> Result<Figures> {
    let lines: Vec<&str> = output.lines().filter(|line| line.starts_with('"')).collect();
    let [names, figures] = lines[..] else { anyhow::bail!("not one test: {} lines", lines.len()) };
    let cells = |line: &str| -> Vec<String> {
        line.trim().trim_matches('"').split("\",\"").map(str::to_owned).collect()
    };
    let (names, figures) = (cells(names), cells(figures));
    let figure = |name: &str| {
        let at = names.iter().position(|other| other == name);
        let text = at.and_then(|at| figures.get(at)).with_context(|| format!("no {name}"))?;
        text.parse::<f64>().with_context(|| format!("{name} is {text:?}"))
    };
    let found = Figures {
        rate: figure("rps")?,
        p50_us: figure("p50_latency_ms")? * 1e3,
        p99_us: figure("p99_latency_ms")? * 1e3,
    };
    ensure!(found.rate > 0.0, "the rate is 0");
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &str = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\
                         \"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"";

    #[test]
    fn reads_figures_by_their_names() {
        let line = r#""SET","34965.04","1.022","0.088","0.551","4.191","5.447","9.5""#;
        let output = format!("Cluster has 3 nodes\n{NAMES}\n{line}\n");
        let figures = figures_in(&output).expect("the output of redis-benchmark 7.0.15");
        assert_eq!(figures, Figures { rate: 34_965.04, p50_us: 551.0, p99_us: 5_447.0 });
    }

    #[test]
    fn rejects_other_output() {
        for output in ["", NAMES, "\"a\"\n\"1\"", "\"test\",\"rps\"\n\"SET\",\"nan?\""] {
            assert!(figures_in(output).is_err(), "{output}");
        }
        let stuck = NAMES.replace("test", "rps").replace("\"rps\",\"rps\"", "\"x\",\"rps\"");
        let zero = format!("{stuck}\n\"SET\",\"0\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\"");
        assert!(figures_in(&zero).is_err());
    }
}
