//! The test kit: one test for both eras.

use rmcp::{ServerHandler, handler::server::router::tool::ToolRouter, tool, tool_handler, tool_router};
use rounds::{
    Ask, Era, FlowError, Rounds,
    test::{Client, accept, play_in_both_eras},
};
use serde_json::json;

struct Shop {
    tool_router: ToolRouter<Self>,
}

#[tool_router]
impl Shop {
    #[tool]
    async fn order(&self, ask: Ask) -> Result<String, FlowError> {
        let colour = ask.choose("Which colour?", [("r", "Red"), ("g", "Green")]).key("colour").await?;
        let (cup, count) =
            tokio::try_join!(ask.form::<bool>("A cup?").key("cup"), ask.form::<u8>("How many?").key("count"))?;
        Ok(format!("{count} {colour} {cup}"))
    }

    #[tool]
    async fn tells(&self, ask: Ask) -> Result<String, FlowError> {
        let asked = ask.form::<bool>(if ask.era() == Era::Modern { "New?" } else { "Old?" }).await?;
        Ok(asked.to_string())
    }

    #[tool]
    async fn plain(&self) -> String {
        "plain".to_owned()
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Shop {}

fn server() -> Rounds<Shop> {
    Rounds::new(Shop { tool_router: Shop::tool_router() })
}

#[tokio::test]
async fn a_legacy_call_that_asks_ends_with_what_was_pushed() {
    for client in crate::clients(&server()).await {
        let asked = client.call("order", json!({})).await.asked();
        let colour = asked.question("colour");
        assert_eq!((colour.message(), colour.fields()), ("Which colour?", vec!["colour"]));
        assert_eq!((colour.options(), colour.titles_of("colour")), (vec!["r", "g"], vec!["Red", "Green"]));
        assert!(colour.requires("colour") && colour.default_of("colour").is_none() && colour.url().is_none());
        let again = asked.accept("colour", json!({"colour": "b"})).send(&client).await.asked();
        assert_eq!(again.message("colour"), "Which colour? (`colour` must be one of r, g)");
        let mut leg = again.accept("colour", json!({"colour": "r"})).send(&client).await;
        // Two questions together: a round of a modern client, and two pushes to a legacy one.
        while leg.is_asked() {
            let asked = leg.asked();
            let keys: Vec<_> = asked.keys().into_iter().map(str::to_owned).collect();
            let answer = |key: &str| if key == "cup" { json!({"cup": true}) } else { json!({"count": 2}) };
            let answered = keys.iter().fold(asked.retry(), |retry, key| retry.accept(key, answer(key)));
            leg = answered.send(&client).await;
        }
        assert_eq!(leg.text(), "2 r true");
        assert_eq!(client.call("plain", json!({})).await.text(), "plain");
    }
}

#[tokio::test]
async fn a_pushed_question_belongs_to_the_only_request_in_flight() {
    let client = Client::legacy(server()).await;
    let asking = client.start("tools/call", json!({"name": "order"})).await;
    let pushed = client.pushed().await.unwrap();
    assert_eq!(client.call("plain", json!({})).await.text(), "plain", "another call goes on");
    let second = client.call("order", json!({}));
    let answers = async {
        pushed.answer(json!({"action": "decline"})).await;
        let other = client.pushed().await.unwrap();
        other.answer(json!({"action": "decline"})).await;
    };
    let (second, ()) = tokio::join!(second, answers);
    assert!(asking.finish().await.is_tool_error());
    assert!(second.is_tool_error(), "a question is not taken while another request waits: {second:?}");
}

#[tokio::test]
#[should_panic(expected = "a pushed question can be answered only once")]
async fn a_pushed_question_has_no_retry() {
    let client = Client::legacy(server()).await;
    let answered = client.call("order", json!({})).await.asked().decline("colour");
    let _ = answered.send(&client).await;
    let _ = answered.send(&client).await;
}

#[tokio::test]
async fn one_player_runs_a_call_in_both_eras() {
    let answers = [accept(json!({"colour": "g"})), accept(json!({"cup": false})), accept(json!({"count": 3}))];
    let played = play_in_both_eras(&server(), "order", json!({}), answers).await;
    assert_eq!(played.messages(), ["Which colour?", "A cup?", "How many?"]);
    assert_eq!(played.question(0).options(), ["r", "g"]);
    assert_eq!(played.text(), "3 g false");
}

#[tokio::test]
#[should_panic(expected = "the modern client (left) and the legacy client (right) differ")]
async fn the_player_notices_a_tool_that_asks_the_eras_differently() {
    let _ = play_in_both_eras(&server(), "tells", json!({}), [accept(json!({"answer": true}))]).await;
}
