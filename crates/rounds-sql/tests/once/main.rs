//! Money moves once, and its sum never changes: the process is killed with SIGKILL at every step of a transfer, a thousand
//! times, and the next process goes on with what is in the database.
//!
//! The test runs its own program again as a server over stdio. A call of the tool `stop_at` names the moment at which the
//! server says so and waits to be killed.

#![expect(clippy::unwrap_used, reason = "a failed unwrap names its line")]
#![cfg(unix)]

mod bounds;
mod failover;
mod first;
mod ledger;
mod stores;

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::Mutex,
    time::Duration,
};

use rmcp::{
    ServerHandler, ServiceExt as _,
    handler::server::{
        router::tool::{ToolRoute, ToolRouter},
        wrapper::Parameters,
    },
    model::{CallToolResponse, ServerCapabilities, ServerConfig},
    schemars, tool, tool_handler, tool_router,
    transport::stdio,
};
use rounds::{
    Durable, FlowError, Given, KeyRing, Limits, Round, Rounds, RoundsBuilder, Steps,
    asked::DeclaredQuestion,
    durable,
    ledger::Ledger,
    test::{Leg, Retry},
    text,
};
use rounds_sql::{EffectError, OnceIn as _, PoolOf as _, PostgresLedger, SqliteLedger, TransactionDatabase};
use rounds_testkit::Postgres;
use serde::Deserialize;
use serde_json::{Value, json};
use sqlx::{PgPool, Pool, SqlitePool};
use tokio::sync::Notify;

use crate::ledger::Stopping;

/// The moments at which a process is killed: each step of a leg, and three inside of the transaction.
const MOMENTS: [&str; 7] = [
    "claimed round",
    "renewed round",
    "began the transaction",
    "took the money",
    "gave the money",
    "settling round",
    "settled round",
];

/// How often a process is killed at each moment.
const TIMES: usize = 143;

#[test]
fn killed_a_thousand_times_on_sqlite_each_transfer_happens_once() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("once-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let url = format!("sqlite:{}", folder.join("bank.db").display());
    let transfers =
        survive(&url, "transfer", TIMES) + survive(&url, "transfer_guarded", 1) + survive(&url, "transfer_stepped", 1);
    let file = folder.join("bank.db");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (moved, rows): (i64, i64) = runtime.block_on(async {
        let pool = SqlitePool::connect(&format!("sqlite:{}", file.display())).await.unwrap();
        let counted = "SELECT (SELECT count(*) FROM moves), (SELECT count(*) FROM rounds_effects WHERE value <> '')";
        sqlx::query_as(counted).fetch_one(&pool).await.unwrap()
    });
    assert_eq!((moved, rows), (transfers, transfers));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn killed_at_every_step_on_postgres_each_transfer_happens_once() {
    let postgres = Postgres::shared();
    let url = postgres.database();
    let transfers =
        survive(&url, "transfer", 10) + survive(&url, "transfer_guarded", 2) + survive(&url, "transfer_stepped", 2);
    let counted = "SELECT (SELECT count(*) FROM moves), (SELECT count(*) FROM rounds_effects WHERE value <> '')";
    assert_eq!(postgres.ask(&url, counted), format!("{transfers}|{transfers}"));
    assert_eq!(postgres.ask(&url, "SELECT sum(balance) FROM accounts"), "0");
}

#[test]
fn a_ledger_that_is_lost_does_not_make_an_effect_run_again() {
    let postgres = Postgres::shared();
    let url = postgres.database();
    let mut server = Server::start(&url);
    let answer = server.call("transfer", json!({})).asked().accept("confirm", json!({"confirm": true}));
    assert_eq!(server.send(&answer).text(), "moved 1");
    drop(server);
    postgres.ask(&url, "TRUNCATE rounds_claims");
    let mut server = Server::start(&url);
    assert_eq!(server.send(&answer).text(), "moved 1", "the row has the value");
    assert_eq!(postgres.ask(&url, "SELECT count(*) FROM moves"), "1");
}

#[test]
fn an_effect_that_fails_leaves_nothing_and_may_be_tried_again() {
    let postgres = Postgres::shared();
    let url = postgres.database();
    let mut server = Server::start(&url);
    let answer = server.call("transfer", json!({"fails": true})).asked().accept("confirm", json!({"confirm": true}));
    assert_eq!(server.send(&answer).text(), "the effect failed");
    assert_eq!(postgres.ask(&url, "SELECT count(*) FROM moves"), "0");
    assert_eq!(postgres.ask(&url, "SELECT count(*) FROM rounds_effects"), "0");
    assert_eq!(postgres.ask(&url, "SELECT coalesce(sum(abs(balance)), 0) FROM accounts"), "0");
}

/// Kills a server at every moment, this often, each time in the middle of a transfer that the next server completes.
/// Returns the number of transfers.
fn survive(database: &str, tool: &str, times: usize) -> i64 {
    let mut transfers = 0;
    let mut server = Server::start(database);
    for _ in 0..times {
        for moment in MOMENTS {
            let answer = server.call(tool, json!({})).asked().accept("confirm", json!({"confirm": true}));
            let (method, params) = answer.clone().into_parts();
            server.killed_while(&method, &params, moment);
            server = Server::start(database);
            transfers += 1;
            let standing = if moment == "settled round" { COMPLETED } else { WORKING };
            assert_eq!(server.call("standing", json!({})).text(), standing, "{moment}: record and claim agree");
            let said = server.persistently(&answer);
            assert!(said.starts_with("moved "), "{moment}: {said}");
            assert_eq!(server.persistently(&answer), said, "{moment}: a retry gets the same reply");
            assert_eq!(server.call("standing", json!({})).text(), COMPLETED, "{moment}");
        }
    }
    assert_eq!(server.call("sum", json!({})).text(), "0");
    transfers
}

/// The record and the claim of a flow that is worked on, and of one that is over, by the numbers in their tables.
const WORKING: &str = "status 0, claim 1";
const COMPLETED: &str = "status 2, claim 2";

/// A server in a separate process.
struct Server {
    process: Child,
    said: BufReader<ChildStdout>,
}

impl Server {
    fn start(database: &str) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["the_server", "--exact", "--nocapture", "--test-threads=1"])
            .env(DATABASE, database)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(process.stdout.take().unwrap());
        let mut server = Self { process, said };
        // The output of the test runner comes first.
        while server.hear() != READY {}
        server
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(self.said.read_line(&mut line).unwrap(), 0, "the server has ended");
        line.trim_end().to_owned()
    }

    fn tell(&mut self, method: &str, params: &Value) {
        let mut params = params.clone();
        let meta = &mut params["_meta"];
        meta["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
        meta["io.modelcontextprotocol/clientCapabilities"] = json!({"elicitation": {"form": {}}});
        meta["io.modelcontextprotocol/clientInfo"] = json!({"name": "once", "version": "1"});
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        writeln!(self.process.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    fn request(&mut self, method: &str, params: Value) -> Leg {
        self.tell(method, &params);
        let response = serde_json::from_str(&self.hear()).unwrap();
        Leg::new(method, params, response)
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Leg {
        self.request("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    fn send(&mut self, retry: &Retry) -> Leg {
        let (method, params) = retry.clone().into_parts();
        self.request(&method, params)
    }

    /// Sends a leg again as long as it ends with a retryable error, as any client would.
    fn persistently(&mut self, retry: &Retry) -> String {
        let (method, params) = retry.clone().into_parts();
        self.until_settled(&method, &params).text()
    }

    fn until_settled(&mut self, method: &str, params: &Value) -> Leg {
        for _ in 0..1000 {
            let leg = self.request(method, params.clone());
            if leg.response()["error"]["data"]["reason"] != "retry" {
                return leg;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the leg is not completed");
    }

    /// Sends a leg to a server that stops at a moment, and kills it there.
    fn killed_while(mut self, method: &str, params: &Value, moment: &str) {
        assert_eq!(self.call("stop_at", json!({"moment": moment})).text(), "armed");
        self.tell(method, params);
        // No leg waits until its effect is settled, so it may have replied before that.
        let said = self.hear();
        assert!(said == STOPPED || moment == "settled effect", "the server did not reach `{moment}`: {said}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

// The rest runs in the server's process.

const DATABASE: &str = "ROUNDS_ONCE_DATABASE";
const READY: &str = "ready";
const STOPPED: &str = "stopped";

static STOP_AT: Mutex<String> = Mutex::new(String::new());

/// The program that the tests above start, and not a test itself. Without a database it does nothing.
#[test]
fn the_server() {
    let Ok(database) = std::env::var(DATABASE) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        match database.strip_prefix("sqlite:") {
            Some(file) => {
                let ledger = SqliteLedger::open(PathBuf::from(file)).await.unwrap();
                let pool = SqlitePool::connect(&database).await.unwrap();
                rounds_sql::prepare(&pool).await.unwrap();
                sqlx::raw_sql(TABLES).execute(&pool).await.unwrap();
                serve(ledger, Bank::on_sqlite(pool)).await;
            }
            None => {
                let ledger = PostgresLedger::connect(&database).await.unwrap();
                let pool = PgPool::connect(&database).await.unwrap();
                rounds_sql::prepare(&pool).await.unwrap();
                sqlx::raw_sql(TABLES).execute(&pool).await.unwrap();
                serve(ledger, Bank::on_postgres(pool)).await;
            }
        }
    });
}

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS accounts (name TEXT PRIMARY KEY, balance BIGINT NOT NULL);
    CREATE TABLE IF NOT EXISTS moves (number INTEGER PRIMARY KEY);
    CREATE TABLE IF NOT EXISTS stamps (key TEXT NOT NULL);
    INSERT INTO accounts VALUES ('a', 0), ('b', 0) ON CONFLICT DO NOTHING;
";

async fn serve<DB: TransactionDatabase>(ledger: impl Ledger, bank: Bank<DB>)
where
    Bank<DB>: ServerHandler,
{
    let limits = Limits::default().with_lease(Duration::from_millis(100));
    let server = builder(bank, Stopping(ledger)).limits(limits).register().build().unwrap();
    println!("\n{READY}");
    server.serve(stdio()).await.unwrap().waiting().await.unwrap();
}

fn builder<S: ServerHandler>(server: S, ledger: impl Ledger) -> RoundsBuilder<S> {
    Rounds::builder(server).keys(KeyRing::from_bytes([[7; 32]]).unwrap()).audience("once").ledger(ledger)
}

/// Reports that the process has reached the moment, and waits to be killed.
fn reach(moment: &str) {
    if *STOP_AT.lock().unwrap() == moment {
        println!("{STOPPED}");
        loop {
            std::thread::park();
        }
    }
}

#[derive(Deserialize, schemars::JsonSchema)]
struct Stop {
    moment: String,
}

#[derive(Default, Deserialize, schemars::JsonSchema)]
struct Transfer {
    #[serde(default)]
    fails: bool,
    /// Whether the effect waits in its transaction until the test lets it go on.
    #[serde(default)]
    waits: bool,
}

/// An effect that waits has begun, and may go on.
static BEGAN: Notify = Notify::const_new();
static GO_ON: Notify = Notify::const_new();

/// How long the transactions of these servers may be open. Their leases are so short that a sixth is too little.
const OPEN: Duration = Duration::from_secs(5);

struct Bank<DB: sqlx::Database> {
    tool_router: ToolRouter<Self>,
    pool: Pool<DB>,
}

/// The same server on each database.
macro_rules! bank_on {
    ($database:ty, $on:ident, $transfer:ident, $prepaid:ident, $effect:ident) => {
        #[tool_router]
        impl Bank<$database> {
            fn $on(pool: Pool<$database>) -> Self {
                let tool_router = Self::tool_router()
                    .with_route(durable("transfer", "Moves money", $transfer))
                    .with_route(durable("prepaid", "Moves money, and then asks", $prepaid))
                    .with_route(Self::transfer_stepped());
                Self { tool_router, pool }
            }

            fn transfer_stepped() -> ToolRoute<Self> {
                Steps::<Self, Transfer>::new("transfer_stepped", "Moves money, in steps")
                    .step("confirm", async |_step, ()| Ok(DeclaredQuestion::<bool>::form("Move it?")))
                    .finish(async |step, (sure,)| {
                        if !sure {
                            return Ok("not moved".to_owned());
                        }
                        let pool = &step.server().pool;
                        let effect = async |tx: &mut <$database as sqlx::Database>::Connection, _: &str| {
                            $effect(tx, &Transfer::default()).await
                        };
                        let number = step.once_in_within(pool, OPEN, "transfer", effect).await?;
                        Ok(format!("moved {number}"))
                    })
                    .build()
                    .unwrap()
            }

            #[tool(description = "Moves money, guard first")]
            async fn transfer_guarded(&self, round: Round) -> Result<CallToolResponse, FlowError> {
                let Given::Accepted(true) = round.given::<bool>("confirm") else {
                    return round.ask_form::<bool>("confirm", "Move it?");
                };
                let effect = async |tx: &mut <$database as sqlx::Database>::Connection, _: &str| {
                    $effect(tx, &Transfer::default()).await
                };
                let number = round.once_in_within(&self.pool, OPEN, "transfer", effect).await?;
                Ok(text(format!("moved {number}")))
            }

            #[tool(description = "Names the moment at which to stop")]
            async fn stop_at(&self, Parameters(stop): Parameters<Stop>) -> String {
                *STOP_AT.lock().unwrap() = stop.moment;
                "armed".to_owned()
            }

            #[tool(description = "What the store has of the last flow that was answered")]
            async fn standing(&self) -> String {
                let standing = sqlx::query_as::<_, (i64, i64)>(
                    "SELECT CAST(f.status AS BIGINT), CAST(c.state AS BIGINT)
                     FROM rounds_flows f JOIN rounds_claims c ON c.flow = f.flow
                     WHERE c.what = $1 ORDER BY f.created DESC LIMIT 1",
                );
                let first_round = b"r\0\0\0\x01".to_vec();
                let (status, claim) = standing.bind(first_round).fetch_one(&self.pool).await.unwrap();
                format!("status {status}, claim {claim}")
            }

            #[tool(description = "How often the effects have run")]
            async fn counts(&self) -> String {
                let counts = "SELECT (SELECT count(*) FROM moves), (SELECT count(*) FROM stamps)";
                let counts = sqlx::query_as::<_, (i64, i64)>(counts).fetch_one(&self.pool).await.unwrap();
                format!("{} moves, {} stamps", counts.0, counts.1)
            }

            #[tool(description = "The sum of all accounts")]
            async fn sum(&self) -> String {
                let sum = sqlx::query_scalar::<_, i64>("SELECT CAST(sum(balance) AS BIGINT) FROM accounts");
                sum.fetch_one(&self.pool).await.unwrap().to_string()
            }
        }

        #[tool_handler(router = self.tool_router)]
        impl ServerHandler for Bank<$database> {
            fn get_info(&self) -> ServerConfig {
                ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            }
        }

        async fn $transfer(flow: Durable<Bank<$database>>, transfer: Transfer) -> Result<String, FlowError> {
            if !flow.confirm("Move it?").await? {
                return Ok("not moved".to_owned());
            }
            let pool = flow.pool(|bank| &bank.pool);
            let effect =
                async |tx: &mut <$database as sqlx::Database>::Connection, _: &str| $effect(tx, &transfer).await;
            let number = flow.once_in_within(&pool, OPEN, "transfer", effect).await?;
            Ok(format!("moved {number}"))
        }

        async fn $prepaid(flow: Durable<Bank<$database>>, transfer: Transfer) -> Result<String, FlowError> {
            flow.once("stamp", async |bank: &Bank<$database>, key: &str| {
                let stamp = sqlx::query("INSERT INTO stamps VALUES ($1)");
                stamp.bind(key).execute(&bank.pool).await.unwrap();
            })
            .await?;
            let pool = flow.pool(|bank| &bank.pool);
            let effect =
                async |tx: &mut <$database as sqlx::Database>::Connection, _: &str| $effect(tx, &transfer).await;
            let number = flow.once_in_within(&pool, OPEN, "transfer", effect).await?;
            flow.confirm("Was that right?").await?;
            Ok(format!("moved {number}"))
        }

        async fn $effect(
            tx: &mut <$database as sqlx::Database>::Connection,
            transfer: &Transfer,
        ) -> Result<i64, EffectError> {
            reach("began the transaction");
            if transfer.waits {
                BEGAN.notify_one();
                GO_ON.notified().await;
            }
            let take = sqlx::query("UPDATE accounts SET balance = balance - 1 WHERE name = 'a'");
            take.execute(&mut *tx).await?;
            reach("took the money");
            let give = sqlx::query("UPDATE accounts SET balance = balance + 1 WHERE name = 'b'");
            give.execute(&mut *tx).await?;
            let number = sqlx::query_scalar::<_, i32>(
                "INSERT INTO moves SELECT coalesce(max(number), 0) + 1 FROM moves RETURNING CAST(number AS INTEGER)",
            );
            let number = number.fetch_one(&mut *tx).await?;
            reach("gave the money");
            if transfer.fails {
                return Err(FlowError::failed("the effect failed").into());
            }
            Ok(number.into())
        }
    };
}

bank_on!(sqlx::Sqlite, on_sqlite, transfer_on_sqlite, prepaid_on_sqlite, effect_on_sqlite);
bank_on!(sqlx::Postgres, on_postgres, transfer_on_postgres, prepaid_on_postgres, effect_on_postgres);
