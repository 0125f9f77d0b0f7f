//! The usage text, for a missing or unknown task.

use std::process::Command;

#[test]
fn no_task_and_an_unknown_task_are_told_which_there_are() {
    for args in [&[][..], &["tset"], &["test", "more"], &["interop", "more"], &["test", "--write"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_xtask")).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(String::from_utf8(output.stderr).unwrap().starts_with("Usage: cargo xtask TASK"), "{args:?}");
    }
}
