//! Spans: one for each leg, named and attributed after OpenTelemetry's conventions for MCP, within the client's trace.
//!
//! The only test in this file, because the subscriber that collects spans is set for the whole process.

#![cfg(feature = "otel")]

use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{CallToolRequestParams, CallToolResponse},
    service::RequestContext,
};
use rounds::{Ask, Given, Round, Rounds, test::Client, text};
use rounds_testkit::Fleet;
use serde_json::json;
use tracing_subscriber::layer::SubscriberExt;

struct Greeter;

impl ServerHandler for Greeter {
    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if request.name == "wait" {
            let name: String = Ask::from_context(&context)?.form("Your name?").key("name").await?;
            tracing::info!("has waited");
            return Ok(text(format!("Hello, {name}!")));
        }
        let round = Round::from_context(&context)?;
        match round.given::<String>("name") {
            Given::Accepted(name) => Ok(text(format!("Hello, {name}!"))),
            _ => Ok(round.ask_form::<String>("name", "Your name?")?),
        }
    }
}

fn attribute(span: &SpanData, key: &str) -> Option<String> {
    let attribute = span.attributes.iter().find(|attribute| attribute.key.as_str() == key)?;
    Some(attribute.value.to_string())
}

#[tokio::test]
async fn every_leg_is_a_span_of_the_clients_trace() {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("rounds"));
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer)).unwrap();

    let client = Client::modern(Rounds::new(Greeter)).await;
    let trace = |span: &str| json!({"traceparent": format!("00-0af7651916cd43dd8448eb211c80319c-{span}-01")});
    let call = json!({"name": "greet", "_meta": trace("00000000000000aa")});
    let asked = client.request("tools/call", call).await.asked();
    let retry = asked.accept("name", json!({"name": "Ada"})).with("_meta", trace("00000000000000bb"));
    assert_eq!(retry.send(&client).await.text(), "Hello, Ada!");
    retry.tamper(|_| "r1.forged".to_owned()).send(&client).await.frozen();

    let spans = exporter.get_finished_spans().unwrap();
    let legs: Vec<_> = spans.iter().filter(|span| span.name == "tools/call greet").collect();
    let seen: Vec<_> = legs
        .iter()
        .map(|leg| (leg.parent_span_id.to_string(), attribute(leg, "rounds.round"), attribute(leg, "rounds.outcome")))
        .collect();
    let leg = |parent: &str, round: &str, outcome: &str| {
        (format!("00000000000000{parent}"), Some(round.to_owned()), Some(outcome.to_owned()))
    };
    assert_eq!(seen, [leg("aa", "0", "input_required"), leg("bb", "1", "complete"), leg("bb", "0", "error -32602")]);
    for leg in &legs {
        assert_eq!(leg.span_context.trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(attribute(leg, "mcp.method.name").as_deref(), Some("tools/call"));
        assert_eq!(attribute(leg, "gen_ai.tool.name").as_deref(), Some("greet"));
    }
    let asked = |leg: &&SpanData| leg.events.iter().any(|event| event.name == "asked");
    assert_eq!(legs.iter().map(asked).collect::<Vec<_>>(), [true, false, false], "a line for each station");
    let flow = attribute(legs[0], "rounds.flow").unwrap();
    assert_eq!((flow.len(), attribute(legs[1], "rounds.flow")), (32, Some(flow)));
    assert!(!format!("{spans:?}").contains("Ada"), "no span carries an answer");

    exporter.reset();
    let asked = client.call("wait", json!({})).await.asked();
    assert_eq!(asked.accept("name", json!({"name": "Ada"})).send(&client).await.text(), "Hello, Ada!");
    let spans = exporter.get_finished_spans().unwrap();
    let legs = spans.iter().filter(|span| span.name == "tools/call wait");
    let says = |leg: &SpanData| leg.events.iter().any(|event| event.name == "has waited");
    assert_eq!(legs.map(says).collect::<Vec<_>>(), [false, true], "a handler's events are within its leg's span");

    exporter.reset();
    let fleet = Fleet::new();
    let instance = |here| fleet.routed(here, Greeter).build().unwrap();
    let (here, there) = (Client::modern(instance("here")).await, Client::modern(instance("there")).await);
    let asked = here.call("wait", json!({})).await.asked();
    let retry = asked.accept("name", json!({"name": "Ada"})).with("_meta", trace("00000000000000cc"));
    assert_eq!(retry.send(&there).await.text(), "Hello, Ada!");
    let spans = exporter.get_finished_spans().unwrap();
    let landed = spans.iter().rfind(|span| span.name == "tools/call wait").unwrap();
    let errand = spans.iter().find(|span| span.name == "errand").unwrap();
    assert!(says(errand) && !says(landed), "the handler's events are at the instance where it runs");
    assert_eq!(errand.parent_span_id, landed.span_context.span_id());
    assert_eq!(errand.span_context.trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(attribute(errand, "rounds.flow"), attribute(landed, "rounds.flow"));
}
