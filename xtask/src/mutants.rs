//! `cargo xtask mutants`: changes a crate in one place at a time, and names the changes that its
//! own tests do not notice. Installs cargo-mutants if it is missing.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

/// The version of cargo-mutants that is installed if none is.
const CARGO_MUTANTS_VERSION: &str = "27.1.0";
/// Limit on the time of a crate's tests per mutant, in seconds. A mutant beyond it counts as
/// killed: most of them loop for ever.
const TIMEOUT_S: u32 = 60;
/// Mutants that are not made: those without a check of invariants. Tests of a correct crate cannot
/// notice them; seeded mistakes do (`cargo xtask bugs`).
const EXCLUDED: &str = r"replace .*check_(invariants|counts|\w+_invariants) with \(\)";
/// Lowest share of mutants that the tests of a crate kill, in percent.
const KILLED_MIN_PERCENT: usize = 85;

/// Tests mutants of the package `name`, or of `onepipe-name`: all of them, or a sample "K/N", which
/// is each N-th from the K-th on, counted from 0. Fails if fewer than 85 % are killed.
pub fn run(root: &Path, name: &str, sample: Option<&str>) -> Result<()> {
    install_if_missing()?;
    let package = match name.starts_with("onepipe-") {
        true => name.to_string(),
        false => format!("onepipe-{name}"),
    };
    let folder = root.join("target/mutants").join(&package);
    std::fs::create_dir_all(&folder).context("making the folder of the outcomes")?;
    let mut command = Command::new("cargo");
    command
        .args(["mutants", "--package", &package, "--timeout", &TIMEOUT_S.to_string()])
        .args(["--no-shuffle", "--gitignore", "true", "--sharding", "round-robin"])
        .args(["--exclude-re", EXCLUDED, "--output"])
        .arg(&folder)
        .current_dir(root);
    if let Some(sample) = sample {
        command.args(["--shard", sample]);
    }
    let status = command.status().context("running cargo mutants")?;
    let path = folder.join("mutants.out/outcomes.json");
    let text = std::fs::read_to_string(&path).with_context(|| match status.code() {
        Some(code) => format!("cargo mutants ended with status {code}, and wrote no outcomes"),
        None => "cargo mutants was killed, and wrote no outcomes".to_string(),
    })?;
    let outcomes = Outcomes::parse(&text).with_context(|| path.display().to_string())?;
    print!("{}", outcomes.report(&package));
    outcomes.verify(&package)
}

fn install_if_missing() -> Result<()> {
    if Command::new("cargo").args(["mutants", "--version"]).output()?.status.success() {
        return Ok(());
    }
    println!("mutants: installing cargo-mutants {CARGO_MUTANTS_VERSION} with cargo install");
    let status = Command::new("cargo")
        .args(["install", "--locked", "cargo-mutants", "--version", CARGO_MUTANTS_VERSION])
        .status()?;
    ensure!(status.success(), "cargo install cargo-mutants failed");
    Ok(())
}

/// What cargo-mutants writes about a run.
#[derive(Deserialize)]
struct Outcomes {
    outcomes: Vec<Outcome>,
}

#[derive(Deserialize)]
struct Outcome {
    scenario: serde_json::Value,
    summary: String,
}

impl Outcomes {
    /// Returns the outcomes of a run. A run whose tests fail without a mutant has none.
    fn parse(text: &str) -> Result<Self> {
        let outcomes: Self = serde_json::from_str(text).context("cannot read the outcomes")?;
        if let Some(baseline) =
            outcomes.outcomes.iter().find(|outcome| outcome.scenario.is_string())
            && baseline.summary != "Success"
        {
            bail!("the tests do not pass without a mutant: {}", baseline.summary);
        }
        Ok(outcomes)
    }

    fn count(&self, summary: &str) -> usize {
        self.mutants().filter(|outcome| outcome.summary == summary).count()
    }

    fn mutants(&self) -> impl Iterator<Item = &Outcome> {
        self.outcomes.iter().filter(|outcome| !outcome.scenario.is_string())
    }

    /// Returns how many mutants were killed, and how many could be compiled.
    fn killed(&self) -> (usize, usize) {
        let killed = self.count("CaughtMutant") + self.count("Timeout");
        (killed, killed + self.count("MissedMutant"))
    }

    /// Returns the counts and the survivors as text.
    fn report(&self, package: &str) -> String {
        let (killed, viable) = self.killed();
        let mut report = format!(
            "{package}: {killed} of {viable} mutants killed ({} by the time limit), {} did not \
             compile\n",
            self.count("Timeout"),
            self.count("Unviable")
        );
        for survivor in self.mutants().filter(|outcome| outcome.summary == "MissedMutant") {
            let name = &survivor.scenario["Mutant"]["name"];
            report +=
                &format!("survives: {}\n", name.as_str().unwrap_or("a mutant without a name"));
        }
        report
    }

    fn verify(&self, package: &str) -> Result<()> {
        let (killed, viable) = self.killed();
        ensure!(viable > 0, "{package}: no mutant was tested");
        ensure!(
            killed * 100 >= viable * KILLED_MIN_PERCENT,
            "{package}: its tests kill {killed} of {viable} mutants, less than {KILLED_MIN_PERCENT} %"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(baseline: &str, summaries: &[&str]) -> Result<Outcomes> {
        let mut list = vec![serde_json::json!({ "scenario": "Baseline", "summary": baseline })];
        list.extend(summaries.iter().map(|summary| {
            let mutant = serde_json::json!({ "name": format!("src/lib.rs:1:1: {summary}") });
            serde_json::json!({ "scenario": { "Mutant": mutant }, "summary": summary })
        }));
        Outcomes::parse(&serde_json::json!({ "outcomes": list }).to_string())
    }

    #[test]
    fn survivors_are_named_and_counted() {
        let mut summaries = vec!["CaughtMutant"; 16];
        summaries.extend(["Timeout", "MissedMutant", "MissedMutant", "MissedMutant", "Unviable"]);
        let outcomes = outcomes("Success", &summaries).expect("they are complete");
        assert_eq!(outcomes.killed(), (17, 20));
        let report = outcomes.report("p");
        assert!(report.starts_with("p: 17 of 20 mutants killed (1 by the time limit), 1 did not"));
        assert_eq!(report.matches("survives: src/lib.rs:1:1: MissedMutant\n").count(), 3);
        outcomes.verify("p").expect("85 % are killed");
    }

    #[test]
    fn too_many_survivors_are_an_error() {
        let mut summaries = vec!["CaughtMutant"; 16];
        summaries.extend(["MissedMutant"; 3]);
        let outcomes = outcomes("Success", &summaries).expect("they are complete");
        let error = outcomes.verify("p").expect_err("84 % are killed").to_string();
        assert_eq!(error, "p: its tests kill 16 of 19 mutants, less than 85 %");
    }

    #[test]
    fn run_without_a_tested_mutant_is_an_error() {
        let outcomes = outcomes("Success", &["Unviable"]).expect("they are complete");
        outcomes.verify("p").expect_err("no mutant was tested");
    }

    #[test]
    fn tests_that_fail_without_a_mutant_are_an_error() {
        let error = outcomes("Failure", &["CaughtMutant"]).err().expect("the tests fail");
        assert_eq!(error.to_string(), "the tests do not pass without a mutant: Failure");
    }
}
