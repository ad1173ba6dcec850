//! `cargo xtask bugs`: every known-wrong variant of the machines, and how many seeds it takes until
//! one of them shows it (design: testing.md row 40).

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// A variant that lives longer than this was missed.
const SEEDS_MAX: u64 = 1_000;
/// Where the seeds start: any number, the same every time.
const FIRST_SEED: u64 = 0;

/// Builds each variant into a target directory of its own kind, runs seeds on it, and prints a
/// table. `only`: the variant with this name.
pub fn run(root: &Path, only: Option<&str>) -> Result<()> {
    let manifest = root.join("sim/scenarios/Cargo.toml");
    let text = std::fs::read_to_string(&manifest)
        .with_context(|| format!("cannot read {}", manifest.display()))?;
    let all = variants(&text);
    let chosen: Vec<&str> =
        all.into_iter().filter(|name| only.is_none_or(|only| only == *name)).collect();
    ensure!(!chosen.is_empty(), "no such variant in {}", manifest.display());
    println!("{:<28} {:>8}  rules", "variant", "seeds");
    let mut missed = Vec::new();
    for name in chosen {
        match seeds_to_detection(root, name)? {
            Some((seeds, rules)) => println!("{name:<28} {seeds:>8}  {rules}"),
            None => {
                println!("{name:<28} {:>8}  MISSED", format!("> {SEEDS_MAX}"));
                missed.push(name);
            }
        }
    }
    ensure!(missed.is_empty(), "not caught: {}", missed.join(", "));
    Ok(())
}

/// The features of a manifest that stand for wrong variants.
fn variants(manifest: &str) -> Vec<&str> {
    let names = manifest.lines().filter_map(|line| line.split_once(" = "));
    names.map(|(name, _)| name).filter(|name| name.starts_with("bug-")).collect()
}

fn seeds_to_detection(root: &Path, name: &str) -> Result<Option<(u64, String)>> {
    let output = Command::new(env!("CARGO"))
        .current_dir(root)
        .env("CARGO_TARGET_DIR", root.join("target/bugs"))
        .args(["run", "--quiet", "--package", "onepipe-sim-scenarios", "--example", "swarm"])
        .args(["--features", name, "--", &FIRST_SEED.to_string(), &SEEDS_MAX.to_string(), "first"])
        .output()
        .with_context(|| format!("cannot run the seeds of {name}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let found = said.lines().find_map(detection);
    ensure!(
        found.is_some() || output.status.success(),
        "{name} does not run:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(found)
}

/// Reads `found after 17 seeds: I7`.
fn detection(line: &str) -> Option<(u64, String)> {
    let (seeds, rules) = line.strip_prefix("found after ")?.split_once(" seeds: ")?;
    Some((seeds.parse().ok()?, rules.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_and_detections_are_read() {
        let manifest = "[features]\nbug-a = [\"x/bug-a\"]\nother = []\nbug-b = []\n";
        assert_eq!(variants(manifest), ["bug-a", "bug-b"]);
        assert_eq!(detection("found after 17 seeds: I7, I8"), Some((17, "I7, I8".to_owned())));
        assert_eq!(detection("1000 seeds, 5 deliveries checked, 0 broken"), None);
    }
}
