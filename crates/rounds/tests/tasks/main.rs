//! Tasks: the same handlers behind a handle that is polled, in every shape, on a clock that moves when told.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod answers;
mod client;
mod ending;
mod hostile;
mod kept;
mod limits;
mod shapes;
mod time;
mod wire;

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use rmcp::{
    ErrorData, Peer, RoleServer, ServerHandler, elicit_safe, handler::server::router::tool::ToolRouter,
    model::CallToolResponse, schemars, service::RequestContext, tool, tool_handler, tool_router,
};
use rounds::{
    Ask, Asked, Durable, FlowError, Given, Principal, Round, Rounds, RoundsBuilder, Steps,
    asked::{DeclaredQuestion, FixedQuestion},
    durable,
    tasks::Tasks,
    test::{Client, Clock},
    text,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Notify;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
struct Size {
    #[schemars(range(max = 50))]
    size: u32,
}

elicit_safe!(Size);

impl FixedQuestion for Size {
    const MESSAGE: &'static str = "Which size?";
}

#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct Nothing {}

/// A server with the same tool in every shape, and some that take long.
struct Shop {
    tool_router: ToolRouter<Self>,
    effects: Arc<AtomicUsize>,
    /// Lets a slow tool end.
    done: Arc<Notify>,
    /// A slow tool has begun.
    begun: Arc<Notify>,
}

#[tool_router]
impl Shop {
    #[tool(description = "linear")]
    async fn linear(&self, ask: Ask) -> Result<String, FlowError> {
        self.effects.fetch_add(1, Ordering::Relaxed);
        let Size { size } = ask.form("Which size?").key("size").await?;
        Ok(format!("size {size}"))
    }

    #[tool(description = "guard")]
    async fn guard(&self, round: Round) -> Result<CallToolResponse, FlowError> {
        round.once("effect", async || self.effects.fetch_add(1, Ordering::Relaxed)).await?;
        match round.given::<Size>("size") {
            Given::Accepted(Size { size }) => Ok(text(format!("size {size}"))),
            Given::Declined | Given::Cancelled => Ok(text("Cancelled.")),
            Given::Missing | Given::Invalid(_) => round.ask_form::<Size>("size", "Which size?"),
        }
    }

    #[tool(description = "declared")]
    async fn declared(&self, Asked(Size { size }): Asked<Size>) -> String {
        self.effects.fetch_add(1, Ordering::Relaxed);
        format!("size {size}")
    }

    #[tool(description = "written for rmcp alone")]
    async fn peer(&self, peer: Peer<RoleServer>) -> String {
        self.effects.fetch_add(1, Ordering::Relaxed);
        match peer.elicit::<Size>("Which size?").await {
            Ok(Some(Size { size })) => format!("size {size}"),
            other => format!("{other:?}"),
        }
    }

    #[tool(description = "two questions together")]
    async fn two(&self, ask: Ask) -> Result<String, FlowError> {
        let (b, a) = tokio::join!(ask.form("b?").key("b"), ask.form("a?").key("a"));
        let (Size { size: b }, Size { size: a }) = (b?, a?);
        self.effects.fetch_add(1, Ordering::Relaxed);
        Ok(format!("{a} and {b}"))
    }

    #[tool(description = "plain and slow, and says how far it is")]
    async fn slow(&self, ask: Ask) -> String {
        ask.progress(1.0, Some(2.0), Some("half way".to_owned())).await;
        self.begun.notify_one();
        self.done.notified().await;
        self.effects.fetch_add(1, Ordering::Relaxed);
        "done".to_owned()
    }

    #[tool(description = "an effect that takes long, and more that does")]
    async fn careful(&self, round: Round) -> Result<String, FlowError> {
        round.once("effect", async || self.work().await).await?;
        self.effects.fetch_add(1, Ordering::Relaxed);
        self.work().await;
        Ok("done".to_owned())
    }

    #[tool(description = "stops when told")]
    async fn polite(&self, context: RequestContext<RoleServer>) -> Result<String, ErrorData> {
        self.begun.notify_one();
        context.ct.cancelled().await;
        Err(ErrorData::internal_error("stopped", None))
    }

    #[tool(description = "a tool error")]
    async fn refuses(&self) -> Result<String, FlowError> {
        Err(FlowError::failed("sold out"))
    }

    #[tool(description = "an error of the protocol")]
    async fn breaks(&self) -> Result<String, ErrorData> {
        Err(ErrorData::invalid_params("no such shop", None))
    }

    #[tool(description = "errors that look like those of the library")]
    async fn imitates(&self, round: Round) -> Result<CallToolResponse, FlowError> {
        let Given::Accepted(Size { size }) = round.given("size") else {
            return round.ask_form::<Size>("size", "Which size?");
        };
        self.effects.fetch_add(1, Ordering::Relaxed);
        let data = |reason: &str| Some(json!({ "reason": reason }));
        Err(match size {
            1 => ErrorData::internal_error("not now", data("retry")).into(),
            _ => ErrorData::invalid_params("Invalid or expired requestState", data("invalid_request_state")).into(),
        })
    }

    #[tool(description = "a large result")]
    async fn large(&self) -> String {
        "x".repeat(100_000)
    }
}

async fn durably(flow: Durable<Shop>, _: Nothing) -> Result<String, FlowError> {
    flow.once("effect", async |shop, _key| shop.effects.fetch_add(1, Ordering::Relaxed)).await?;
    let Size { size } = flow.form("Which size?").key("size").await?;
    Ok(format!("size {size}"))
}

/// An effect, then work that takes long, then a question.
async fn slowly(flow: Durable<Shop>, _: Nothing) -> Result<String, FlowError> {
    flow.once("effect", async |shop, _key| shop.effects.fetch_add(1, Ordering::Relaxed)).await?;
    flow.once("work", async |shop, _key| shop.work().await).await?;
    let Size { size } = flow.form("Which size?").key("size").await?;
    Ok(format!("size {size}"))
}

/// A question, then an effect, then work that takes long.
async fn finally(flow: Durable<Shop>, _: Nothing) -> Result<String, FlowError> {
    let Size { size } = flow.form("Which size?").key("size").await?;
    flow.once("effect", async |shop, _key| shop.effects.fetch_add(1, Ordering::Relaxed)).await?;
    flow.once("work", async |shop, _key| shop.work().await).await?;
    Ok(format!("size {size}"))
}

/// Work that takes long, then a round without a question, then a question.
async fn checked(flow: Durable<Shop>, _: Nothing) -> Result<String, FlowError> {
    flow.once("work", async |shop, _key| shop.work().await).await?;
    flow.checkpoint().await?;
    let Size { size } = flow.form("Which size?").key("size").await?;
    flow.once("effect", async |shop, _key| shop.effects.fetch_add(1, Ordering::Relaxed)).await?;
    Ok(format!("size {size}"))
}

/// Two questions at once.
async fn together(flow: Durable<Shop>, _: Nothing) -> Result<String, FlowError> {
    let (a, b) = (flow.form::<Size>("a?").key("a"), flow.form::<Size>("b?").key("b"));
    let (Size { size: a }, Size { size: b }) = flow.all((a, b)).await?;
    Ok(format!("{a} and {b}"))
}

impl Shop {
    async fn work(&self) {
        self.begun.notify_one();
        self.done.notified().await;
    }

    fn new() -> Self {
        let stepwise = Steps::<Self, Nothing>::new("steps", "steps")
            .step("size", async |_, ()| Ok(DeclaredQuestion::form("Which size?")))
            .finish(async |step, (Size { size },): (Size,)| {
                step.server().effects.fetch_add(1, Ordering::Relaxed);
                Ok(format!("size {size}"))
            })
            .build()
            .unwrap();
        let tool_router = Self::tool_router()
            .with_route(durable("durable", "durable", durably))
            .with_route(durable("slowly", "slowly", slowly))
            .with_route(durable("finally", "finally", finally))
            .with_route(durable("checked", "checked", checked))
            .with_route(durable("together", "together", together))
            .with_route(stepwise);
        Self { tool_router, effects: Arc::default(), done: Arc::default(), begun: Arc::default() }
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Shop {}

/// A server whose calls become tasks, its clock, and whose requests come from whom the test says.
struct Scene {
    server: Rounds<Shop>,
    clock: Clock,
    caller: Arc<Mutex<Option<&'static str>>>,
    client: Client,
}

impl Scene {
    async fn new(tasks: Tasks) -> Self {
        Self::with(|builder| builder.tasks(tasks)).await
    }

    async fn with(configure: impl FnOnce(RoundsBuilder<Shop>) -> RoundsBuilder<Shop>) -> Self {
        let (clock, caller) = (Clock::new(), Arc::new(Mutex::new(Some("ann"))));
        let who = caller.clone();
        let identify = move |_: &RequestContext<RoleServer>| who.lock().unwrap().map(Principal::new);
        let builder = Rounds::builder(Shop::new()).clock(clock.clone()).principal(identify).pushes_for("peer");
        let server = configure(builder).build().unwrap();
        let client = Client::modern(server.clone()).await.declaring(declared());
        Self { server, clock, caller, client }
    }

    fn effects(&self) -> usize {
        self.server.handler().effects.load(Ordering::Relaxed)
    }

    /// Calls a tool, and gives the id of the task that it is answered with.
    async fn begin(&self, tool: &str) -> String {
        let called = self.client.call(tool, json!({})).await;
        let task = called.result();
        assert_eq!(task["resultType"], "task", "{task}");
        task["taskId"].as_str().unwrap().to_owned()
    }

    async fn get(&self, id: &str) -> Value {
        self.client.request("tasks/get", json!({"taskId": id})).await.result().clone()
    }

    /// Polls until the task has this status.
    async fn until(&self, id: &str, status: &str) -> Value {
        for _ in 0..10_000 {
            let task = self.get(id).await;
            if task["status"] == status {
                return task;
            }
            tokio::task::yield_now().await;
        }
        panic!("it never is {status}: {}", self.get(id).await);
    }

    /// Polls until the task asks under another key than this one, and gives that.
    async fn asked_again(&self, id: &str, first: &str) -> String {
        for _ in 0..10_000 {
            let key = keys(&self.until(id, "input_required").await).remove(0);
            if key != first {
                return key;
            }
        }
        panic!("its key is always {first}");
    }

    async fn update(&self, id: &str, answers: Value) {
        let updated = self.client.request("tasks/update", json!({"taskId": id, "inputResponses": answers})).await;
        assert_eq!(updated.result(), &json!({"resultType": "complete"}));
    }

    async fn cancel(&self, id: &str) {
        let cancelled = self.client.request("tasks/cancel", json!({"taskId": id})).await;
        assert_eq!(cancelled.result(), &json!({"resultType": "complete"}));
    }

    /// The code of the error that a request about a task ends with.
    async fn refused(&self, client: &Client, method: &str, id: &str) -> i64 {
        let params = match method {
            "tasks/update" => json!({"taskId": id, "inputResponses": {}}),
            _ => json!({"taskId": id}),
        };
        client.request(method, params).await.error()["code"].as_i64().unwrap()
    }
}

const METHODS: [&str; 3] = ["tasks/get", "tasks/update", "tasks/cancel"];

/// What a client of tasks declares with each request.
fn declared() -> Value {
    json!({"elicitation": {"form": {}}, "extensions": {"io.modelcontextprotocol/tasks": {}}})
}

fn accept(size: u32) -> Value {
    json!({"action": "accept", "content": {"size": size}})
}

/// The keys of the questions that a task shows.
fn keys(task: &Value) -> Vec<String> {
    task["inputRequests"].as_object().unwrap().keys().cloned().collect()
}

fn text_of(task: &Value) -> &str {
    task["result"]["content"][0]["text"].as_str().unwrap()
}
