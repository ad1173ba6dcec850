//! The page that holds the tables, under a heading of their own.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Everything under this line is replaced.
const HEADING: &str = "## Totals\n\n";

/// Replaces the tables of a page.
pub fn replace(path: &Path, tables: &str) -> Result<()> {
    let page = fs::read_to_string(path);
    let page = page.with_context(|| format!("cannot read {}", path.display()))?;
    let (above, _) = page
        .split_once(HEADING)
        .with_context(|| format!("{} has no heading \"## Totals\"", path.display()))?;
    fs::write(path, format!("{above}{HEADING}{tables}"))
        .with_context(|| format!("cannot write {}", path.display()))
}
