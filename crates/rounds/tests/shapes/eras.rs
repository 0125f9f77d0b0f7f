//! A handler for the modern era with a legacy client: it runs again with the answers, which arrived over the live
//! connection.

use std::time::Duration;

use rmcp::{
    RoleServer,
    handler::server::{
        router::tool::ToolRouter,
        tool::{InputResponses, RequestState, ToolRoute},
    },
    model::{CallToolResponse, ElicitRequest, InputRequest, InputRequests, InputRequiredResult},
    service::RequestContext,
    tool, tool_router,
};
use rounds::{
    Ask, BuildError, Era, FlowError, Given, Legacy, Limits, Round, Rounds, by_era, observe::Outcome, test::Client, text,
};
use serde_json::{Value, json};

use super::{Shop, Stage, Units, accept};

#[tool_router(router = guards)]
impl Shop {
    #[tool]
    async fn guard(&self, round: Round) -> Result<CallToolResponse, FlowError> {
        round.once("audit", async || self.count("audit")).await?;
        self.count("guard");
        match round.given::<Units>("units") {
            Given::Accepted(units) => Ok(text(format!("{units:?} {} {:?}", round.number(), round.state::<u8>()?))),
            Given::Declined => Ok(text("declined")),
            Given::Cancelled => Ok(text("cancelled")),
            Given::Missing | Given::Invalid(_) => {
                round.questions().form::<Units>("units", "Which units?").state(&7).send()
            }
        }
    }

    #[tool]
    async fn endless(&self, round: Round) -> Result<CallToolResponse, FlowError> {
        self.count("endless");
        round.ask_form::<bool>("more", format!("More than {}?", round.number()))
    }

    #[tool]
    async fn pair(&self, round: Round) -> Result<CallToolResponse, FlowError> {
        match (round.given::<bool>("one"), round.given::<bool>("two")) {
            (Given::Accepted(one), Given::Accepted(two)) => Ok(text(format!("{one} {two}"))),
            _ => round.questions().form::<bool>("one", "One?").form::<bool>("two", "Two?").send(),
        }
    }

    #[tool]
    async fn looks(&self, round: Round) -> String {
        format!("{} {}", round.can_form(), round.can_url())
    }

    /// Written with rmcp alone.
    #[tool]
    async fn raw(
        &self,
        InputResponses(answers): InputResponses,
        RequestState(state): RequestState,
    ) -> CallToolResponse {
        match answers {
            Some(answers) => text(format!("{} {}", json!(answers), state.unwrap_or_default())),
            None => {
                let question: ElicitRequest = serde_json::from_value(json!({
                    "method": "elicitation/create",
                    "params": {"message": "?", "requestedSchema": {"type": "object", "properties": {}}},
                }))
                .unwrap();
                let requests = InputRequests::from([("key".to_owned(), InputRequest::Elicitation(question))]);
                InputRequiredResult::new(Some(requests), Some("kept".to_owned())).into()
            }
        }
    }

    #[tool]
    async fn nothing(&self) -> CallToolResponse {
        self.count("nothing");
        InputRequiredResult::new(None, None).into()
    }

    /// Starts a task that lives as long as this run.
    #[tool]
    async fn starts(&self, round: Round, context: RequestContext<RoleServer>) -> Result<CallToolResponse, FlowError> {
        let (over, counts) = (context.ct.clone(), self.counts.clone());
        tokio::spawn(async move {
            over.cancelled().await;
            *counts.lock().unwrap().entry("over".to_owned()).or_default() += 1;
        });
        match round.given::<bool>("more") {
            Given::Accepted(_) => Ok(text("started")),
            _ => round.ask_form::<bool>("more", "More?"),
        }
    }

    /// Asks while an effect is still running.
    #[tool]
    async fn meanwhile(&self, round: Round, ask: Ask) -> Result<String, FlowError> {
        let effect = round.once("charge", async || {
            self.count("charge");
            std::future::pending::<()>().await;
        });
        let asked = async {
            let sure = ask.confirm("Sure?").await?;
            self.count("after");
            Ok(sure)
        };
        let ((), sure) = tokio::try_join!(effect, asked)?;
        Ok(sure.to_string())
    }

    #[tool]
    async fn live(&self, ask: Ask) -> Result<String, FlowError> {
        self.count("live");
        let units: Units = ask.form("Which units?").await?;
        Ok(format!("live {units:?}"))
    }
}

fn stage(legacy: Legacy) -> Stage<Shop> {
    let shop = Shop { tool_router: Shop::guards(), ..Shop::default() };
    Stage::with(shop, |builder| builder.legacy(legacy).limits(Limits::default().with_grace(Duration::ZERO)))
}

async fn start(client: &Client, tool: &str) -> rounds::test::InFlight {
    client.start("tools/call", json!({"name": tool, "arguments": {}})).await
}

#[tokio::test]
async fn a_guard_is_called_again_with_what_was_answered_and_its_state_stays_here() {
    let stage = stage(Legacy::push());
    let client = stage.legacy().await;
    let leg = start(&client, "guard").await;
    let pushed = client.pushed().await.unwrap();
    assert_eq!(pushed.params()["message"], "Which units?");
    assert!(!pushed.params().to_string().contains("requestState"), "{}", pushed.params());
    pushed.answer(accept(json!({"units": "kelvin"}))).await;
    let again = client.pushed().await.unwrap();
    assert_eq!(again.params()["message"], "Which units? (`units` must be one of metric, imperial)");
    again.answer(accept(json!({"units": "imperial"}))).await;
    assert_eq!(leg.finish().await.text(), "Imperial 2 Some(7)");
    assert_eq!((stage.handler().counted("guard"), stage.handler().counted("audit")), (3, 1));
    assert_eq!(stage.events.runs("guard"), 3);

    for (action, told) in [("decline", "declined"), ("cancel", "cancelled")] {
        let leg = start(&client, "guard").await;
        client.pushed().await.unwrap().answer(json!({"action": action, "content": {"units": "metric"}})).await;
        assert_eq!(leg.finish().await.text(), told);
    }
    assert_eq!(stage.server.waiting_calls(), 0);
}

#[tokio::test]
async fn questions_of_one_round_are_pushed_together() {
    let client = stage(Legacy::push()).legacy().await;
    let leg = start(&client, "pair").await;
    let (one, two) = (client.pushed().await.unwrap(), client.pushed().await.unwrap());
    two.answer(accept(json!({"two": false}))).await;
    one.answer(accept(json!({"one": true}))).await;
    assert_eq!(leg.finish().await.text(), "true false");
}

#[tokio::test]
async fn a_guard_that_never_has_enough_is_stopped() {
    let stage = stage(Legacy::Push { max_rounds: 3, timeout: Duration::from_secs(60) });
    let client = stage.legacy().await;
    let leg = start(&client, "endless").await;
    for round in 0..3 {
        let pushed = client.pushed().await.unwrap();
        assert_eq!(pushed.params()["message"], format!("More than {round}?"));
        pushed.answer(accept(json!({"more": true}))).await;
    }
    let ended = leg.finish().await;
    assert!(ended.is_tool_error() && ended.text().contains("asked 3 times"), "{}", ended.text());
    assert!(!client.was_pushed());
    assert_eq!(stage.handler().counted("endless"), 4);
}

#[tokio::test]
async fn a_question_that_nobody_answers_in_time_ends_the_call() {
    let stage = stage(Legacy::Push { max_rounds: 3, timeout: Duration::from_secs(60) });
    let client = stage.legacy().await;
    let leg = start(&client, "guard").await;
    let _unanswered = client.pushed().await.unwrap();
    stage.clock.advance(Duration::from_secs(61));
    assert_eq!(leg.finish().await.text(), "The user did not answer in time: Which units?");
    assert_eq!(client.notified("notifications/cancelled").await["params"]["reason"], "the question was withdrawn");
}

#[tokio::test]
async fn a_client_that_did_not_sign_up_is_not_pushed_to() {
    let stage = stage(Legacy::push());
    let client = Client::connect(stage.server.clone(), Era::Legacy, json!({})).await;
    assert_eq!(client.call("guard", json!({})).await.error()["code"], -32021);
    assert!(!client.was_pushed());
}

#[tokio::test]
async fn a_request_that_is_cancelled_takes_its_question_back() {
    let stage = stage(Legacy::push());
    let client = stage.legacy().await;
    let leg = start(&client, "guard").await;
    let _unanswered = client.pushed().await.unwrap();
    leg.cancel().await;
    client.notified("notifications/cancelled").await;
    stage.events.until(1, |station| *station == rounds::observe::Station::Ended(Outcome::Cancelled)).await;
    assert_eq!(stage.handler().counted("guard"), 1);
}

#[tokio::test]
async fn a_request_that_is_cancelled_in_the_middle_of_an_effect_takes_its_question_back_at_once() {
    let stage = stage(Legacy::push());
    let client = stage.legacy().await;
    let leg = start(&client, "meanwhile").await;
    let pushed = client.pushed().await.unwrap();
    leg.cancel().await;
    let withdrawn = client.notified("notifications/cancelled");
    tokio::time::timeout(Duration::from_secs(60), withdrawn).await.unwrap();
    pushed.answer(accept(json!({"confirm": true}))).await;
    assert_eq!(client.call("looks", json!({})).await.text(), "true true", "the server still answers");
    assert_eq!((stage.handler().counted("charge"), stage.handler().counted("after")), (1, 0));
}

#[tokio::test]
async fn a_guard_that_asks_nothing_and_keeps_nothing_is_told() {
    let stage = stage(Legacy::push());
    for client in [stage.modern().await, stage.legacy().await] {
        let ended = client.call("nothing", json!({})).await;
        assert_eq!(
            ended.error()["message"],
            "a round needs a question to ask or a state to keep: add one, or return a result"
        );
    }
    assert_eq!(stage.handler().counted("nothing"), 2);
}

#[tokio::test]
async fn what_a_run_started_learns_when_that_run_is_over() {
    let stage = stage(Legacy::push());
    let client = stage.legacy().await;
    let over = async |runs| {
        let told = async {
            while stage.handler().counted("over") < runs {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), told).await.unwrap();
    };
    let leg = start(&client, "starts").await;
    let pushed = client.pushed().await.unwrap();
    over(1).await;
    pushed.answer(accept(json!({"more": true}))).await;
    assert_eq!(leg.finish().await.text(), "started");
    over(2).await;
}

#[tokio::test]
async fn a_handler_that_knows_rmcp_alone_is_called_again_as_well() {
    let client = stage(Legacy::push()).legacy().await;
    let leg = start(&client, "raw").await;
    client.pushed().await.unwrap().answer(accept(json!({}))).await;
    assert_eq!(leg.finish().await.text(), r#"{"key":{"action":"accept","content":{}}} kept"#);
}

#[tokio::test]
async fn whether_a_guard_can_ask_depends_on_whether_the_server_pushes() {
    for (legacy, can) in [(Legacy::Degrade, "false false"), (Legacy::push(), "true true")] {
        assert_eq!(stage(legacy).legacy().await.call("looks", json!({})).await.text(), can);
        assert_eq!(stage(legacy).modern().await.call("looks", json!({})).await.text(), "true true");
    }
}

#[tokio::test]
async fn pushing_is_set_for_all_or_for_one() {
    let shop = Shop { tool_router: Shop::guards(), ..Shop::default() };
    let stage = Stage::with(shop, |builder| builder.legacy_for("pair", Legacy::push()));
    let client = stage.legacy().await;
    assert!(client.call("guard", json!({})).await.text().contains("before 2026-07-28"));
    assert!(!client.was_pushed());
    let leg = start(&client, "pair").await;
    for key in ["one", "two"] {
        client.pushed().await.unwrap().answer(accept(json!({key: true}))).await;
    }
    assert_eq!(leg.finish().await.text(), "true true");
}

#[test]
fn pushing_that_could_never_work_is_a_mistake_that_is_told() {
    for legacy in [
        Legacy::Push { max_rounds: 0, timeout: Duration::from_secs(1) },
        Legacy::Push { max_rounds: 1, timeout: Duration::ZERO },
    ] {
        let error = Rounds::builder(Shop::default()).legacy_for("guard", legacy).build().unwrap_err();
        assert!(matches!(error, BuildError::Zero { .. }), "{error}");
    }
}

fn two_handlers() -> ToolRoute<Shop> {
    let modern = ToolRoute::new(Shop::guard_tool_attr(), Shop::guard);
    by_era(modern, ToolRoute::new(Shop::live_tool_attr(), Shop::live))
}

#[tokio::test]
async fn one_tool_of_two_handlers_calls_the_one_for_the_clients_era() {
    let stage = Shop::stage(ToolRouter::new().with_route(two_handlers()));
    let client = stage.modern().await;
    let asked = client.call("guard", json!({})).await.asked();
    assert_eq!(asked.accept("units", json!({"units": "metric"})).send(&client).await.text(), "Metric 1 Some(7)");
    assert_eq!((stage.handler().counted("guard"), stage.handler().counted("live")), (2, 0));

    let client = stage.legacy().await;
    let leg = start(&client, "guard").await;
    client.pushed().await.unwrap().answer(accept(json!({"units": "metric"}))).await;
    assert_eq!(leg.finish().await.text(), "live Metric");
    assert_eq!((stage.handler().counted("guard"), stage.handler().counted("live")), (2, 1));

    let tools: Vec<Value> = client.request("tools/list", json!({})).await.result()["tools"].as_array().unwrap().clone();
    assert_eq!(tools.len(), 1);
}

#[test]
#[should_panic(expected = "take different arguments")]
fn two_handlers_with_different_arguments_make_no_tool() {
    let mut other = ToolRoute::new(Shop::live_tool_attr(), Shop::live);
    other.attr.input_schema =
        std::sync::Arc::new(json!({"type": "object", "required": ["x"]}).as_object().unwrap().clone());
    let _ = by_era(ToolRoute::new(Shop::guard_tool_attr(), Shop::guard), other);
}

#[cfg(feature = "http")]
#[tokio::test]
async fn without_a_way_back_the_call_ends_at_once_with_words() {
    use http_body_util::BodyExt;
    use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;

    let router = Shop::guards() + Shop::declared();
    let stage = Stage::with(Shop { tool_router: router, ..Shop::default() }, |builder| builder.legacy(Legacy::push()));
    let service = stage.server.streamable_http(StreamableHttpServerConfig::default().with_legacy_session_mode(false));
    for tool in ["guard", "weather", "live"] {
        let call =
            json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": {}}});
        let request = http::Request::post("http://localhost/mcp")
            .header("host", "localhost")
            .header("mcp-protocol-version", "2025-11-25")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(call.to_string())
            .unwrap();
        let body = service.handle(request).await.into_body().collect().await.unwrap().to_bytes();
        let said = String::from_utf8(body.to_vec()).unwrap();
        assert!(said.contains("\"isError\":true") && said.contains("no way to ask it"), "{tool}: {said}");
    }
}
