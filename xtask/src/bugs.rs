//! `cargo xtask bugs`: counts, for every mistake of `onepipe_base::mistake`, the seeds until a
//! checker catches it.
//!
//! One build holds all mistakes. CI runs each at a seed that is known to show it
//! (`tests/mistakes.rs` of `sim/scenarios` and of `sim/amcast`); this command searches for the
//! first such seed, from 0 on.

use std::fmt::Write;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use onepipe_base::mistake::Mistake;

/// The page that is committed.
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

## Ordered scattering

| mistake | what is wrong | caught by | seeds | of 20 |
|---|---|---|---:|---:|
";

/// The text between the two tables.
const AMCAST_HEAD: &str = "\
## Agreed multicast

With `onepipe sim fuzz --service amcast`. Each is found in three more ways: by histories of the world of
[mistakes.rs](../../protocol/amcast/tests/mistakes.rs) (`quorum-forgotten` by one of its own), by keeping
members to the rules, in the first 12 histories ([refinement](../../protocol/amcast/tests/refinement/main.rs)),
and, but for `proposed-twice`, by exhausting the rules with it
([rules](../../protocol/amcast/tests/rules/main.rs)).

| mistake | what is wrong | caught by | seeds | of 20 |
|---|---|---|---:|---:|
";

/// Searches for the mistake called `only`; without one, for all mistakes, and writes the page.
pub fn run(root: &Path, only: Option<&str>) -> Result<()> {
    let Some(title) = only else {
        let scattering = rows(root, "onepipe-sim-scenarios", None)?;
        let amcast = rows(root, "onepipe-sim-amcast", None)?;
        let path = root.join(PAGE);
        let page = format!("{PAGE_HEAD}{scattering}\n{AMCAST_HEAD}{amcast}");
        std::fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
        println!("written to {PAGE}");
        return Ok(());
    };
    let is_it = |mistake: &&Mistake| mistake.title() == title;
    let is_of_amcast = Mistake::of_amcast().iter().any(|mistake| is_it(&mistake));
    let package = ["onepipe-sim-scenarios", "onepipe-sim-amcast"][usize::from(is_of_amcast)];
    rows(root, package, only).map(|_| ())
}

/// Returns the rows that the mutation run of a package prints.
fn rows(root: &Path, package: &str, only: Option<&str>) -> Result<String> {
    let mut command = Command::new(env!("CARGO"));
    command
        .current_dir(root)
        .args(["run", "--quiet", "--release", "--package", package])
        .args(["--features", "mistakes", "--example", "mistakes", "--"])
        .args(only)
        .stdout(Stdio::piped());
    let mut child = command.spawn().context("cannot run the seeds")?;
    let said = child.stdout.take().context("its output is a pipe")?;
    let mut rows = String::new();
    for line in BufReader::new(said).lines() {
        let line = line.context("cannot read what the seeds say")?;
        println!("{line}");
        writeln!(rows, "{line}")?;
    }
    let is_sound = child.wait().context("the seeds did not end")?.success();
    ensure!(is_sound, "a mistake was missed");
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mistake_stands_on_the_page_and_none_was_missed() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("it lies in a workspace");
        let page = std::fs::read_to_string(root.join(PAGE)).expect("it is committed");
        let rows = page.strip_prefix(PAGE_HEAD).expect("its head");
        let (scattering, amcast) =
            rows.split_once(&format!("\n{AMCAST_HEAD}")).expect("both tables");
        assert!(Mistake::of_scattering().len() > 20 && Mistake::of_amcast().len() > 6);
        check(scattering, Mistake::of_scattering().iter());
        check(amcast, Mistake::of_amcast().iter());
    }

    fn check<'a>(rows: &str, mistakes: impl Iterator<Item = &'a Mistake>) {
        let mut rows = rows.lines();
        let control = rows.next().expect("the control");
        assert!(control.starts_with("| none | "), "{control}");
        for title in mistakes.map(|mistake| mistake.title()) {
            let row = rows.next().expect("a row for each");
            assert!(row.starts_with(&format!("| `{title}` | ")), "{title}: {row}");
            assert!(!row.contains("missed"), "{row}");
        }
        assert_eq!(rows.next(), None);
    }
}
