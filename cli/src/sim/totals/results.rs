//! The file of results: for each build and service which seeds were run, and their totals.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use onepipe_sim_engine::{Seeds, Totals};
use serde::{Deserialize, Serialize};

/// Version of the file's format.
const FORMAT: u32 = 1;

/// What some seeds were run by: histories of the same seed may differ between two of these.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subject {
    /// Name of the service, as of `onepipe sim fuzz --service`.
    pub service: String,
    /// Name of the build.
    pub build: String,
}

/// Consecutive seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    pub first: u64,
    pub last: u64,
}

impl Range {
    /// Returns the number of seeds.
    fn len(&self) -> u64 {
        (self.last - self.first).saturating_add(1)
    }
}

/// Results of one build and service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    pub subject: Subject,
    /// The seeds that were run: disjoint, ascending, and no two of them adjacent.
    pub ranges: Vec<Range>,
    /// Failing seeds, ascending.
    pub failing: Vec<u64>,
    pub totals: Totals,
}

/// Results of all builds and services, ordered by these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Results {
    format: u32,
    pub entries: Vec<Entry>,
}

impl Default for Results {
    fn default() -> Self {
        Self { format: FORMAT, entries: Vec::new() }
    }
}

/// Returns the range of some seeds, `None` if there are none.
fn range(seeds: Seeds) -> Result<Option<Range>> {
    let Some(more) = seeds.count.checked_sub(1) else { return Ok(None) };
    let last = seeds.first.checked_add(more);
    let last = last.context("the last seed exceeds 64 bits: choose a lower --seed")?;
    Ok(Some(Range { first: seeds.first, last }))
}

/// Returns the name of this build: its version, and the digest of the program.
pub fn this_build() -> Result<String> {
    let read = || fs::read(std::env::current_exe()?);
    let program = read().context("cannot read this program to name its build (--build NAME)")?;
    let digest = blake3::hash(&program).to_hex();
    Ok(format!("{}+{}", env!("CARGO_PKG_VERSION"), &digest[..16]))
}

/// Checks before a run that its results can be added to the file at `path`.
pub fn check_unused(path: &Path, subject: &Subject, seeds: Seeds) -> Result<()> {
    let Some(range) = range(seeds)? else { return Ok(()) };
    match fs::exists(path).with_context(|| format!("cannot read {}", path.display()))? {
        true => Results::read(path)?.refuse(subject, &[range], path),
        false => Ok(()),
    }
}

impl Results {
    /// Returns the results of one run.
    pub fn of_run(
        subject: Subject,
        seeds: Seeds,
        failing: Vec<u64>,
        totals: Totals,
    ) -> Result<Self> {
        let range = range(seeds)?;
        let entry = |range| Entry { subject, ranges: vec![range], failing, totals };
        Ok(Self { entries: range.map(entry).into_iter().collect(), ..Self::default() })
    }

    /// Reads the results of a file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path);
        Self::parse(&text.with_context(|| format!("cannot read {}", path.display()))?, path)
    }

    /// Parses the text of a file; an empty one holds no results.
    fn parse(text: &str, path: &Path) -> Result<Self> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let parsed: Self = serde_json::from_str(text)
            .with_context(|| format!("{} holds no results of `sim fuzz`", path.display()))?;
        ensure!(
            parsed.format == FORMAT,
            "{} has format {}, this program writes format {FORMAT}",
            path.display(),
            parsed.format
        );
        let mut results = Self::default();
        for entry in parsed.entries {
            let seeds: u64 = entry.ranges.iter().map(Range::len).sum();
            ensure!(
                seeds == entry.totals.all.seeds,
                "{}: the ranges of build {} hold {seeds} seeds, its totals {}",
                path.display(),
                entry.subject.build,
                entry.totals.all.seeds
            );
            results.add(Self { entries: vec![entry], ..Self::default() }, path)?;
        }
        Ok(results)
    }

    /// Returns an error if `subject` has run some of these seeds already; `path` is where.
    fn refuse(&self, subject: &Subject, ranges: &[Range], path: &Path) -> Result<()> {
        let known = self.entries.iter().find(|entry| entry.subject == *subject);
        for known in known.iter().flat_map(|entry| &entry.ranges) {
            let overlap = |range: &&Range| range.first <= known.last && known.first <= range.last;
            if let Some(range) = ranges.iter().find(overlap) {
                let (first, last) = (range.first.max(known.first), range.last.min(known.last));
                bail!(
                    "{}: build {} has run the seeds {first} to {last} of {} already; choose others \
                     with --seed",
                    path.display(),
                    subject.build,
                    subject.service
                );
            }
        }
        Ok(())
    }

    /// Adds other results, which were read from `path`.
    ///
    /// # Errors
    /// If a build has run a seed in both. Nothing is added then.
    pub fn add(&mut self, other: Self, path: &Path) -> Result<()> {
        for entry in &other.entries {
            self.refuse(&entry.subject, &entry.ranges, path)?;
        }
        for entry in other.entries {
            match self.entries.binary_search_by(|known| known.subject.cmp(&entry.subject)) {
                Ok(index) => self.entries[index].add(entry),
                Err(index) => self.entries.insert(index, entry),
            }
        }
        Ok(())
    }

    /// Adds results to the file at `path`, which is created if there is none. Returns all results
    /// of the file. Other processes may do the same at the same time.
    pub fn update(path: &Path, new: Self) -> Result<Self> {
        let cannot = || format!("cannot write {}", path.display());
        let mut locked = lock(path).with_context(cannot)?;
        let mut text = String::new();
        locked.read_to_string(&mut text).with_context(cannot)?;
        let mut results = Self::parse(&text, path)?;
        results.add(new, path)?;
        // A new file replaces the old one at once, so that a crash loses nothing.
        let part = path.with_added_extension("part");
        let write = || -> Result<()> {
            let mut file = File::create(&part)?;
            serde_json::to_writer_pretty(&mut file, &results)?;
            writeln!(file)?;
            file.sync_all()?;
            Ok(fs::rename(&part, path)?)
        };
        write().with_context(cannot)?;
        Ok(results)
    }
}

/// Opens or creates a file and locks it.
fn lock(path: &Path) -> std::io::Result<File> {
    loop {
        let file = File::options().read(true).append(true).create(true).open(path)?;
        file.lock()?;
        // The process that held the lock has replaced the file, perhaps.
        let locked = file.metadata()?.ino();
        if fs::metadata(path).is_ok_and(|now| now.ino() == locked) {
            return Ok(file);
        }
    }
}

impl Entry {
    /// Adds disjoint seeds of the same build.
    fn add(&mut self, other: Self) {
        self.totals.add(&other.totals);
        self.failing.extend(other.failing);
        self.failing.sort_unstable();
        self.ranges.extend(other.ranges);
        self.ranges.sort_unstable();
        self.ranges.dedup_by(|next, before| {
            let is_adjacent = before.last.checked_add(1) == Some(next.first);
            if is_adjacent {
                before.last = next.last;
            }
            is_adjacent
        });
    }
}

#[cfg(test)]
mod tests;
