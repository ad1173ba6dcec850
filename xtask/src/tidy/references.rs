//! References in comments to files and headings that do not exist.

use super::prose::Line;

/// The documents of the project, each with its headings.
pub struct Documents<'a> {
    /// Every path of the project.
    pub paths: &'a [String],
    /// Path and text of every Markdown document.
    pub texts: &'a [(String, String)],
}

impl Documents<'_> {
    /// Returns the references in comments that lead nowhere: to a file, to a `"Heading"` or to a
    /// `section N` of a document.
    pub fn check(&self, path: &str, lines: &[Line<'_>]) -> Vec<String> {
        let mut findings = Vec::new();
        for (index, line) in lines.iter().enumerate() {
            // A reference may go on in the next line of the same comment.
            let next = lines.get(index + 1).filter(|next| next.number == line.number + 1);
            let text = format!("{} {}", line.text, next.map_or("", |next| next.text));
            for name in file_names(line.text) {
                let at = format!("{path}:{}", line.number);
                let found: Vec<&String> = self.named(name).collect();
                if found.is_empty() {
                    findings.push(format!("{at}: refers to {name}, which does not exist"));
                    continue;
                }
                let after = text.split_once(name).map_or("", |(_, after)| after);
                if let Some(heading) = heading(after)
                    && !found.iter().any(|path| self.has_heading(path, &heading))
                {
                    findings.push(format!("{at}: {name} has no heading {heading}"));
                }
            }
        }
        findings
    }

    fn named<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a String> {
        let ending = format!("/{}", name.trim_start_matches("./").trim_start_matches("../"));
        self.paths
            .iter()
            .filter(move |path| path.ends_with(&ending) || path.as_str() == &ending[1..])
    }

    /// Returns whether a document has this heading, given as its text or as `section N`, where N
    /// begins the heading's text (`3. Recall`).
    fn has_heading(&self, path: &str, heading: &str) -> bool {
        let text = self.texts.iter().find(|(document, _)| document == path).map(|(_, text)| text);
        text.is_some_and(|text| {
            let mut headings = text.lines().filter(|line| line.starts_with('#'));
            headings.any(|line| {
                let line = line.trim_start_matches('#').trim();
                let number = heading.strip_prefix("section ");
                line == heading
                    || number.is_some_and(|number| {
                        line.split([' ', '.']).next()
                            == Some(number.split('.').next().unwrap_or(""))
                            && line.starts_with(number)
                    })
            })
        })
    }
}

/// Returns the names of Markdown, Rust and golden files in a line.
fn file_names(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_alphanumeric() || "/._-".contains(c);
    text.split(move |c: char| !is_part(c)).filter_map(|word| {
        let word = word.trim_end_matches('.');
        let is_file = [".md", ".rs", ".hex"].iter().any(|ending| word.ends_with(ending));
        let name = word.rsplit('/').next().unwrap_or(word);
        (is_file && !name.starts_with('.')).then_some(word)
    })
}

/// Returns what a reference names after the file: `, "Heading"` or ` section N`.
fn heading(after: &str) -> Option<String> {
    let after = after.trim_start_matches(['`', ')']);
    if let Some(quoted) = after.strip_prefix(", \"") {
        return Some(quoted.split('"').next()?.to_string());
    }
    let number = after.strip_prefix(" section ").or_else(|| after.strip_prefix(", section "))?;
    let number: String = number.chars().take_while(|c| c.is_numeric() || *c == '.').collect();
    Some(format!("section {}", number.trim_end_matches('.')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let paths = ["docs/design/failure.md", "cli/src/demo.rs"].map(str::to_string);
        let page = "# Failure\n## What happens?\n## 3. Recall\n".to_string();
        let texts = [(paths[0].clone(), page)];
        let documents = Documents { paths: &paths, texts: &texts };
        documents.check("a.rs", &[Line { number: 1, text, begins_sentence: true }])
    }

    #[test]
    fn references_that_exist_pass() {
        for text in [
            "see failure.md",
            "see docs/design/failure.md, \"What happens?\"",
            "(failure.md section 3)",
            "as `demo.rs` does.",
        ] {
            assert_eq!(found(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn references_that_lead_nowhere_fail() {
        for text in [
            "see testing.md, row 33",
            "(failure.md section 4)",
            "failure.md, \"What else?\"",
            "as gone.rs does",
        ] {
            assert_eq!(found(text).len(), 1, "{text}");
        }
    }
}
