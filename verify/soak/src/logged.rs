//! What a process logs of other ones.

/// A line of `onepipe node` on standard error that is checked.
#[derive(Debug, PartialEq, Eq)]
pub enum Logged {
    /// The outcome of a message to this process, which was not delivered for certain.
    Outcome { to: usize },
    /// This process was declared failed.
    Failed(usize),
}

impl Logged {
    /// Reads a line: time, level, `onepipe::node: ` and the text.
    pub fn parse(line: &str) -> Option<Self> {
        let (_, text) = line.split_once(" onepipe::node: ")?;
        let number = |text: &str| {
            let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
            Some((text[..digits].parse::<usize>().ok()?, text[digits..].to_owned()))
        };
        if let Some((to, _)) = text.strip_prefix("message to process ").and_then(number) {
            return Some(Self::Outcome { to });
        }
        let (process, rest) = text.strip_prefix("process ").and_then(number)?;
        rest.starts_with(" has failed").then_some(Self::Failed(process))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_outcomes_and_failures_in_log_lines() {
        let parse = |level: &str, text: &str| {
            Logged::parse(&format!("2026-11-26T22:01:05.072619Z {level} onepipe::node: {text}"))
        };
        let lost = "message to process 3: lost: the receiver has failed, left or restarted";
        assert_eq!(parse(" WARN", lost), Some(Logged::Outcome { to: 3 }));
        let failed = "process 12 has failed: refused by the system";
        assert_eq!(parse(" WARN", failed), Some(Logged::Failed(12)));
        assert_eq!(parse(" INFO", "process 12 has left"), None);
        assert_eq!(parse(" WARN", "process 12 has died or does not respond"), None);
        assert_eq!(Logged::parse("onepipe: process 12 has failed"), None, "no log line");
    }
}
