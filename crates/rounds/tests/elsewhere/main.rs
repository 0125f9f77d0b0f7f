//! Questions that are answered elsewhere: how the caller waits, who may decide, and that a decision counts once.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod alone;
mod callers;
mod changed;
mod hostile;
mod notices;

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use rmcp::{
    ServerHandler,
    handler::server::{router::tool::ToolRouter, tool::ToolRoute, wrapper::Parameters},
    model::CallToolResponse,
    schemars, tool, tool_handler, tool_router,
};
use rounds::{
    Ask, Durable, FlowError, FlowId, Given, KeyRing, Principal, Round, Rounds, RoundsBuilder, Steps,
    asked::DeclaredQuestion,
    durable,
    elsewhere::{Approvers, Decision, Elsewhere, QuestionElsewhere, RecordedDecision, Verdict, Way},
    ledger::{Ledger, MemoryLedger},
    register::{FlowQuery, FlowStatus, Flows},
    test::{Client, Clock, InFlight, Leg},
    text,
};
use serde::Deserialize;
use serde_json::{Value, json};

const DAY: Duration = Duration::from_secs(24 * 3600);
const PAGE: &str = "https://desk.example/questions";

#[derive(Deserialize, schemars::JsonSchema)]
struct Refund {
    order: String,
    amount: u32,
}

impl Refund {
    fn question(&self, verb: &str) -> String {
        format!("{verb} {} of {}?", self.amount, self.order)
    }
}

fn managers() -> Approvers {
    Approvers::role("manager").not_requester()
}

#[derive(Clone)]
struct Shop {
    tool_router: ToolRouter<Self>,
    refunds: Arc<AtomicUsize>,
    /// How its questions begin.
    verb: &'static str,
}

fn told(decision: Decision) -> String {
    match decision {
        Decision::Approved { by, .. } => format!("approved by {by}"),
        Decision::Denied { by, reason, .. } => format!("denied by {by}: {reason}"),
        Decision::Expired => "expired".to_owned(),
    }
}

#[tool_router]
impl Shop {
    fn new() -> Self {
        Self::with("Refund", durable("refund", "Refunds", refund))
    }

    /// The same shop after a deploy: its questions have other words.
    fn reworded(&self) -> Self {
        let shop = Self::with("Pay back", durable("refund", "Refunds", pay_back));
        Self { refunds: self.refunds.clone(), ..shop }
    }

    fn with(verb: &'static str, refund: ToolRoute<Self>) -> Self {
        let steps = Steps::new("steps", "Refunds, in steps")
            .step("approval", async |at: rounds::steps::Step<Shop, Refund>, ()| {
                let question = at.arguments().question(at.server().verb);
                Ok(DeclaredQuestion::approval(question).by(managers()).within(3 * DAY))
            })
            .finish(async |at, (decision,)| at.once("refund", async || at.server().refund(decision.clone())).await);
        let discount_steps = Steps::new("discount_steps", "Asks for a discount, in steps")
            .step("percent", async |at: rounds::steps::Step<Shop, Refund>, ()| {
                let question = format!("Discount for {}?", at.arguments().order);
                Ok(DeclaredQuestion::<Percent>::form(question).by(managers()))
            })
            .finish(async |_, (Percent { percent },)| Ok(format!("{percent} percent")));
        let tool_router = Self::tool_router()
            .with_route(refund)
            .with_route(durable("twice", "Refunds, if two people agree", twice))
            .with_route(durable("confirmed", "Refunds, if its caller confirms after the approval", confirmed))
            .with_route(durable("discount", "Asks for a discount", discount))
            .with_route(durable("lenient", "Refunds, if decided in time", lenient))
            .with_route(durable("patient", "Refunds, if decided in forty days", patient))
            .with_route(durable("ruled", "Refunds, if a rule of the shop admits the approver", ruled))
            .with_route(durable("imitates", "Fails with an error that looks like one of the library", imitates))
            .with_route(discount_steps.build().unwrap())
            .with_route(steps.build().unwrap());
        Self { tool_router, refunds: Arc::default(), verb }
    }

    fn refund(&self, decision: Decision) -> String {
        self.refunds.fetch_add(1, Ordering::SeqCst);
        told(decision)
    }

    fn refunds(&self) -> usize {
        self.refunds.load(Ordering::SeqCst)
    }

    #[tool(description = "Refunds, linear")]
    async fn linear(&self, Parameters(refund): Parameters<Refund>, ask: Ask) -> Result<String, FlowError> {
        let decision = ask.approval(refund.question(self.verb)).by(managers()).within(3 * DAY).await?;
        Ok(self.refund(decision))
    }

    #[tool(description = "Refunds, round by round")]
    async fn round(&self, Parameters(refund): Parameters<Refund>, round: Round) -> Result<CallToolResponse, FlowError> {
        let question = refund.question(self.verb);
        match round.decision("approval", &question) {
            Given::Accepted(decision) => Ok(text(round.once("refund", async || self.refund(decision.clone())).await?)),
            _ => round.questions().approval("approval", question, managers(), 3 * DAY).send(),
        }
    }

    #[tool(description = "Asks for a discount, linear")]
    async fn discount_linear(&self, Parameters(refund): Parameters<Refund>, ask: Ask) -> Result<String, FlowError> {
        let question = format!("Discount for {}?", refund.order);
        let Percent { percent } = ask.form(question).key("percent").by(managers()).await?;
        Ok(format!("{percent} percent"))
    }

    #[tool(description = "Asks for a discount, round by round")]
    async fn discount_round(
        &self,
        Parameters(refund): Parameters<Refund>,
        round: Round,
    ) -> Result<CallToolResponse, FlowError> {
        match round.given_elsewhere::<Percent>("percent") {
            Given::Accepted(Percent { percent }) => Ok(text(format!("{percent} percent"))),
            _ => {
                let question = format!("Discount for {}?", refund.order);
                round.questions().form_elsewhere::<Percent>("percent", question, managers(), DAY).send()
            }
        }
    }

    #[tool(description = "Signs in on a page of the shop's own")]
    async fn sign_in(&self, ask: Ask) -> Result<String, FlowError> {
        let account: String =
            ask.page("Sign in", "https://shop.example/sign-in?question={name}").key("account").await?;
        Ok(format!("signed in as {account}"))
    }
}

async fn refund(flow: Durable<Shop>, refund: Refund) -> Result<String, FlowError> {
    let decision = flow.approval(refund.question("Refund")).by(managers()).within(3 * DAY).await?;
    flow.once("refund", async |shop: &Shop, _| shop.refund(decision)).await
}

async fn pay_back(flow: Durable<Shop>, refund: Refund) -> Result<String, FlowError> {
    let decision = flow.approval(refund.question("Pay back")).by(managers()).within(3 * DAY).await?;
    flow.once("refund", async |shop: &Shop, _| shop.refund(decision)).await
}

async fn twice(flow: Durable<Shop>, refund: Refund) -> Result<String, FlowError> {
    flow.approval(refund.question("Refund")).key("first").by(managers()).within(3 * DAY).await?;
    let decision = flow.approval("Really?").key("second").by(managers()).within(3 * DAY).await?;
    flow.once("refund", async |shop: &Shop, _| shop.refund(decision)).await
}

async fn confirmed(flow: Durable<Shop>, refund: Refund) -> Result<String, FlowError> {
    let decision = flow.approval(refund.question("Refund")).by(managers()).within(3 * DAY).await?;
    let sure: bool = flow.form("Sure?").key("sure").await?;
    let said = flow.once("refund", async |shop: &Shop, _| shop.refund(decision)).await?;
    Ok(format!("{said}, confirmed: {sure}"))
}

async fn lenient(flow: Durable<Shop>, refund: Refund) -> Result<String, FlowError> {
    let decision = flow.approval(refund.question("Refund")).by(managers()).within(3 * DAY).or_expired().await?;
    Ok(told(decision))
}

async fn patient(flow: Durable<Shop>, refund: Refund) -> Result<String, FlowError> {
    Ok(told(flow.approval(refund.question("Refund")).by(managers()).within(40 * DAY).await?))
}

async fn ruled(flow: Durable<Shop>, refund: Refund) -> Result<String, FlowError> {
    Ok(told(flow.approval(refund.question("Refund")).by(Approvers::rule("shift")).await?))
}

async fn imitates(flow: Durable<Shop>, refund: Refund) -> Result<String, FlowError> {
    flow.approval(refund.question("Refund")).by(managers()).await?;
    flow.once("refund", async |shop: &Shop, _| shop.refunds.fetch_add(1, Ordering::SeqCst)).await?;
    Err(rmcp::ErrorData::internal_error("not now", Some(json!({"reason": "retry"}))).into())
}

#[derive(Clone, serde::Serialize, Deserialize, schemars::JsonSchema)]
struct Percent {
    percent: u32,
}

async fn discount(flow: Durable<Shop>, refund: Refund) -> Result<String, FlowError> {
    let percent: u32 = flow.form(format!("Discount for {}?", refund.order)).key("percent").by(managers()).await?;
    Ok(format!("{percent} percent"))
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Shop {}

fn roles(who: &Principal) -> Vec<String> {
    let is_manager = ["grace", "alan", "ada"].contains(&who.as_str());
    if is_manager { vec!["manager".to_owned()] } else { vec!["clerk".to_owned()] }
}

fn keys() -> KeyRing {
    KeyRing::from_bytes([[1; 32]]).unwrap()
}

fn settings() -> Elsewhere {
    Elsewhere::at(PAGE).roles(roles).result_tool()
}

fn builder(shop: &Shop, ledger: impl Ledger, clock: &Clock) -> RoundsBuilder<Shop> {
    Rounds::builder(shop.clone())
        .ledger(ledger)
        .clock(clock.clone())
        .keys(keys())
        .audience("shop")
        .principal(|_: &_| Some(Principal::new("ada")))
        .register()
        .elsewhere(settings())
}

struct Setup {
    shop: Shop,
    ledger: MemoryLedger,
    clock: Clock,
    server: Rounds<Shop>,
}

impl Setup {
    fn new() -> Self {
        let (shop, ledger, clock) = (Shop::new(), MemoryLedger::new(), Clock::new());
        let server = builder(&shop, ledger.clone(), &clock).build().unwrap();
        Self { shop, ledger, clock, server }
    }

    /// The only open question.
    async fn question(&self) -> QuestionElsewhere {
        open(&self.server.flows()).await
    }

    /// Lets time pass until a request that is held ends.
    async fn hold_over(&self, held: InFlight) -> Leg {
        let mut leg = pin!(held.finish());
        loop {
            tokio::select! {
                biased;
                leg = &mut leg => return leg,
                () = settle() => self.clock.advance(Duration::from_secs(5)),
            }
        }
    }

    async fn decide(&self, verdict: Verdict) -> RecordedDecision {
        let question = self.question().await;
        self.server.flows().decide(&question, verdict, &grace(), Way::Library).await.unwrap()
    }
}

/// Lets every other task run until it waits.
async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

fn grace() -> Principal {
    Principal::new("grace")
}

async fn flow(flows: &Flows) -> FlowId {
    let waiting = flows.list(FlowQuery::new().status(FlowStatus::Waiting)).await.unwrap().flows;
    assert_eq!(waiting.len(), 1, "{waiting:?}");
    waiting[0].id
}

async fn open(flows: &Flows) -> QuestionElsewhere {
    let questions = flows.questions(flow(flows).await).await.unwrap();
    let mut open: Vec<_> = questions.into_iter().filter(|question| question.is_open).collect();
    assert_eq!(open.len(), 1, "{open:?}");
    open.remove(0)
}

fn order() -> Value {
    json!({"order": "o-1", "amount": 900})
}

/// A client that can visit pages, and nothing else.
async fn visitor(server: &Rounds<Shop>) -> Client {
    Client::connect(server.clone(), rounds::Era::Modern, json!({"elicitation": {"url": {}}})).await
}

/// The reference in the text of a call that ended without a decision.
fn reference(text: &str) -> String {
    let (_, after) = text.split_once("The reference of this call is ").unwrap();
    after.split('.').next().unwrap().to_owned()
}

async fn fetch(client: &Client, reference: &str) -> Leg {
    client.call("flow_result", json!({ "reference": reference })).await
}

/// Lets other tasks run until this holds. No time passes.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..100 {
        if holds().await {
            return;
        }
        settle().await;
    }
    panic!("{what} does not happen");
}
