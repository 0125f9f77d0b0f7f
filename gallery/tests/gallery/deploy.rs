//! A confirmation: only an accepted "yes" counts.

use rounds::Era;
use serde_json::json;

use super::{ERAS, Visit, accept, cancel, decline};

#[tokio::test]
async fn only_an_accepted_yes_deploys() {
    for era in ERAS {
        for (env, answer, text) in [
            ("prod", accept(json!({"confirm": true})), "deployed to prod"),
            ("staging", accept(json!({"confirm": true})), "deployed to staging"),
            ("prod", accept(json!({"confirm": false})), "deployment to prod cancelled"),
            ("prod", decline(), "deployment to prod cancelled"),
            ("staging", cancel(), "deployment to staging cancelled"),
        ] {
            let stage = Visit::new(era).await;
            let call = json!({"name": "deploy", "arguments": {"env": env}});
            let played = stage.play("tools/call", call, &answer).await;
            played.asked_for(&format!("Deploy to {env}?"), "confirm", json!({"type": "boolean"}));
            assert_eq!(played.leg.text(), text, "{era:?} answered {answer}");
            assert!(!played.leg.is_tool_error());
            assert_eq!(stage.events.runs("deploy"), 1);
        }
    }
}

#[tokio::test]
async fn the_question_has_a_key_of_its_own() {
    let stage = Visit::new(Era::Modern).await;
    let asked = stage.client.call("deploy", json!({"env": "prod"})).await.asked();
    assert_eq!(asked.keys(), ["confirm"]);
}
