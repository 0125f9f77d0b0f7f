//! Help texts, and the errors for wrong options.

use crate::process::{rounds, run};

#[tokio::test]
async fn help_says_what_each_command_is_for_with_an_example() {
    let help = run(&["--help"]).await.printed();
    for command in ["tour", "serve", "call", "resume", "list", "flows", "keygen", "open"] {
        assert!(help.contains(&format!("\n  {command} ")), "{help}");
        let help = run(&[command, "--help"]).await.printed();
        assert!(help.contains("Example"), "{help}");
    }
}

#[tokio::test]
async fn serve_takes_one_of_http_and_stdio() {
    for args in [&["serve"][..], &["serve", "--stdio", "--http", "127.0.0.1:0"]] {
        let ended = run(args).await;
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains("--http"), "{ended:?}");
    }
}

#[tokio::test]
async fn an_argument_that_makes_no_sense_is_told_what_would() {
    for (args, words) in [
        (["--round-lifetime", "10"], "it has no unit: write 10s for seconds"),
        (["--round-lifetime", "soon"], "a duration is a whole number and a unit"),
        (["--flow-deadline", "1d"], "`d` is not a unit: use ms, s, m or h"),
        (["--audience", ""], "a value is required"),
        (["--principal-header", "x user"], "invalid HTTP header name"),
    ] {
        let ended = run(&[&["serve", "--http", "127.0.0.1:0"][..], &args].concat()).await;
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains(words), "{words} is not in {ended:?}");
    }
}

#[tokio::test]
async fn a_lifetime_of_nothing_is_refused() {
    let ended = run(&["serve", "--stdio", "--round-lifetime", "0s"]).await;
    ended.failed("the round lifetime is zero, so no question could ever be answered: set it above zero");
}

#[tokio::test]
async fn a_log_filter_that_cannot_be_read_is_told_in_a_sentence() {
    let output = rounds(&["serve", "--stdio"]).env("RUST_LOG", "rounds=loud").output().await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("rounds: cannot read RUST_LOG: ") && said.lines().count() == 1, "{said}");
}

#[tokio::test]
async fn the_version_is_that_of_the_command() {
    assert_eq!(run(&["--version"]).await.printed(), concat!("rounds ", env!("CARGO_PKG_VERSION"), "\n"));
}
