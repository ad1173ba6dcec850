//! Properties of histories of any bytes. Shared with `verify/fuzz`.

use onepipe_history::{History, Order, Verdict, check, serializability};

/// Limits above which an input is not checked: what is wanted is many short ones.
const EVENTS_MAX: usize = 40;

/// Checks a history of any bytes: nothing panics, what is parsed is written and parsed as it was,
/// and weaker promises hold wherever stronger ones do.
pub fn check_history(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(history) = History::from_json_lines(&text) else { return };
    let mut written = Vec::new();
    history.write(&mut written).expect("memory takes all");
    let written = String::from_utf8(written).expect("JSON is text");
    let again = History::from_json_lines(&written).expect("what was written is a history");
    assert_eq!(again.events(), history.events());
    if history.events().len() > EVENTS_MAX {
        return;
    }
    let report = check(&history);
    for (name, verdict) in report.verdicts() {
        assert!(!name.is_empty() && !verdict.to_string().is_empty());
    }
    let weaker = [
        (&report.strict, &report.session),
        (&report.session, &report.serializable),
        (&report.strict, &report.linearizable),
    ];
    for (stronger, weaker) in weaker {
        let is_violated = matches!(weaker, Verdict::Violated(_));
        assert!(!stronger.is_valid() || !is_violated, "{report}");
    }
    assert_eq!(report.serializable.is_valid(), serializability(&again, Order::Data).is_valid());
}
