//! Tests that many crates repeat, for their dev-dependencies: the corpora of `verify/fuzz`, the
//! detection of seeded mistakes, and stories in text.

#![forbid(unsafe_code)]

mod stories;

use std::fs;
use std::panic::{RefUnwindSafe, catch_unwind};
use std::path::Path;

pub use stories::{check_stories, grouped};

/// Calls `check` with each input of a fuzz target's corpus.
///
/// # Panics
/// The corpus is missing or empty, or `check` panics; the message names the input.
pub fn check_corpus(target: &str, check: impl Fn(&[u8]) + RefUnwindSafe) {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    check_folder(&corpora.join(target), check);
}

fn check_folder(folder: &Path, check: impl Fn(&[u8]) + RefUnwindSafe) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let mut inputs = 0;
    for entry in entries {
        let path = entry.expect("the folder can be read").path();
        let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        assert!(catch_unwind(|| check(&bytes)).is_ok(), "{} fails", path.display());
        inputs += 1;
    }
    assert!(inputs > 0, "{folder:?} is empty");
}

/// The seeded mistakes of a crate, and how its tests select one.
pub struct Mistakes<'a, M> {
    /// The mistakes that its tests must detect.
    pub all: &'a [M],
    /// Selects a mistake for the whole process, or none. Only one test of a process may do so.
    pub choose: fn(Option<M>),
    /// Returns the name of a mistake.
    pub title: fn(M) -> &'static str,
}

impl<M: Copy> Mistakes<'_, M> {
    /// Verifies that each mistake is detected by one of `seeds` seeds, and that none is reported
    /// without one. `violation` returns what the run of a seed shows; a panic shows something, too.
    ///
    /// # Panics
    /// A mistake is not detected, or the unmodified code fails.
    pub fn detect(&self, seeds: u64, violation: impl Fn(u64) -> Option<String> + RefUnwindSafe) {
        let first = |mistake| {
            (self.choose)(mistake);
            let found = (0..seeds).find_map(|seed| {
                let violation = catch_unwind(|| violation(seed));
                Some((seed, violation.unwrap_or_else(|_| Some("an assertion failed".into()))?))
            });
            (self.choose)(None);
            found
        };
        // Panics count as detections: their output would only confuse.
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let correct = first(None);
        let found: Vec<_> = self.all.iter().map(|mistake| first(Some(*mistake))).collect();
        std::panic::set_hook(hook);
        assert_eq!(correct, None, "the unmodified code fails");
        let found = self.all.iter().map(|mistake| (self.title)(*mistake)).zip(found);
        let missed: Vec<_> = found
            .inspect(|(title, found)| println!("{title}: {found:?}"))
            .filter_map(|(title, found)| found.is_none().then_some(title))
            .collect();
        assert!(missed.is_empty(), "{missed:?} are not detected");
    }
}

#[cfg(test)]
mod tests;
