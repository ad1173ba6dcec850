//! Banned words in code, and attributes that every crate root needs.

use super::Source;

/// Words that no machine (`protocol/*`) may use outside its tests, and why.
const BANNED_IN_MACHINES: &[(&str, &str)] = &[
    ("f32", "floats differ between machines and are not Eq: use fixed point"),
    ("f64", "floats differ between machines and are not Eq: use fixed point"),
    ("HashMap", "its order differs between runs: use a flat array or BTreeMap"),
    ("HashSet", "its order differs between runs: use a flat array or BTreeSet"),
    ("Instant", "time is an input: take `Now`"),
    ("SystemTime", "time is an input: take `Now`"),
    (".unwrap()", "say why it cannot fail: expect(\"reason\"), or return an error"),
    ("println!", "a machine does not print: use events and counters"),
    ("cfg(sim)", "no machine may depend on the environment that drives it"),
];

/// Words that mark unfinished work; banned everywhere, comments included.
const UNFINISHED: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")];

/// Where unsafe code may stand: code that uses the operating system, a device, a C caller, or
/// instructions that not every processor has. Tests may use it (a counting allocator does).
const UNSAFE_FOLDERS: &[&str] = &["transport/", "dataplane/", "api/c/", "protocol/simd/"];

/// Checks the words of one Rust file.
pub fn check(source: &Source) -> Vec<String> {
    let mut findings = crate_root(source);
    let location = |at: usize| format!("{}:{}", source.path, at + 1);
    if source.path.starts_with("protocol/") {
        for (word, reason) in BANNED_IN_MACHINES {
            let lines = source.lines_with(word);
            let lines = lines.into_iter().filter(|at| !source.is_test_line(*at));
            findings.extend(lines.map(|at| format!("{}: `{word}`: {reason}", location(at))));
        }
    }
    if !UNSAFE_FOLDERS.iter().any(|folder| source.path.starts_with(folder)) {
        let lines = source.lines_with("unsafe");
        let lines = lines.into_iter().filter(|at| !source.is_test_line(*at));
        let reason = "unsafe code lives in transport/, dataplane/, api/c and protocol/simd";
        findings.extend(lines.map(|at| format!("{}: {reason}", location(at))));
    }
    for (at, line) in source.text.lines().enumerate() {
        let is_unfinished =
            |word: &&&str| line.split(|c: char| !c.is_alphanumeric()).any(|w| w == **word);
        if let Some(word) = UNFINISHED.iter().find(is_unfinished) {
            findings.push(format!("{}: {word}: finish it, or open an issue", location(at)));
        }
    }
    findings
}

/// Checks the first file of a crate.
fn crate_root(source: &Source) -> Vec<String> {
    let path = &source.path;
    let mut findings = Vec::new();
    let is_root = path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs");
    if is_root && !source.text.starts_with("//!") {
        findings.push(format!("{path}: a crate begins with `//!`: what it is, in one sentence"));
    }
    if is_root && path.starts_with("protocol/") {
        let is_unsafe = UNSAFE_FOLDERS.iter().any(|folder| path.starts_with(folder));
        for attribute in ["#![no_std]", "#![forbid(unsafe_code)]"] {
            let is_needed = attribute == "#![no_std]" || !is_unsafe;
            if is_needed && !source.code.contains(attribute) {
                findings.push(format!("{path}: a machine declares `{attribute}`"));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "//! A machine.\n#![no_std]\n#![forbid(unsafe_code)]\n";

    fn found(path: &str, text: &str) -> Vec<String> {
        check(&Source::new(path, text))
    }

    #[test]
    fn each_word_banned_in_machines_fails_there_and_only_there() {
        for (word, reason) in BANNED_IN_MACHINES {
            let text = format!("fn f() {{ {word} }}\n");
            let inside = found("protocol/switch/src/barrier.rs", &text);
            assert_eq!(inside.len(), 1, "{word}");
            assert!(inside[0].contains(reason) && inside[0].contains("barrier.rs:1:"), "{word}");
            assert_eq!(found("transport/udp/src/socket.rs", &text), [""; 0], "{word}");
            assert_eq!(found("protocol/switch/tests/pair.rs", &text), [""; 0], "{word}");
            let in_test = format!("#[cfg(test)]\nmod tests {{\n    {text}}}\n");
            assert_eq!(found("protocol/switch/src/barrier.rs", &in_test), [""; 0], "{word}");
        }
    }

    #[test]
    fn unsafe_code_fails_outside_its_folders() {
        let text = "fn f() { unsafe { g() } }\n";
        assert!(found("sim/engine/src/queue.rs", text)[0].contains("unsafe code lives"));
        assert_eq!(found("transport/shm/src/ring.rs", text), [""; 0]);
        assert_eq!(found("protocol/simd/src/bits.rs", text), [""; 0]);
        assert_eq!(found("protocol/endpoint/tests/allocations.rs", text), [""; 0]);
        assert_eq!(
            found("cli/src/main.rs", "//! Not `unsafe`.\n#![forbid(unsafe_code)]\n"),
            [""; 0]
        );
    }

    #[test]
    fn unfinished_work_fails_even_in_a_comment() {
        for word in UNFINISHED {
            assert_eq!(found("cli/src/demo.rs", &format!("// {word}: later\n")).len(), 1);
        }
    }

    #[test]
    fn a_crate_root_without_its_first_sentence_or_attributes_fails() {
        assert_eq!(found("protocol/switch/src/lib.rs", ROOT), [""; 0]);
        assert!(found("cli/src/main.rs", "fn main() {}\n")[0].contains("begins with `//!`"));
        let lib = "protocol/switch/src/lib.rs";
        for attribute in ["#![no_std]\n", "#![forbid(unsafe_code)]\n"] {
            let found = found(lib, &ROOT.replace(attribute, ""));
            assert_eq!(found, [format!("{lib}: a machine declares `{}`", attribute.trim())]);
        }
        let lib = "protocol/simd/src/lib.rs";
        assert_eq!(found(lib, "//! Instructions.\n#![no_std]\n"), [""; 0]);
        assert!(found(lib, "//! Instructions.\n")[0].contains("declares `#![no_std]`"));
        let only_said = "//! Is `#![no_std]`.\n#![forbid(unsafe_code)]\n";
        assert_eq!(found(lib, only_said).len(), 1);
    }
}
