//! `cargo xtask bugs`: every mistake that the machines can be told to make, and how many seeds it
//! takes until a checker shows it (design: testing.md row 40).
//!
//! One build holds all of them (`onepipe_base::mistake`). CI tries each by a seed that is known to
//! show it (`sim/scenarios/tests/mistakes.rs`); this looks for the first one, from 0 on.

use std::fmt::Write;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// What is committed of it.
const PAGE: &str = "docs/results/seeded-bugs.md";
const PAGE_HEAD: &str = "\
# Seeded bugs

Each line is a mistake that the machines can be told to make, how many seeds of `onepipe sim fuzz` it
takes until a checker complains (from seed 0 on, at most 1,000), and how many of the first 20 seeds
show it. A complaint counts only if it is about what the mistake breaks, and nothing is wrong at the
same seed without the mistake. The rules are those of
[violation.rs](../../sim/check/src/violation.rs); an assertion is one of the machines themselves.
Written by `cargo xtask bugs`, which fails if a mistake is missed. CI tries each of them at a seed
that is known to show it ([mistakes.rs](../../sim/scenarios/tests/mistakes.rs)).

| mistake | what is wrong | caught by | seeds | of 20 |
|---|---|---|---:|---:|
";

/// Looks for the mistake called `only`, or for all of them; then the table is written down.
pub fn run(root: &Path, only: Option<&str>) -> Result<()> {
    let mut command = Command::new(env!("CARGO"));
    command
        .current_dir(root)
        .args(["run", "--quiet", "--release", "--package", "onepipe-sim-scenarios"])
        .args(["--features", "mistakes", "--example", "mistakes", "--"])
        .args(only)
        .stdout(Stdio::piped());
    let mut child = command.spawn().context("cannot run the seeds")?;
    let said = child.stdout.take().context("its output is a pipe")?;
    let mut page = PAGE_HEAD.to_owned();
    for line in BufReader::new(said).lines() {
        let line = line.context("cannot read what the seeds say")?;
        println!("{line}");
        writeln!(page, "{line}")?;
    }
    let is_sound = child.wait().context("the seeds did not end")?.success();
    ensure!(is_sound, "a mistake was missed");
    if only.is_none() {
        let path = root.join(PAGE);
        std::fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
        println!("written to {PAGE}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use onepipe_base::mistake::Mistake;

    use super::*;

    #[test]
    fn every_mistake_stands_on_the_page_and_none_was_missed() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("it lies in a workspace");
        let page = std::fs::read_to_string(root.join(PAGE)).expect("it is committed");
        let rows: Vec<&str> = page.strip_prefix(PAGE_HEAD).expect("its head").lines().collect();
        // Those of agreed multicast are tried by its own histories.
        let titles: Vec<&str> = Mistake::of_scattering().iter().map(|it| it.title()).collect();
        assert!(titles.len() > 20 && titles.len() + 1 == rows.len());
        assert!(rows[0].starts_with("| none | "), "the control: {}", rows[0]);
        for (title, row) in titles.iter().zip(&rows[1..]) {
            assert!(row.starts_with(&format!("| `{title}` | ")), "{title}: {row}");
            assert!(!row.contains("missed"), "{row}");
        }
    }
}
