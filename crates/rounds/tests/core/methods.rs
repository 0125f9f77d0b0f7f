//! Prompts and resources ask like tools do.

use crate::common::{Visit, large, shop, small};
use rmcp::{
    ErrorData, ServerHandler,
    handler::server::router::prompt::PromptRouter,
    model::{PromptMessage, Role, ServerCapabilities, ServerConfig},
    prompt, prompt_handler, prompt_router,
};
use rounds::{Given, Round, Rounds, prompt::PromptResponse, test::Client};
use serde_json::json;

#[tokio::test]
async fn prompts_and_resources_ask_go_on_replay_and_refuse_like_tools() {
    let stage = Visit::of(shop()).await;
    for (number, (method, target)) in
        [("tools/call", "one"), ("prompts/get", "two"), ("resources/read", "shop://three")].into_iter().enumerate()
    {
        let asked = stage.client.request(method, json!({"name": target, "uri": target})).await.asked();
        assert_eq!(asked.message("size"), "Which size?");
        let accepted = asked.accept("size", small());
        let done = accepted.send(&stage.client).await;
        assert_eq!(done.text(), format!("Small {target} number {}", number + 1));
        assert_eq!(accepted.send(&stage.client).await.response()["result"], done.response()["result"]);
        asked.accept("size", large()).send(&stage.client).await.frozen();
        assert_eq!(stage.effects.count(), number + 1);
    }
}

#[tokio::test]
async fn a_resource_that_depends_on_answers_is_not_to_be_cached_whatever_its_handler_says() {
    let stage = Visit::of(shop()).await;
    let asked = stage.client.read("shop://tea").await.asked();
    for hint in ["ttlMs", "cacheScope"] {
        assert_eq!(asked.result().get(hint), None, "a question has no cache hints");
    }
    let accepted = asked.accept("size", small());
    let uninvited = json!({"uri": "shop://tea", "inputResponses": {"size": {"action": "decline"}}});
    for leg in [
        accepted.send(&stage.client).await,
        accepted.send(&stage.client).await, // a replay
        stage.client.request("resources/read", uninvited).await,
    ] {
        assert_eq!((&leg.result()["ttlMs"], &leg.result()["cacheScope"]), (&json!(0), &json!("private")));
    }
}

#[tokio::test]
async fn a_resource_that_depends_on_no_answers_keeps_the_hints_of_its_handler() {
    let stage = Visit::of(crate::common::Desk::new(|_| async { crate::common::Reply::text("the menu") })).await;
    for params in [json!({"uri": "shop://menu"}), json!({"uri": "shop://menu", "inputResponses": {}})] {
        let leg = stage.client.request("resources/read", params).await;
        assert_eq!((&leg.result()["ttlMs"], &leg.result()["cacheScope"]), (&json!(60_000), &json!("public")));
    }
}

struct Poet {
    prompt_router: PromptRouter<Self>,
}

#[prompt_router]
impl Poet {
    #[prompt(name = "poem")]
    async fn poem(&self, round: Round<PromptResponse>) -> Result<PromptResponse, ErrorData> {
        match round.given::<String>("about") {
            Given::Accepted(about) => {
                let message = PromptMessage::new_text(Role::User, format!("A poem about {about}, please."));
                Ok(vec![message].into())
            }
            _ => Ok(round.ask_form::<String>("about", "About what?")?),
        }
    }
}

#[prompt_handler(router = self.prompt_router)]
impl ServerHandler for Poet {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_prompts().build())
    }
}

#[tokio::test]
async fn a_round_is_an_argument_of_a_prompt_method_too() {
    let client = Client::modern(Rounds::new(Poet { prompt_router: Poet::prompt_router() })).await;
    let asked = client.prompt("poem", json!({})).await.asked();
    let accepted = asked.accept("about", json!({"about": "tea"}));
    assert_eq!(accepted.send(&client).await.text(), "A poem about tea, please.");
}

#[tokio::test]
async fn everything_else_passes_through_untouched() {
    let client = Client::modern(Rounds::new(Poet { prompt_router: Poet::prompt_router() })).await;
    let listed = client.request("prompts/list", json!({})).await;
    assert_eq!(listed.result()["prompts"][0]["name"], "poem");
    let unknown = client.request("tea/brew", json!({"requestState": 7})).await;
    assert_eq!(unknown.error()["code"], -32601, "a state means nothing in requests that cannot ask");
}
