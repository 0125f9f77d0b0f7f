//! Two servers of another author, from crates.io at a pinned version, that ask through `context.peer`. Each is wrapped in
//! one line, and nothing of its code changes. `aether-mcp-servers` 0.4.38 is the last version of the crate that asks in
//! this way.

use std::{env, fs, path::PathBuf, process};

use mcp_servers::{plan::PlanMcp, survey::SurveyMcp};
use rounds::{
    Era, Rounds,
    test::{Client, Played, accept, decline},
};
use serde_json::{Value, json};

/// The line.
macro_rules! wrapped {
    ($server:expr) => {
        Rounds::builder($server).pushes().build().unwrap()
    };
}

const ERAS: [Era; 2] = [Era::Modern, Era::Legacy];

fn forms() -> Value {
    json!({"elicitation": {"form": {}}})
}

fn question() -> Value {
    let schema = json!({"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]});
    json!({"message": "Which colour?", "schema": schema})
}

fn structured(played: &Played) -> &Value {
    &played.end().result()["structuredContent"]
}

#[tokio::test]
async fn a_survey_asks_clients_of_both_eras() {
    for era in ERAS {
        let client = Client::connect(wrapped!(SurveyMcp::new()), era, forms()).await;
        let answers = [accept(json!({"colour": 7})), accept(json!({"colour": "red"}))];
        // What does not fit is asked again by `Rounds`. A legacy client is asked by the real peer, as before.
        let answers = if era == Era::Modern { answers.to_vec() } else { vec![answers[1].clone()] };
        let played = client.play("ask_user", question(), answers).await;
        assert_eq!(played.messages()[0], "Which colour?");
        assert_eq!(*structured(&played), json!({"accepted": true, "data": {"colour": "red"}}), "{era:?}");
        let played = client.play("ask_user", question(), [decline()]).await;
        assert_eq!(structured(&played)["accepted"], false, "{era:?}");
    }
}

#[tokio::test]
async fn a_plan_is_approved_and_denied_in_both_eras() {
    let plans = Plans::with("launch", "# Launch\n\nTomorrow.\n");
    for era in ERAS {
        let server = PlanMcp::new().with_plans_dir(plans.0.clone());
        let client = Client::connect(wrapped!(server), era, forms()).await;
        let submit = json!({"planName": "launch"});
        let approve = accept(json!({"decision": "approve"}));
        let played = client.play("submit_plan", submit.clone(), [approve]).await;
        assert!(played.messages()[0].starts_with("Approve plan "), "{:?}", played.messages());
        assert_eq!(structured(&played)["approved"], true, "{era:?}");
        let deny = accept(json!({"decision": "deny", "feedback": "not on a Friday"}));
        let played = client.play("submit_plan", submit.clone(), [deny]).await;
        assert_eq!(*structured(&played), json!({"approved": false, "feedback": "not on a Friday"}), "{era:?}");
        let played = client.play("submit_plan", submit, [decline()]).await;
        assert_eq!(structured(&played)["approved"], false, "{era:?}");
    }
}

#[tokio::test]
async fn a_client_that_cannot_be_asked_gets_the_error_of_rmcp() {
    for era in ERAS {
        let client = Client::connect(wrapped!(SurveyMcp::new()), era, json!({})).await;
        let played = client.play("ask_user", question(), []).await;
        assert!(played.is_tool_error() && played.text().starts_with("Elicitation failed: "), "{}", played.text());
    }
}

#[tokio::test]
async fn without_the_line_a_modern_client_is_not_asked() {
    let client = Client::connect(SurveyMcp::new(), Era::Modern, forms()).await;
    let called = client.call("ask_user", question()).await;
    assert!(!called.is_asked() && called.is_tool_error(), "{called:?}");
}

/// A folder with one plan, which is removed when the test ends.
struct Plans(PathBuf);

impl Plans {
    fn with(name: &str, text: &str) -> Self {
        let folder = env::temp_dir().join(format!("published-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("{name}.md")), text).unwrap();
        Self(folder)
    }
}

impl Drop for Plans {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
