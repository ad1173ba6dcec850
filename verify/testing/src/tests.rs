use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

static CHOSEN: AtomicU64 = AtomicU64::new(0);

/// Detects mistakes in a machine in which each one shows from the seed of its number on, and 100 is
/// a panic. The tests run one after the other, because a mistake is chosen for the whole process.
fn detect(all: &[u64], fault_without_mistake: bool) -> Result<(), String> {
    let choose = |mistake: Option<u64>| CHOSEN.store(mistake.unwrap_or(0), Ordering::Relaxed);
    let mistakes = Mistakes { all, choose, title: |_| "a title" };
    let outcome = catch_unwind(|| {
        mistakes.detect(10, |seed| match CHOSEN.load(Ordering::Relaxed) {
            0 => fault_without_mistake.then(|| "a fault".into()),
            100 => panic!("detected by an assertion"),
            first => (seed >= first).then(|| "a fault".into()),
        })
    });
    outcome.map_err(|panic| match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(_) => "a panic without a message".into(),
    })
}

#[test]
fn mistakes_must_be_detected_and_nothing_else() {
    assert_eq!(detect(&[1, 9, 100], false), Ok(()));
    let missed = detect(&[1, 10], false).expect_err("there are ten seeds");
    assert_eq!(missed, "[\"a title\"] are not detected");
    let wrong = detect(&[1], true).expect_err("the unmodified code fails");
    assert!(wrong.contains("the unmodified code fails"), "{wrong}");
}

#[test]
fn inputs_that_fail_and_empty_corpora_are_errors() {
    let folder = tempfile::tempdir().expect("a folder");
    catch_unwind(|| check_folder(folder.path(), |_| ())).expect_err("it is empty");
    fs::write(folder.path().join("one"), "1").expect("it is writable");
    check_folder(folder.path(), |bytes| assert_eq!(bytes, b"1"));
    catch_unwind(|| check_folder(folder.path(), |_| panic!("a fault"))).expect_err("one fails");
    catch_unwind(|| check_corpus("no such target", |_| ())).expect_err("it is missing");
}
