//! What a durable handler must not do, and what happens when it does.

use std::{sync::Mutex, time::Duration};

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    handler::server::{router::tool::ToolRouter, tool::ToolCallContext},
    model::{CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock},
    service::RequestContext,
};
use rounds::{Durable, FlowError, Rounds, durable, test::Client};
use serde_json::json;

use super::{Airline, Flights, Trip};

async fn said(route: rmcp::handler::server::tool::ToolRoute<Airline>) -> String {
    let fleet = Flights::new();
    let client = fleet.instance(route).await;
    let leg = client.call("book", json!({"to": "Rome"})).await;
    leg.error()["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn waiting_for_anything_but_the_flow_is_told_to_move_into_a_once() {
    async fn sleeps(flow: Durable<Airline>, _trip: Trip) -> Result<String, FlowError> {
        flow.now()?;
        tokio::time::sleep(Duration::from_secs(3600)).await;
        Ok(String::new())
    }
    async fn sleeps_beside(flow: Durable<Airline>, _trip: Trip) -> Result<String, FlowError> {
        flow.once("x", async |_, _| ()).await?;
        let _ = tokio::time::timeout(Duration::from_secs(3600), std::future::pending::<()>()).await;
        Ok(String::new())
    }
    for route in [durable("book", "", sleeps), durable("book", "", sleeps_beside)] {
        let said = said(route).await;
        assert!(said.contains("move it into a `once`"), "{said}");
    }
}

/// A server that runs code of its own before and after its handlers.
struct Wary {
    router: ToolRouter<Self>,
    /// What it answers once instead of its handler.
    instead: Mutex<Option<CallToolResult>>,
}

impl ServerHandler for Wary {
    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        tokio::spawn(async {}).await.unwrap();
        if let Some(instead) = self.instead.lock().unwrap().take() {
            return Ok(instead.into());
        }
        let called = self.router.call(ToolCallContext::new(self, request, context)).await;
        tokio::spawn(async {}).await.unwrap();
        called
    }
}

#[tokio::test]
async fn what_a_server_waits_for_around_its_handler_is_its_own_affair() {
    async fn seat(flow: Durable<Wary>, _trip: Trip) -> Result<String, FlowError> {
        let seat: String = flow.form("Which seat?").key("seat").await?;
        let meal: String = flow.form("Which meal?").key("meal").await?;
        Ok(format!("{seat} {meal}"))
    }
    let answered = async |instead: Option<CallToolResult>| {
        let router = ToolRouter::new().with_route(durable("book", "", seat));
        let rounds = Rounds::new(Wary { router, instead: Mutex::default() });
        let client = Client::modern(rounds.clone()).await;
        let asked = client.call("book", json!({"to": "Rome"})).await.asked();
        let asked = asked.accept("seat", json!({"seat": "4C"})).send(&client).await.asked();
        *rounds.handler().instead.lock().unwrap() = instead;
        asked.accept("meal", json!({"meal": "fish"})).send(&client).await
    };
    let said = |text: &str| vec![ContentBlock::text(text)];
    assert_eq!(answered(None).await.text(), "4C fish");
    assert_eq!(answered(Some(CallToolResult::error(said("too many calls")))).await.text(), "too many calls");
    // This would end a handler that does not remember its earlier legs.
    answered(Some(CallToolResult::success(said("booked")))).await.frozen();
}

#[tokio::test]
async fn no_two_pages_of_a_flow_have_the_same_name() {
    async fn pages(flow: Durable<Airline>, _trip: Trip) -> Result<String, FlowError> {
        flow.url("Sign in", "https://example.com/one").await?;
        flow.url("Pay", "https://example.com/two").await?;
        Ok(String::new())
    }
    let fleet = Flights::new();
    let client = fleet.instance(durable("book", "", pages)).await;
    let first = client.call("book", json!({"to": "Rome"})).await.asked();
    let accepted = json!({"action": "accept"});
    let second = first.retry().respond("url", accepted).send(&client).await.asked();
    let name = |asked: &rounds::test::AskedRound| asked.question("url")["params"]["elicitationId"].clone();
    assert!(name(&first).is_string() && name(&first) != name(&second), "{} {}", name(&first), name(&second));
}

#[tokio::test]
async fn combinators_that_poll_the_flow_do_not_trip_it() {
    /// Asks to be polled again at once, a few times.
    async fn busy() {
        for _ in 0..5 {
            let mut yielded = false;
            std::future::poll_fn(|cx| {
                if std::mem::replace(&mut yielded, true) {
                    std::task::Poll::Ready(())
                } else {
                    cx.waker().wake_by_ref();
                    std::task::Poll::Pending
                }
            })
            .await;
        }
    }
    async fn combined(flow: Durable<Airline>, _trip: Trip) -> Result<String, FlowError> {
        busy().await;
        let (seat, ()) = tokio::join!(flow.form::<String>("Which seat?").key("seat").into_future(), busy());
        let once = tokio::select! {
            value = flow.once("x", async |airline, _| { tokio::task::yield_now().await; airline.world.have("x") }) => value?,
            () = std::future::pending() => unreachable!(),
        };
        Ok(format!("{} {once}", seat?))
    }
    let fleet = Flights::new();
    let client = fleet.instance(durable("book", "", combined)).await;
    let asked = client.call("book", json!({"to": "Rome"})).await.asked();
    assert_eq!(asked.accept("seat", json!({"seat": "4C"})).send(&client).await.text(), "4C 0");
}

#[tokio::test]
async fn what_tokio_puts_off_is_not_taken_for_something_that_nobody_records() {
    async fn put_off(flow: Durable<Airline>, _trip: Trip) -> Result<String, FlowError> {
        tokio::task::yield_now().await;
        for _ in 0..1000 {
            tokio::task::consume_budget().await;
        }
        let seat: String = flow.form("Which seat?").key("seat").await?;
        for _ in 0..1000 {
            tokio::task::consume_budget().await;
        }
        Ok(seat)
    }
    let fleet = Flights::new();
    let client = fleet.instance(durable("book", "", put_off)).await;
    let asked = client.call("book", json!({"to": "Rome"})).await.asked();
    assert_eq!(asked.accept("seat", json!({"seat": "4C"})).send(&client).await.text(), "4C");
}

#[tokio::test]
async fn two_operations_at_once_are_refused_even_if_the_handler_looks_away() {
    async fn at_once(flow: Durable<Airline>, _trip: Trip) -> Result<String, FlowError> {
        let (_one, _two) = tokio::join!(
            flow.form::<String>("One?").key("one").into_future(),
            flow.form::<String>("Two?").key("two").into_future(),
        );
        Ok("looked away".to_owned())
    }
    let said = said(durable("book", "", at_once)).await;
    assert!(said.contains("ask together with `all`"), "{said}");
}

#[tokio::test]
async fn a_name_stands_for_one_effect() {
    async fn twice(flow: Durable<Airline>, _trip: Trip) -> Result<String, FlowError> {
        for _ in 0..2 {
            flow.once("x", async |_, _| ()).await?;
        }
        Ok(String::new())
    }
    let said = said(durable("book", "", twice)).await;
    assert_eq!(said, "two effects of this call are named `x`: give each its own name");
}

#[tokio::test]
async fn a_name_stands_for_one_effect_on_all_legs() {
    async fn again(flow: Durable<Airline>, _trip: Trip) -> Result<String, FlowError> {
        loop {
            flow.once("charge", async |airline, _| airline.world.have("charge")).await?;
            flow.confirm("More?").key("more").await?;
        }
    }
    let fleet = Flights::new();
    let client = fleet.instance(durable("book", "", again)).await;
    let asked = client.call("book", json!({"to": "Rome"})).await.asked();
    let leg = asked.accept("more", json!({"more": true})).send(&client).await;
    let said = "two effects of this call are named `charge`: give each its own name";
    assert_eq!(leg.error()["message"], said, "{}", leg.response());
    assert_eq!(fleet.world.count("charge"), 1);
}

#[tokio::test]
async fn an_effect_whose_value_is_not_kept_does_not_happen_again() {
    async fn lost(flow: Durable<Airline>, _trip: Trip) -> Result<String, FlowError> {
        let report = async |airline: &Airline, _: &str| {
            airline.world.have("report");
            "long ".repeat(10_000)
        };
        let lost = flow.once("report", report).await.unwrap_err();
        flow.confirm("Go on?").key("on").await?;
        Ok(lost.to_string())
    }
    let fleet = Flights::new();
    let client = fleet.instance(durable("book", "", lost)).await;
    let asked = client.call("book", json!({"to": "Rome"})).await.asked();
    let said = asked.accept("on", json!({"on": true})).send(&client).await;
    assert_eq!(
        said.text(),
        "the effect `report` may have run, and its value was not recorded: check what it did, then start the call again"
    );
    assert_eq!(fleet.world.count("report"), 1);
}

#[tokio::test]
async fn there_is_room_for_an_entry_before_an_effect_runs() {
    async fn many(flow: Durable<Airline>, _trip: Trip) -> Result<String, FlowError> {
        for n in 0..100 {
            flow.once(&format!("n{n}"), async |airline, _| airline.world.have("n")).await?;
        }
        Ok(String::new())
    }
    let fleet = Flights::new();
    let client = fleet.instance(durable("book", "", many)).await;
    let leg = client.call("book", json!({"to": "Rome"})).await;
    assert!(leg.error()["message"].as_str().unwrap().contains("64"), "{}", leg.response());
    assert_eq!(fleet.world.count("n"), 64);
}

#[tokio::test]
async fn in_a_server_that_nobody_wrapped_it_says_what_to_write() {
    async fn plain(_flow: Durable<Airline>, _trip: Trip) -> Result<String, FlowError> {
        Ok(String::new())
    }
    let fleet = Flights::new();
    let wrapped: Rounds<Airline> = fleet.server(durable("book", "", plain));
    let bare = Airline { tool_router: wrapped.handler().tool_router.clone(), world: fleet.world.clone() };
    let client = Client::modern(bare).await;
    let message = client.call("book", json!({"to": "Rome"})).await.error()["message"].clone();
    assert!(message.as_str().unwrap().starts_with("`Durable` needs the server to be wrapped"), "{message}");
}

#[tokio::test]
async fn arguments_that_do_not_fit_are_told_to_the_model_as_by_any_other_tool() {
    async fn plain(_flow: Durable<Airline>, trip: Trip) -> Result<String, FlowError> {
        Ok(trip.to)
    }
    let client = Flights::new().instance(durable("book", "", plain)).await;
    let leg = client.call("book", json!({"to": 7})).await;
    assert!(leg.is_tool_error());
    assert!(leg.text().starts_with("failed to deserialize parameters: "), "{}", leg.text());
    assert_eq!(client.call("book", json!({"to": "Rome"})).await.text(), "Rome");
}

#[tokio::test]
async fn a_failure_decides_the_way_whether_it_is_a_value_or_an_error() {
    async fn catches(flow: Durable<Airline>, _trip: Trip) -> Result<String, FlowError> {
        let charged = flow.try_once("charge", async |_, _| Err::<(), _>(FlowError::failed("the bank is closed"))).await;
        let waits = charged.is_err() && flow.confirm("Wait for the bank?").await?;
        flow.once("note", async |airline, _| airline.world.have("note")).await?;
        flow.confirm("Sure?").await?;
        Ok(format!("{waits}"))
    }
    async fn looks(flow: Durable<Airline>, _trip: Trip) -> Result<String, FlowError> {
        let charged: Result<(), String> =
            flow.once("charge", async |_, _| Err("the bank is closed".to_owned())).await?;
        let waits = charged.is_err() && flow.confirm("Wait for the bank?").await?;
        flow.once("note", async |airline, _| airline.world.have("note")).await?;
        flow.confirm("Sure?").await?;
        Ok(format!("{waits}"))
    }
    let fleet = Flights::new();
    let yes = || json!({"confirm": true});
    for route in [durable("book", "", catches), durable("book", "", looks)] {
        let client = fleet.instance(route).await;
        let asked = client.call("book", json!({"to": "Rome"})).await.asked();
        let asked = asked.accept("confirm", yes()).send(&client).await.asked();
        assert_eq!(asked.accept("confirm", yes()).send(&client).await.text(), "true");
    }
    assert_eq!(fleet.events.refusals(), []);
}
