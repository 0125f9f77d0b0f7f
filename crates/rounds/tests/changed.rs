//! A durable question that changes between two legs: the log shows both texts, and the flow ends.
//!
//! The only test in this file, because `tracing` caches for the whole process which events are enabled.

use std::sync::atomic::{AtomicUsize, Ordering};

use rmcp::{ServerHandler, handler::server::router::tool::ToolRouter, schemars, tool_handler};
use rounds::{Durable, FlowError, Rounds, durable, format::Format, test::Client};
use rounds_testkit::Log;
use serde::Deserialize;
use serde_json::json;

struct Shop {
    tool_router: ToolRouter<Self>,
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Shop {}

#[derive(Deserialize, schemars::JsonSchema)]
struct Order {
    /// The leg on which the clock advances.
    moves: usize,
    /// The text before the question.
    text: String,
}

/// The number of the current leg.
static LEG: AtomicUsize = AtomicUsize::new(0);

/// Reads a clock of its own instead of the flow's clock.
async fn pay(flow: Durable<Shop>, order: Order) -> Result<String, FlowError> {
    let minute = if LEG.fetch_add(1, Ordering::SeqCst) >= order.moves { 16 } else { 15 };
    let now = format!("{}It is 10:{minute}.\n\u{1b}[2J Pay?", order.text);
    if !flow.confirm(now).key("pay").await? {
        return Ok("not paid".to_owned());
    }
    flow.confirm("Sure?").key("sure").await?;
    Ok("paid".to_owned())
}

#[tokio::test]
async fn the_first_mismatch_ends_the_flow_by_the_name_of_its_question_and_the_log_shows_both_texts() {
    for format in [Format::Previous, Format::Current] {
        check_mismatch(format).await;
    }
}

async fn check_mismatch(format: Format) {
    let (log, _listening) = Log::listen(tracing::Level::INFO);
    let tool_router = ToolRouter::new().with_route(durable("pay", "Pays", pay));
    let server = Rounds::builder(Shop { tool_router }).format(format).build().expect("its settings are valid");
    let client = Client::modern(server).await;
    let yes = |key: &str| json!({key: true});
    let named = "the question `pay` has changed since it was asked, so that its answer cannot be used: start the call again. In \
                 the handler, a question has to be the same on every leg: take what changes, such as the time, from the flow";
    let texts = [r#"asked="It is 10:15.\n\u{1b}[2J Pay?""#, r#"now="It is 10:16.\n\u{1b}[2J Pay?""#];
    let warned = |log: &str| {
        log.lines()
            .filter(|line| line.contains("WARN") && line.contains(" rounds: ") && !line.contains("a leg failed"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };

    // Either the question is open, or it was answered and the flow has asked the next one.
    for moves in [1, 2] {
        LEG.store(0, Ordering::SeqCst);
        let mut answered =
            client.call("pay", json!({"moves": moves, "text": ""})).await.asked().accept("pay", yes("pay"));
        if moves == 2 {
            answered = answered.send(&client).await.asked().accept("sure", yes("sure"));
        }
        assert_eq!(warned(&log.take()), Vec::<String>::new());
        for _ in 0..2 {
            let leg = answered.send(&client).await;
            assert_eq!((&leg.error()["code"], &leg.error()["message"]), (&json!(-32603), &json!(named)));
        }
        let warned = warned(&log.take());
        assert_eq!(warned.len(), 1, "the flow ends at the first change: {warned:?}");
        assert!(warned[0].contains(r#"key="pay""#), "{warned:?}");
        assert!(texts.iter().all(|text| warned[0].contains(text)), "{warned:?}");
    }

    // Without an answer, too; and a long text is truncated.
    LEG.store(0, Ordering::SeqCst);
    let asked = client.call("pay", json!({"moves": 1, "text": "ä".repeat(1000)})).await.asked();
    assert_eq!(asked.retry().send(&client).await.error()["message"], named);
    let log = log.take();
    assert!(log.contains(&format!("asked=\"{}…\" now=\"{}…\"", "ä".repeat(255), "ä".repeat(255))), "{log}");
}
