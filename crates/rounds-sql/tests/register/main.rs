//! What a reader and a writer of the database can do: nothing that was said can be read, and rows that were exchanged are
//! refused.

#![expect(clippy::unwrap_used, reason = "a failed unwrap names its line")]

use std::path::{Path, PathBuf};

use rmcp::{
    ServerHandler,
    handler::server::{router::tool::ToolRouter, wrapper::Parameters},
    model::{CallToolResponse, ServerCapabilities, ServerConfig},
    schemars, tool, tool_handler, tool_router,
};
use rounds::{
    Ask, Durable, FlowError, Given, KeyRing, Principal, Round, Rounds, durable,
    elsewhere::{Approvers, Decision, Elsewhere, Verdict, Way},
    ledger::Ledger,
    register::{FlowQuery, FlowStatus, Flows, FlowsError},
    tasks::Tasks,
    test::{Client, Retry},
    text,
};
use rounds_sql::{PostgresLedger, SqliteLedger};
use rounds_testkit::Postgres;
use serde::Deserialize;
use serde_json::json;
use sqlx::{Connection as _, SqliteConnection};

#[tokio::test]
async fn a_dump_of_sqlite_has_nothing_in_it_that_was_said() {
    let store = Sqlite::new("dump");
    let server = serve(store.ledger().await);
    buy(&client(&server).await, || store.shows_nothing()).await;
    decide(&server, || store.shows_nothing()).await;
}

#[tokio::test]
async fn a_dump_of_postgres_has_nothing_in_it_that_was_said() {
    let (postgres, url) = (Postgres::shared(), Postgres::shared().database());
    let server = serve(PostgresLedger::connect(&url).await.unwrap());
    let shows_nothing = || {
        let dump = postgres.dump(&url);
        assert!(contains(&dump, "rounds_parts") && contains(&dump, "buy"), "the dump can be searched");
        // Bytes are printed in hexadecimal digits.
        let hex: String = "canary".bytes().map(|byte| format!("{byte:02x}")).collect();
        assert!(!contains(&dump, "canary") && !contains(&dump, &hex), "something that was said is in plain text");
    };
    buy(&client(&server).await, shows_nothing).await;
    decide(&server, shows_nothing).await;
}

#[tokio::test]
async fn rows_that_were_exchanged_in_sqlite_are_refused() {
    let store = Sqlite::new("exchange");
    let server = serve(store.ledger().await);
    exchange(&server, async |statements| store.run(statements).await).await;
}

#[tokio::test]
async fn rows_that_were_exchanged_in_postgres_are_refused() {
    let (postgres, url) = (Postgres::shared(), Postgres::shared().database());
    let server = serve(PostgresLedger::connect(&url).await.unwrap());
    exchange(&server, async |statements| _ = postgres.ask(&url, statements)).await;
}

/// Says every secret once: as argument, question, value of an effect, answer, result and name of a principal. Looks at the
/// store while the flow waits, and at the end.
async fn buy(client: &Client, look: impl Fn()) {
    let asked = client.call("buy", json!({"item": format!("canary-argument{}", " ".repeat(5000))})).await.asked();
    look();
    let bought = asked.accept("size", json!({"size": "canary-answer"})).send(client).await.text();
    assert!(bought.starts_with("canary-result canary-value"), "{bought}");
    look();
}

/// Says them again as a task that waits for a decision, and in the decision.
async fn decide(server: &Rounds<Shop>, look: impl Fn()) {
    let client = client(server).await.declaring(json!({"extensions": {"io.modelcontextprotocol/tasks": {}}}));
    let created = client.request("tools/call", json!({"name": "approve", "arguments": {"item": "canary-item"}})).await;
    let task = json!({"taskId": created.result()["taskId"]});
    let (flows, poll) = (server.flows(), async || client.request("tasks/get", task.clone()).await.result().clone());
    let waiting =
        async || flows.list(FlowQuery::new().target("approve").status(FlowStatus::Waiting)).await.unwrap().flows;
    while waiting().await.is_empty() {
        tokio::task::yield_now().await;
    }
    look();
    let question = flows.question(waiting().await[0].id, "approval").await.unwrap().unwrap();
    let verdict = Verdict::deny_because("canary-reason");
    flows.decide(&question, verdict, &Principal::new("canary-approver"), Way::Library).await.unwrap();
    look();
    while poll().await["status"] != "completed" {
        tokio::task::yield_now().await;
    }
    assert_eq!(poll().await["result"]["content"][0]["text"], "canary-reason");
    look();
}

#[tokio::test]
async fn a_flow_that_another_process_cancels_loses_its_handler() {
    let store = Sqlite::new("cancel");
    let server = serve(store.ledger().await);
    let asked = client(&server).await.call("gift", json!({"item": "tea"})).await.asked();
    assert_eq!(server.waiting_calls(), 1);
    let flows = Flows::open(store.ledger().await, &keys(), Some("shop")).unwrap();
    let waiting = flows.list(FlowQuery::new().status(FlowStatus::Waiting)).await.unwrap().flows;
    flows.cancel(waiting[0].id, "a mistake").await.unwrap();
    let over = tokio::time::timeout(std::time::Duration::from_secs(20), async {
        while server.waiting_calls() > 0 {
            tokio::task::yield_now().await;
        }
    });
    over.await.expect("the handler is dropped");
    asked.accept("size", json!({"size": "xl"})).send(&client(&server).await).await.frozen();
}

/// Exchanges the recorded replies, whole claims, and the parts of records between two flows.
async fn exchange(server: &Rounds<Shop>, run: impl AsyncFn(&'static str)) {
    let client = client(server).await;
    let mut answers: Vec<Retry> = Vec::new();
    for item in ["tea", "coffee"] {
        let answer = client.call("wrap", json!({"item": item})).await.asked().accept("size", json!({"size": "xl"}));
        assert_eq!(answer.send(&client).await.text(), format!("wrapped {item}"));
        answers.push(answer);
    }
    run("CREATE TABLE kept AS SELECT * FROM rounds_claims; CREATE TABLE parts AS SELECT * FROM rounds_parts").await;
    for exchanged in [
        "UPDATE rounds_claims SET outcome =
           (SELECT kept.outcome FROM kept WHERE kept.flow <> rounds_claims.flow)",
        "UPDATE rounds_claims SET (answers, outcome) =
           (SELECT kept.answers, kept.outcome FROM kept WHERE kept.flow <> rounds_claims.flow)",
    ] {
        run(exchanged).await;
        for answer in &answers {
            answer.send(&client).await.frozen();
        }
    }
    run("UPDATE rounds_claims SET (answers, outcome) =
           (SELECT kept.answers, kept.outcome FROM kept WHERE kept.flow = rounds_claims.flow)")
    .await;
    assert_eq!(answers[0].send(&client).await.text(), "wrapped tea", "the rows are as before");

    let flows = server.flows();
    let listed = flows.list(FlowQuery::new()).await.unwrap().flows;
    assert_eq!(listed.len(), 2);
    let opened = async |at: usize| flows.details(&flows.get(listed[at].id).await.unwrap().unwrap()).map(drop);
    assert!(opened(0).await.is_ok() && opened(1).await.is_ok());
    run("UPDATE rounds_parts SET sealed = (SELECT parts.sealed FROM parts
           WHERE parts.flow <> rounds_parts.flow AND parts.number = rounds_parts.number)")
    .await;
    for at in 0..2 {
        assert!(matches!(opened(at).await, Err(FlowsError::Unreadable { .. })), "a part of another flow was opened");
    }
}

/// A folder with a store, which is removed when the test ends.
struct Sqlite(PathBuf);

impl Sqlite {
    fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("register-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn file(&self) -> PathBuf {
        self.0.join("rounds.db")
    }

    async fn ledger(&self) -> SqliteLedger {
        SqliteLedger::open(self.file()).await.unwrap()
    }

    async fn run(&self, statements: &'static str) {
        let mut connection = SqliteConnection::connect(&format!("sqlite:{}", self.file().display())).await.unwrap();
        sqlx::raw_sql(statements).execute(&mut connection).await.unwrap();
    }

    /// Searches the file and its log.
    fn shows_nothing(&self) {
        let files = std::fs::read_dir(&self.0).unwrap().map(|file| std::fs::read(file.unwrap().path()).unwrap());
        let bytes: Vec<u8> = files.flatten().collect();
        assert!(contains(&bytes, "rounds_parts"), "the file can be searched");
        assert!(!contains(&bytes, "canary"), "something that was said is in plain text");
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn contains(bytes: &[u8], word: &str) -> bool {
    bytes.windows(word.len()).any(|window| window == word.as_bytes())
}

struct Shop {
    tool_router: ToolRouter<Self>,
}

#[derive(Deserialize, schemars::JsonSchema)]
struct Order {
    item: String,
}

#[derive(Deserialize, schemars::JsonSchema)]
struct Size {
    size: String,
}

#[tool_router]
impl Shop {
    #[tool(description = "Wraps")]
    async fn wrap(&self, Parameters(order): Parameters<Order>, round: Round) -> Result<CallToolResponse, FlowError> {
        match round.given::<Size>("size") {
            Given::Accepted(_) => Ok(text(format!("wrapped {}", order.item))),
            _ => round.ask_form::<Size>("size", "Which size?"),
        }
    }

    #[tool(description = "Wraps as a gift, linear")]
    async fn gift(&self, Parameters(order): Parameters<Order>, ask: Ask) -> Result<String, FlowError> {
        let Size { size } = ask.form("Which size?").key("size").await?;
        Ok(format!("{} in {size}", order.item))
    }
}

async fn approves(flow: Durable<Shop>, order: Order) -> Result<String, FlowError> {
    match flow.approval(format!("canary-approval of {}?", order.item)).by(Approvers::anyone()).await? {
        Decision::Denied { reason, .. } => Ok(reason),
        other => Ok(format!("{other:?}")),
    }
}

async fn buys(flow: Durable<Shop>, order: Order) -> Result<String, FlowError> {
    let Size { size } = flow.form(format!("Which canary-question for {}?", order.item)).key("size").await?;
    let value: String = flow.once("charge", async |_, _| "canary-value".to_owned()).await?;
    Ok(format!("canary-result {value} {size}"))
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Shop {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

fn keys() -> KeyRing {
    KeyRing::from_bytes([[1; 32]]).unwrap()
}

fn serve(ledger: impl Ledger) -> Rounds<Shop> {
    let tools = Shop::tool_router().with_route(durable("buy", "Buys", buys));
    Rounds::builder(Shop { tool_router: tools.with_route(durable("approve", "Asks for an approval", approves)) })
        .keys(keys())
        .audience("shop")
        .principal(|_: &_| Some(Principal::new("canary-principal")))
        .ledger(ledger)
        .register()
        .elsewhere(Elsewhere::new())
        .tasks_for("approve", Tasks::at_once())
        .spill()
        .build()
        .unwrap()
}

async fn client(server: &Rounds<Shop>) -> Client {
    Client::modern(server.clone()).await
}
