//! A call that the client polls: `cargo run --example task`.
//!
//! The handler asks, works and ends, and knows nothing of tasks. One setting makes a task of each call
//! whose request declares the extension `io.modelcontextprotocol/tasks`. The client gets a handle at once, and sees the
//! question when it polls. A client that does not declare the extension is asked in rounds, as ever.

use rmcp::{ServerHandler, handler::server::router::tool::ToolRouter, tool, tool_handler, tool_router};
use rounds::{
    Ask, FlowError, Rounds,
    tasks::Tasks,
    test::{Client, accept},
};
use serde_json::{Value, json};

struct Press {
    tool_router: ToolRouter<Self>,
}

#[tool_router]
impl Press {
    #[tool(description = "Prints a book, after asking how many copies")]
    async fn print(&self, ask: Ask) -> Result<String, FlowError> {
        let copies: u32 = ask.form("How many copies?").key("copies").await?;
        for copy in 1..=copies {
            // The client reads this as the status of its task. Real work would take a while here.
            ask.progress(copy.into(), Some(copies.into()), Some(format!("copy {copy} is printed"))).await;
        }
        Ok(format!("Copies printed: {copies}."))
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Press {}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let press = Press { tool_router: Press::tool_router() };
    let server = Rounds::builder(press).tasks(Tasks::at_once()).build()?;

    let declared = json!({"elicitation": {"form": {}}, "extensions": {"io.modelcontextprotocol/tasks": {}}});
    let client = Client::modern(server.clone()).await.declaring(declared);
    let called = client.call("print", json!({})).await;
    let id = called.result()["taskId"].as_str().ok_or("not a task")?.to_owned();
    println!("a client of tasks: gets a handle, and polls it");

    let asking = until(&client, &id, "input_required").await;
    let questions = asking["inputRequests"].as_object().ok_or("no question")?;
    for (key, question) in questions {
        println!("  the task asks:   {}", question["params"]["message"]);
        let answers = json!({"taskId": id, "inputResponses": {key: accept(json!({"copies": 3}))}});
        client.request("tasks/update", answers).await.result();
    }
    let done = until(&client, &id, "completed").await;
    println!("  the task ends:   {}", done["result"]["content"][0]["text"]);

    println!("any other client: is asked in rounds");
    let played = Client::modern(server).await.play("print", json!({}), [accept(json!({"copies": 1}))]).await;
    println!("  the call asks:   {:?}", played.messages()[0]);
    println!("  the call ends:   {:?}", played.text());
    Ok(())
}

/// Polls until the task has this status. A client over a network waits `pollIntervalMs` between two polls.
async fn until(client: &Client, id: &str, status: &str) -> Value {
    loop {
        let task = client.request("tasks/get", json!({"taskId": id})).await.result().clone();
        if task["status"] == status {
            return task;
        }
        tokio::task::yield_now().await;
    }
}
