//! Runs the example as real processes. `cargo test -p onepipe-table-server` builds it.

use std::process::Command;

#[test]
fn example_fills_table_of_four_processes() {
    let test = std::env::current_exe().expect("this test has a path");
    let profile = test.ancestors().nth(2).expect("it lies in target/<profile>/deps");
    let output = Command::new(profile.join("examples/table")).output();
    let output = output.expect("cargo build -p onepipe-table-server --examples");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stdout, b"75 of 100 keys are in the table\n");
}
