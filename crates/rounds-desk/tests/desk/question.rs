//! Questions that are answered at the desk: by whom, once, and for what was shown.

use std::time::Duration;

use rmcp::{ServerHandler, handler::server::router::tool::ToolRouter, schemars, tool, tool_handler, tool_router};
use rounds::{
    Ask, Era, FlowError, Principal, Rounds,
    elsewhere::{Approvers, Decision, Elsewhere},
    test::{AskedRound, Client},
};
use rounds_desk::{ActionKind, Desk, Permission, Recorder, Visitor};
use serde_json::json;

use crate::stage::Stage;

const HOUR: Duration = Duration::from_secs(3600);

pub(crate) struct Shop {
    tool_router: ToolRouter<Self>,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Discount {
    /// In percent
    #[schemars(range(min = 1, max = 50))]
    percent: u32,
}

fn approvers() -> Approvers {
    Approvers::people(["grace", "local"])
}

#[tool_router]
impl Shop {
    #[tool(description = "Refunds an order, after an approval")]
    async fn refund(&self, ask: Ask) -> Result<String, FlowError> {
        let asked = ask.approval("Refund <b>900</b>?").key("approval").by(approvers()).within(HOUR);
        Ok(match asked.await? {
            Decision::Approved { by, .. } => format!("refunded, approved by {by}"),
            Decision::Denied { by, reason, .. } => format!("denied by {by}: {reason}"),
            Decision::Expired => "expired".to_owned(),
        })
    }

    #[tool(description = "Gives a discount that a manager chooses")]
    async fn discount(&self, ask: Ask) -> Result<String, FlowError> {
        let Discount { percent } = ask.form("How much?").key("dis/count").by(approvers()).await?;
        Ok(format!("{percent} percent"))
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Shop {}

fn stage(configure: impl FnOnce(Desk) -> Desk) -> Stage<Shop> {
    let recorder = Recorder::new();
    let shop = Shop { tool_router: Shop::tool_router() };
    let elsewhere = Elsewhere::at("http://localhost:8000/questions");
    let server = Rounds::builder(shop).register().elsewhere(elsewhere).observe(recorder.clone()).build().unwrap();
    Stage::of(server, recorder, configure)
}

async fn ask(stage: &Stage<Shop>, tool: &str) -> (Client, AskedRound, String) {
    let capabilities = json!({"elicitation": {"form": {}, "url": {}}});
    let client = Client::connect(stage.server.clone(), Era::Modern, capabilities).await;
    let asked = client.call(tool, json!({})).await.asked();
    let key = asked.keys()[0].to_owned();
    let url = asked.question(&key)["params"]["url"].as_str().unwrap().to_owned();
    (client, asked, url.strip_prefix("http://localhost:8000").unwrap().to_owned())
}

async fn result(client: &Client, asked: &AskedRound) -> String {
    let key = asked.keys()[0].to_owned();
    asked.retry().respond(&key, json!({"action": "accept"})).send(client).await.text()
}

#[tokio::test]
async fn a_person_approves_and_the_call_goes_on() {
    let stage = stage(|desk| desk);
    let (client, asked, path) = ask(&stage, "refund").await;
    let flow = stage.get_as("grace", "/").await.link("refund");
    stage.get_as("grace", &flow).await.shows("Waits for a decision").shows(&format!("href=\"{path}\""));
    let page = stage.get_as("grace", &path).await;
    page.shows("Refund &lt;b&gt;900&lt;/b&gt;?").shows(">Approve</button>").shows(">Deny</button>");
    let decided = stage.submit(&page, &path, &[("approve", "1")]).await;
    decided.shows("<strong>Approved</strong> by grace").hides(">Approve</button>");
    assert_eq!(result(&client, &asked).await, "refunded, approved by grace");
    let late = stage.submit(&page, &path, &[("deny", "1")]).await;
    assert_eq!(late.status, 409);
    late.shows("decided before, by grace");
    let actions = stage.actions.lock().unwrap();
    let [action] = actions.as_slice() else { panic!("one action: {actions:?}") };
    assert_eq!((action.kind, action.actor.as_ref()), (ActionKind::Answered, Some(&Principal::new("grace"))));
}

#[tokio::test]
async fn a_person_denies_with_a_reason() {
    let stage = stage(|desk| desk);
    let (client, asked, path) = ask(&stage, "refund").await;
    let page = stage.get(&path).await;
    let decided = stage.submit(&page, &path, &[("deny", "1"), ("reason", "too <i>much</i>")]).await;
    decided.shows("<strong>Denied</strong> by local").shows("Reason: too &lt;i&gt;much&lt;/i&gt;");
    assert_eq!(result(&client, &asked).await, "denied by local: too <i>much</i>");
    assert_eq!(stage.actions.lock().unwrap()[0].kind, ActionKind::Declined);
}

#[tokio::test]
async fn a_form_is_checked_on_the_server_with_messages_beside_its_fields() {
    let stage = stage(|desk| desk);
    let (client, asked, path) = ask(&stage, "discount").await;
    assert!(path.ends_with("/dis%2Fcount"), "{path}");
    let page = stage.get_as("grace", &path).await;
    page.shows(">percent</label>").shows(">Answer</button>").shows(">Decline</button>").shows("In percent");
    for (wrong, why) in [("", "Enter a value."), ("60", "This must be"), ("x", "This must be a whole number")] {
        let refused = stage.submit(&page, &path, &[("answer", "1"), ("q0.0", wrong)]).await;
        assert_eq!(refused.status, 422, "{wrong}");
        refused.shows(why).shows("aria-invalid=\"true\"");
    }
    stage.submit(&page, &path, &[("answer", "1"), ("q0.0", "20")]).await.shows("<strong>Answered</strong> by grace");
    assert_eq!(result(&client, &asked).await, "20 percent");
}

/// `grace` may answer and nothing else, `bob` may do everything at the desk and is not an approver.
fn check(visitor: &Visitor<'_>, permission: Permission) -> bool {
    match visitor.principal().map(|principal| principal.as_str()) {
        Some("bob") => true,
        Some("grace" | "eve") => permission == Permission::Answer,
        _ => false,
    }
}

#[tokio::test]
async fn a_link_lets_in_only_whom_the_rule_and_the_check_admit() {
    let stage = stage(|desk| desk.check(check));
    let (client, asked, path) = ask(&stage, "refund").await;
    let page = stage.get_as("grace", &path).await;
    page.shows(">Approve</button>").hides("Try it").hides("/flows/");
    for name in [None, Some("eve"), Some("carol")] {
        let request = http::Request::get(&path).body(String::new()).unwrap();
        let refused = stage.visit(request, name).await;
        assert_eq!(refused.status, 403, "{name:?}");
        refused.hides("900").hides("refund");
    }
    stage.get_as("bob", &path).await.shows("bob may not answer").hides(">Approve</button>");
    assert_eq!(stage.get_as("grace", "/").await.status, 403, "an approver sees only the question");
    let flow = stage.get_as("bob", "/").await.link("refund");
    assert_eq!(stage.get_as("grace", &flow).await.status, 403);
    // A token that was rendered for another visitor is not good, and neither is the rule passed with one's own.
    for name in [Some("bob"), Some("eve"), None] {
        assert_eq!(stage.post(&path, &[("approve".to_owned(), "1".to_owned())], name).await.status, 403, "{name:?}");
    }
    assert!(stage.actions.lock().unwrap().is_empty());
    stage.submit(&page, &path, &[("approve", "1")]).await.shows("<strong>Approved</strong>");
    assert_eq!(result(&client, &asked).await, "refunded, approved by grace");
}

#[tokio::test]
async fn a_question_of_a_cancelled_flow_is_closed() {
    let stage = stage(|desk| desk);
    let (_, _, path) = ask(&stage, "refund").await;
    let page = stage.get(&path).await;
    let flow = stage.get("/").await.link("refund");
    let shown = stage.get(&flow).await;
    stage.submit(&shown, &format!("{flow}/cancel"), &[]).await.shows(">cancelled<");
    stage.get(&path).await.shows("This question is closed").hides(">Approve</button>");
    let late = stage.submit(&page, &path, &[("approve", "1")]).await;
    assert_eq!(late.status, 409);
    late.shows("Nothing was recorded");
    assert_eq!(stage.get(&format!("{path}x")).await.status, 404);
}
