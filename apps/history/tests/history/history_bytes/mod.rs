//! Histories of any bytes: random ones, and the fuzzer's corpus.

mod properties;

use proptest::prelude::*;

/// Lines of which many are histories.
fn line() -> impl Strategy<Value = String> {
    let kind = prop::sample::select(vec!["invoke", "ok", "fail", "info"]);
    let operations = [
        r#"["append","x",1]"#,
        r#"["append","x",2]"#,
        r#"["r","x",null]"#,
        r#"["r","x",[1,2]]"#,
        r#"["r","x",[2,1]]"#,
        r#"["w",7,1]"#,
        r#"["w",7,2]"#,
        r#"["r",7,1]"#,
        r#"["r",7,null]"#,
    ];
    let operations = prop::sample::subsequence(operations.to_vec(), 0..3);
    (kind, 0..4_u32, operations).prop_map(|(kind, process, operations)| {
        let value = operations.join(",");
        format!(r#"{{"type":"{kind}","process":{process},"value":[{value}]}}"#)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]
    #[test]
    fn arbitrary_histories_are_safe(lines in prop::collection::vec(line(), 0..14)) {
        properties::check_history(lines.join("\n").as_bytes());
    }

    #[test]
    fn arbitrary_bytes_are_safe(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        properties::check_history(&bytes);
    }
}

#[test]
fn corpus_histories_are_safe() {
    onepipe_verify_testing::check_corpus("history", properties::check_history);
}
