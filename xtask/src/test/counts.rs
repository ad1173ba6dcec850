//! The sum of the result lines of test programs.

/// Test results, summed over all programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed, and programs that ended without a result line.
    pub failed: u64,
    /// Tests that were ignored.
    pub ignored: u64,
}

impl Counts {
    /// Adds the result line of a test program; ignores any other line.
    pub fn read(&mut self, line: &str) {
        let Some(result) = line.strip_prefix("test result: ") else { return };
        for part in result.split([';', '.']) {
            let mut words = part.split_whitespace();
            let Some(Ok(number)) = words.next().map(str::parse::<u64>) else { continue };
            match words.next() {
                Some("passed") => self.passed += number,
                Some("failed") => self.failed += number,
                Some("ignored") => self.ignored += number,
                _ => {}
            }
        }
    }

    /// Adds other counts.
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }

    /// Prints the sum as the closing line that CI reads.
    pub fn print(&self) {
        if self.ignored > 0 {
            println!("{} ignored", self.ignored);
        }
        println!("{} passed, {} failed", self.passed, self.failed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_all_programs_are_added_up() {
        let mut counts = Counts::default();
        for line in [
            "running 3 tests",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; finished in 0.00s",
            "test tests::says_5_passed ... ok",
            "test result: FAILED. 40 passed; 2 failed; 0 ignored; 0 measured; 7 filtered out",
        ] {
            counts.read(line);
        }
        assert_eq!(counts, Counts { passed: 43, failed: 2, ignored: 1 });
    }
}
