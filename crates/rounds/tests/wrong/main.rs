//! The compiler's messages for wrong handlers: a sentence that tells a newcomer what to write.
//!
//! Each case of `code.rs` is compiled as a target of this package, so that every dependency is built already and a case
//! takes about a second. Only our own sentences, and those that matter most, are checked: the rest differs between
//! compilers.

#![expect(clippy::unwrap_used, reason = "a failed unwrap names its line")]

use std::{path::Path, process::Command};

/// The compiler's messages for one of the cases.
fn said(case: &str) -> String {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["rustc", "--quiet", "--offline", "--profile", "test", "--test", "wrong-code"]);
    // With the flags of this test, so that the library is built already.
    cargo.args(cfg!(feature = "otel").then_some("--all-features"));
    cargo.args(["--", "--cfg", &format!("wrong=\"{case}\"")]);
    cargo.current_dir(env!("CARGO_MANIFEST_DIR")).env("CARGO_TARGET_DIR", target);
    let output = cargo.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "`{case}` compiles");
    said
}

#[test]
fn a_wrong_handler_is_told_what_to_write_instead() {
    for (case, sentences) in [
        ("self", &["expected to take 2 arguments, but it takes 3", "F: Fn(Durable<S>, P) -> Fut"][..]),
        ("method", &["a durable handler is a function without `&self`", "and `router.with_route(durable("]),
        ("captures", &["a durable handler cannot capture anything: use the server inside `once`"]),
        ("outside", &["field `server` of struct `rounds::Durable` is private"]),
        ("form", &["`Seat` cannot be asked for with a form", "derive `serde::Deserialize` and `schemars::JsonSchema`"]),
        ("arguments", &["`JsonSchema` is not implemented for `Bare`"]),
        ("not_send", &["future returned by `book` is not `Send`", "has type `Rc<std::string::String>`"]),
        ("no_question", &["`Trip` is not a question", "write `impl rounds::asked::FixedQuestion for Trip`"]),
        (
            "asked_without_a_question",
            &["error[E0277]: `Trip` is not a question\n", "write `impl rounds::asked::FixedQuestion for Trip`"],
        ),
        (
            "question_of_another_server",
            &["`Trip` is not a question that `Shop` can ask", "`type Server` of its `Question` is another server"],
        ),
        ("form_without_type", &["`!` cannot be asked for with a form", "say what to ask for: `let units: Units ="]),
        (
            "durable_form_without_type",
            &["`!` cannot be asked for with a form", "say what to ask for: `let units: Units ="],
        ),
        (
            "durable_in_a_router",
            &["is not in a `#[tool_router]`", "`durable::tool(Shop::book_tool_attr(), Shop::book)`"],
        ),
        (
            "ask_and_durable",
            &["a durable handler is a function without `&self`", "takes no `Ask` beside its `Durable`"],
        ),
        (
            "durable_and_ask",
            &["`rounds::Ask` cannot be the arguments of a durable handler", "and does not take an `Ask`"],
        ),
        (
            "router",
            &["is not a handler that `Rounds` can wrap", "`Rounds::new(rounds::service::AnyService::new(router))`"],
        ),
        ("no_step", &["there is no step to finish", "add one with `.step("]),
        ("no_finish", &["no method named `build` found for struct `Steps<"]),
    ] {
        let said = said(case);
        for sentence in sentences {
            assert!(said.contains(sentence), "for `{case}` the compiler did not print \"{sentence}\", but:\n{said}");
        }
        let first = said.split("\nerror").next().unwrap();
        assert!(first.contains(sentences[0]), "for `{case}` the first error is not \"{}\", but:\n{said}", sentences[0]);
        // rmcp's macro adds an error of its own to some of ours.
        assert!(said.lines().count() < 80, "for `{case}` the compiler prints too much:\n{said}");
    }
}
