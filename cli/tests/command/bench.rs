//! `onepipe bench`.

use crate::program::output;

#[test]
fn the_list_names_what_can_be_measured() {
    let output = output(&["bench", "--list"]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8_lossy(&output.stdout);
    for name in ["reorder", "endpoint", "pair", "order", "sim"] {
        assert!(text.lines().any(|line| line.starts_with(name)), "{name}: {text}");
    }
}
