//! Choices, a confirmation, and a name that has to be typed again.

use rounds::{
    Era,
    test::{accept, cancel, decline},
};
use serde_json::{Value, json};

use super::{ERAS, Visit};

fn branch(name: &str) -> Value {
    accept(json!({ "branch": name }))
}

fn confirm(yes: bool) -> Value {
    accept(json!({ "confirm": yes }))
}

fn again(name: &str) -> Value {
    accept(json!({ "again": name }))
}

#[tokio::test]
async fn a_branch_is_deleted_only_as_the_user_says() {
    for era in ERAS {
        for (answers, text) in [
            (vec![branch("old-ui"), confirm(true)], "Deleted old-ui."),
            (vec![branch("secret"), branch("fix-login"), confirm(true)], "Deleted fix-login."),
            (vec![branch("main"), confirm(true), again("main")], "Deleted main."),
            (vec![branch("main"), confirm(true), again("x"), again("Main"), again("main")], "Deleted main."),
            (vec![decline()], "Not deleted."),
            (vec![cancel()], "Not deleted."),
            (vec![branch("old-ui"), confirm(false)], "Not deleted."),
            (vec![branch("old-ui"), decline()], "Not deleted."),
            (vec![branch("main"), confirm(true), decline()], "Not deleted."),
        ] {
            let stage = Visit::new(era).await;
            let played = stage.client.play("delete_branch", json!({"repo": "shop"}), answers).await;
            assert_eq!((&*played.text(), played.is_tool_error()), (text, false), "{era:?}");
            let offered = &played.question(0).schema()["properties"]["branch"]["enum"];
            assert_eq!(*offered, json!(["main", "fix-login", "old-ui"]));
        }
    }
}

#[tokio::test]
async fn three_wrong_names_are_a_tool_error() {
    for era in ERAS {
        let stage = Visit::new(era).await;
        let answers = [branch("main"), confirm(true), again("a"), again("b"), again("c")];
        let played = stage.client.play("delete_branch", json!({"repo": "shop"}), answers).await;
        assert!(played.is_tool_error());
        assert_eq!(played.messages()[4], "Type main again to delete it. (that is not main)");
        assert_eq!(played.text(), r#"The answer to "Type main again to delete it." is not valid: that is not main"#);
    }
}

#[tokio::test]
async fn each_question_has_its_key() {
    let stage = Visit::new(Era::Modern).await;
    let asked = stage.client.call("delete_branch", json!({"repo": "shop"})).await.asked();
    assert_eq!(asked.keys(), ["branch"]);
    let asked = asked.accept("branch", json!({"branch": "main"})).send(&stage.client).await.asked();
    assert_eq!(asked.keys(), ["confirm"]);
    let asked = asked.accept("confirm", json!({"confirm": true})).send(&stage.client).await.asked();
    assert_eq!(asked.keys(), ["again"]);
    assert_eq!(asked.schema("again")["properties"]["again"], json!({"type": "string"}));
}
