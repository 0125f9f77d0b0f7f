//! A client that disconnects while its call is in flight: a handler that has not asked runs on as with plain rmcp, and
//! one that has asked gets a grace period.

use std::{sync::Arc, time::Duration};

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    handler::server::tool::IntoCallToolResult,
    model::{CallToolRequestParams, CallToolResponse, RequestId, ServerCapabilities, ServerConfig},
    service::{RequestContext, serve_directly},
    transport::streamable_http_server::StreamableHttpServerConfig,
};
use rounds::{
    Ask, Era, FlowError, Limits, RoundsBuilder,
    observe::{Outcome, Refusal, Station},
    test::{Client, InFlight},
    time::BoxFuture,
};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::{Count, Stage, Units, http::Http};

const GRACE: Duration = Duration::from_secs(5);
const MOMENT: Duration = Duration::from_millis(1);

/// The events in a handler, and the gate that it waits for.
#[derive(Clone)]
struct Probe {
    charged: Count,
    told: Count,
    receipts: Count,
    dropped: Count,
    gate: Arc<Semaphore>,
}

impl Probe {
    fn new() -> Self {
        let (charged, told, receipts, dropped) = Default::default();
        Self { charged, told, receipts, dropped, gate: Arc::new(Semaphore::new(0)) }
    }

    /// Charges a card, waits, and writes a receipt. A task reports when the token is cancelled.
    async fn buy(self, context: RequestContext<RoleServer>) -> Result<String, FlowError> {
        let _guard = self.dropped.on_drop();
        let (token, told) = (context.ct.clone(), self.told.clone());
        tokio::spawn(async move {
            token.cancelled().await;
            told.up();
        });
        self.charged.up();
        drop(self.gate.acquire().await);
        self.receipts.up();
        Ok(format!("receipt {}", self.receipts.get()))
    }

    /// Expects that the handler's token is cancelled and that it is still running, and lets it through.
    async fn goes_on(&self) {
        self.told.reaches(1).await;
        assert_eq!((self.charged.get(), self.receipts.get(), self.dropped.get()), (1, 0, 0));
        self.gate.add_permits(1);
        self.dropped.reaches(1).await;
        assert_eq!(self.receipts.get(), 1);
    }
}

type Work = Box<dyn Fn(RequestContext<RoleServer>) -> BoxFuture<'static, Result<String, FlowError>> + Send + Sync>;

/// A server whose every tool is this function of its context.
struct Shop(Work);

impl ServerHandler for Shop {
    async fn call_tool(
        &self,
        _request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        (self.0)(context).await.into_call_tool_result()
    }

    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

impl Shop {
    fn stage<F: Future<Output = Result<String, FlowError>> + Send + 'static>(
        probe: &Probe,
        work: impl Fn(Probe, RequestContext<RoleServer>) -> F + Send + Sync + 'static,
    ) -> Stage<Self> {
        Self::stage_with(probe, work, |builder| builder)
    }

    fn stage_with<F: Future<Output = Result<String, FlowError>> + Send + 'static>(
        probe: &Probe,
        work: impl Fn(Probe, RequestContext<RoleServer>) -> F + Send + Sync + 'static,
        configure: impl FnOnce(RoundsBuilder<Self>) -> RoundsBuilder<Self>,
    ) -> Stage<Self> {
        let probe = probe.clone();
        Stage::with(Self(Box::new(move |context| Box::pin(work(probe.clone(), context)))), configure)
    }
}

async fn start(client: &Client) -> InFlight {
    client.start("tools/call", json!({"name": "buy", "arguments": {}})).await
}

fn metric() -> Value {
    json!({"units": "metric"})
}

/// Asks, and then buys.
async fn asks_first(probe: Probe, context: RequestContext<RoleServer>) -> Result<String, FlowError> {
    let _: Units = Ask::from_context(&context)?.form("Which units?").await?;
    probe.buy(context).await
}

#[tokio::test]
async fn a_handler_that_has_not_asked_is_told_and_runs_on_to_its_end_in_both_eras() {
    for era in [Era::Modern, Era::Legacy] {
        let probe = Probe::new();
        let stage = Shop::stage(&probe, Probe::buy);
        let client = Client::connect(stage.server.clone(), era, json!({"elicitation": {}})).await;
        let leg = start(&client).await;
        probe.charged.reaches(1).await;
        leg.cancel().await;
        probe.told.reaches(1).await;
        stage.passes(0, Duration::from_secs(3600)).await;
        probe.goes_on().await;
        stage.events.until(1, |station| *station == Station::Ended(Outcome::Complete)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_closes_tells_a_handler_that_has_not_asked_and_drops_nothing() {
    for era in [Era::Modern, Era::Legacy] {
        let probe = Probe::new();
        let stage = Shop::stage(&probe, Probe::buy);
        let client = Client::connect(stage.server.clone(), era, json!({})).await;
        let leg = start(&client).await;
        probe.charged.reaches(1).await;
        drop((client, leg));
        probe.goes_on().await;
    }
}

#[tokio::test]
async fn a_closed_response_tells_a_handler_that_has_not_asked_and_drops_nothing() {
    for (modern, json_response) in [(true, true), (true, false), (false, true), (false, false)] {
        let probe = Probe::new();
        let stage = Shop::stage(&probe, Probe::buy);
        let config = StreamableHttpServerConfig::default();
        let config = config.with_legacy_session_mode(false).with_json_response(json_response);
        let http = Http::to(&stage.server, config);
        let leg = tokio::spawn(async move {
            let call = json!({"id": 1, "method": "tools/call", "params": {"name": "buy"}});
            let mut response = match modern {
                true => http.modern(1, json!({"name": "buy"})).await,
                false => http.legacy(call).await,
            };
            super::http::next(&mut response).await
        });
        probe.charged.reaches(1).await;
        leg.abort();
        probe.goes_on().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_tells_a_handler_that_has_not_asked_when_its_call_is_cancelled_or_the_session_ends() {
    for ends in [false, true] {
        let probe = Probe::new();
        let stage = Shop::stage(&probe, Probe::buy);
        let http = Http::session(&stage.server).await;
        let _stream = http.legacy(json!({"id": 1, "method": "tools/call", "params": {"name": "buy"}})).await;
        probe.charged.reaches(1).await;
        if ends {
            let _ = http.delete().await;
        } else {
            let cancelled = json!({"method": "notifications/cancelled", "params": {"requestId": 1}});
            let _ = http.legacy(cancelled).await;
        }
        probe.goes_on().await;
    }
}

#[tokio::test]
async fn what_cleans_up_after_its_token_runs_in_both_eras_whether_it_has_asked_or_not() {
    for (era, asks) in [(Era::Modern, false), (Era::Modern, true), (Era::Legacy, false), (Era::Legacy, true)] {
        let probe = Probe::new();
        let stage = Shop::stage(&probe, move |probe, context| async move {
            if asks {
                let _: Units = Ask::from_context(&context)?.form("Which units?").await?;
            }
            probe.charged.up();
            context.ct.cancelled().await;
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            probe.receipts.up();
            Ok("cleaned up".to_owned())
        });
        let client = Client::connect(stage.server.clone(), era, json!({"elicitation": {}})).await;
        let leg = match (era, asks) {
            (Era::Modern, true) => {
                client.call("buy", json!({})).await.asked().accept("units", metric()).start(&client).await
            }
            _ => start(&client).await,
        };
        if asks && era == Era::Legacy {
            client.pushed().await.unwrap().answer(json!({"action": "accept", "content": metric()})).await;
        }
        probe.charged.reaches(1).await;
        leg.cancel().await;
        probe.receipts.reaches(1).await;
    }
}

#[tokio::test]
async fn a_handler_that_has_asked_is_told_has_five_seconds_and_is_dropped() {
    let probe = Probe::new();
    let stage = Shop::stage(&probe, asks_first);
    let client = Client::modern(stage.server.clone()).await;
    let retry = client.call("buy", json!({})).await.asked().accept("units", metric());
    let leg = retry.start(&client).await;
    probe.charged.reaches(1).await;
    leg.cancel().await;
    probe.told.reaches(1).await;
    // The timers of the flow's deadline, the lease, and the grace period.
    stage.passes(3, GRACE - MOMENT).await;
    assert_eq!(probe.dropped.get(), 0);
    stage.passes(3, MOMENT).await;
    assert_eq!((probe.dropped.get(), probe.receipts.get()), (1, 0));
    retry.send(&client).await.frozen();
    assert_eq!(stage.events.refusals(), [Refusal::Dead]);
    assert_eq!(stage.server.waiting_calls(), 0);
}

#[tokio::test]
async fn what_a_handler_ends_with_in_its_grace_period_is_the_reply_of_an_equal_leg() {
    let probe = Probe::new();
    let stage = Shop::stage(&probe, asks_first);
    let client = Client::modern(stage.server.clone()).await;
    let asked = client.call("buy", json!({})).await.asked();
    let retry = asked.accept("units", metric());
    let leg = retry.start(&client).await;
    probe.charged.reaches(1).await;
    leg.cancel().await;
    probe.told.reaches(1).await;
    stage.passes(3, GRACE - MOMENT).await;
    asked.decline("units").send(&client).await.frozen();
    probe.gate.add_permits(1);
    for _ in 0..2 {
        assert_eq!(retry.send(&client).await.text(), "receipt 1");
    }
    assert_eq!(probe.charged.get(), 1);
}

#[tokio::test]
async fn an_equal_leg_that_comes_in_the_grace_period_keeps_the_handler() {
    let probe = Probe::new();
    let stage = Shop::stage(&probe, asks_first);
    let client = Client::modern(stage.server.clone()).await;
    let retry = client.call("buy", json!({})).await.asked().accept("units", metric());
    let first = retry.start(&client).await;
    probe.charged.reaches(1).await;
    first.cancel().await;
    probe.told.reaches(1).await;
    stage.clock.until_asleep(3).await;
    let second = retry.start(&client).await;
    stage.events.until(1, |station| *station == Station::Waiting).await;
    stage.passes(4, GRACE).await;
    assert_eq!(probe.dropped.get(), 0, "it continues for the second");
    probe.gate.add_permits(1);
    assert_eq!(second.finish().await.text(), "receipt 1");
}

#[tokio::test]
async fn a_question_that_is_asked_in_the_grace_period_reaches_an_equal_leg_and_nobody_else() {
    for comes in [false, true] {
        let probe = Probe::new();
        let stage = Shop::stage(&probe, |probe, context| async move {
            let ask = Ask::from_context(&context)?;
            let _guard = probe.dropped.on_drop();
            let _: Units = ask.form("Which units?").await?;
            probe.charged.up();
            context.ct.cancelled().await;
            Ok(ask.confirm("Sure?").await?.to_string())
        });
        let client = Client::modern(stage.server.clone()).await;
        let retry = client.call("buy", json!({})).await.asked().accept("units", metric());
        let first = retry.start(&client).await;
        probe.charged.reaches(1).await;
        first.cancel().await;
        stage.clock.until_asleep(3).await;
        let second = if comes {
            let second = retry.start(&client).await;
            stage.events.until(1, |station| *station == Station::Waiting).await;
            Some(second)
        } else {
            None
        };
        stage.passes(3, GRACE).await;
        match second {
            Some(second) => {
                let asked = second.finish().await.asked();
                let sure = asked.accept("confirm", json!({"confirm": true})).send(&client).await;
                assert_eq!(sure.text(), "true");
                assert_eq!(stage.asks(), 2);
            }
            None => {
                probe.dropped.reaches(1).await;
                retry.send(&client).await.frozen();
                assert_eq!(stage.asks(), 1, "the second question was not sent");
            }
        }
    }
}

#[tokio::test]
async fn a_pushed_question_is_withdrawn_at_once_and_its_handler_has_the_grace_period() {
    let probe = Probe::new();
    let stage = Shop::stage(&probe, |probe, context| async move {
        let _guard = probe.dropped.on_drop();
        let ask = Ask::from_context(&context)?;
        tokio::select! {
            units = ask.form::<Units>("Which units?") => Ok(format!("{:?}", units?)),
            () = context.ct.cancelled() => {
                probe.told.up();
                drop(probe.gate.acquire().await);
                unreachable!("nothing opens the gate");
            }
        }
    });
    let client = Client::legacy(stage.server.clone()).await;
    let leg = start(&client).await;
    let pushed = client.pushed().await.unwrap();
    leg.cancel().await;
    let withdrawn = client.notified("notifications/cancelled").await;
    assert_eq!(&withdrawn["params"]["requestId"], pushed.id());
    probe.told.reaches(1).await;
    // The timers of the flow's deadline, and the grace period.
    stage.passes(2, GRACE - MOMENT).await;
    assert_eq!(probe.dropped.get(), 0);
    stage.passes(2, MOMENT).await;
    assert_eq!(probe.dropped.get(), 1);
    stage.events.until(1, |station| *station == Station::Ended(Outcome::Cancelled)).await;
    assert_eq!(stage.server.waiting_calls(), 0);
}

#[tokio::test]
async fn a_question_that_is_first_asked_when_the_client_is_gone_is_not_sent_in_either_era() {
    for era in [Era::Modern, Era::Legacy] {
        let probe = Probe::new();
        let stage = Shop::stage(&probe, |probe, context| async move {
            let _guard = probe.dropped.on_drop();
            probe.charged.up();
            context.ct.cancelled().await;
            let units: Units = Ask::from_context(&context)?.form("Which units?").await?;
            Ok(format!("{units:?}"))
        });
        let client = Client::connect(stage.server.clone(), era, json!({"elicitation": {}})).await;
        let leg = start(&client).await;
        probe.charged.reaches(1).await;
        leg.cancel().await;
        stage.passes(1, GRACE - MOMENT).await;
        assert_eq!(probe.dropped.get(), 0, "{era:?}");
        stage.passes(1, MOMENT).await;
        assert_eq!((probe.dropped.get(), stage.asks(), stage.server.waiting_calls()), (1, 0, 0), "{era:?}");
        assert!(!client.was_pushed(), "{era:?}");
        stage.events.until(1, |station| *station == Station::Ended(Outcome::Cancelled)).await;
    }
}

#[tokio::test]
async fn the_grace_period_can_be_set_and_with_none_a_handler_that_has_asked_is_dropped_when_it_was_told() {
    for grace in [Duration::ZERO, Duration::from_secs(60)] {
        let probe = Probe::new();
        let limits = Limits::default().with_grace(grace);
        let stage = Shop::stage_with(&probe, asks_first, |builder| builder.limits(limits));
        let client = Client::modern(stage.server.clone()).await;
        let retry = client.call("buy", json!({})).await.asked().accept("units", metric());
        let leg = retry.start(&client).await;
        probe.charged.reaches(1).await;
        leg.cancel().await;
        probe.told.reaches(1).await;
        if !grace.is_zero() {
            stage.passes(3, grace - MOMENT).await;
            assert_eq!(probe.dropped.get(), 0);
            stage.passes(3, MOMENT).await;
        }
        probe.dropped.reaches(1).await;
    }
}

#[tokio::test]
async fn a_leg_whose_client_was_gone_before_it_began_sends_no_question_and_its_handler_knows() {
    let probe = Probe::new();
    let stage = Shop::stage(&probe, |probe, context| async move {
        let _guard = probe.dropped.on_drop();
        if context.ct.is_cancelled() {
            probe.told.up();
        }
        let units: Units = Ask::from_context(&context)?.form("Which units?").await?;
        Ok(format!("{units:?}"))
    });
    let (ours, _theirs) = tokio::io::duplex(1024);
    let peer = serve_directly(stage.server.clone(), ours, None);
    let mut context = RequestContext::new(RequestId::Number(1), peer.peer().clone());
    context.meta = serde_json::from_value(json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
    }))
    .unwrap();
    context.ct.cancel();
    let server = stage.server.clone();
    let leg = tokio::spawn(async move { server.call_tool(CallToolRequestParams::new("buy"), context).await });
    stage.passes(1, GRACE).await;
    assert!(leg.await.unwrap().is_err());
    assert_eq!((probe.told.get(), probe.dropped.get(), stage.asks(), stage.server.waiting_calls()), (1, 1, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_is_busy_in_a_poll_sees_its_token_cancelled_meanwhile() {
    for era in [Era::Modern, Era::Legacy] {
        let probe = Probe::new();
        let stage = Shop::stage(&probe, |probe, context| async move {
            tokio::task::yield_now().await;
            probe.charged.up();
            while !context.ct.is_cancelled() {
                std::thread::yield_now();
            }
            probe.told.up();
            Ok(String::new())
        });
        let client = Client::connect(stage.server.clone(), era, json!({})).await;
        let leg = start(&client).await;
        probe.charged.reaches(1).await;
        leg.cancel().await;
        probe.told.reaches(1).await;
    }
}
