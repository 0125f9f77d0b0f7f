//! The steps of each scenario of the suite. Most have tools that only have to be called.

use rmcp::{
    RoleClient,
    model::{ClientConfig, JsonObject, Tool},
    object,
    service::RunningService,
};
use rounds::client::{BoxError, Call, Done, DriveLimits, DriveOutcome, Host, Pending, Sent, drive};
use serde_json::{Value, json};

use crate::anybody::{Anybody, fill_in};

pub(crate) type Client = RunningService<RoleClient, Host<Anybody, ClientConfig>>;

pub(crate) async fn play(scenario: &str, context: &Value, client: &Client) -> Result<(), BoxError> {
    match scenario {
        "sep-2322-client-request-state" => rounds(client).await,
        "http-standard-headers" => everything(client).await,
        "http-custom-headers" => headers(client, context).await,
        "json-schema-2020-12-preservation" => schemas(client).await,
        // Its tool only has to be listed, and cannot be called.
        "json-schema-ref-no-deref" => client.peer().list_all_tools().await.map(drop).map_err(Into::into),
        _ => tools(client).await,
    }
}

/// Calls every tool, with arguments that fit.
async fn tools(client: &Client) -> Result<(), BoxError> {
    for tool in client.peer().list_all_tools().await? {
        call(client, &tool.name, arguments(&tool)).await?;
    }
    Ok(())
}

/// Two calls wait for an answer while others are made. The others must not carry any of their data, and each must get
/// back its own state, or none.
async fn rounds(client: &Client) -> Result<(), BoxError> {
    client.peer().list_all_tools().await?;
    let with = asked(client, "test_mrtr_echo_state").await?;
    let without = asked(client, "test_mrtr_no_state").await?;
    for other in ["test_mrtr_unrelated", "test_mrtr_no_result_type"] {
        call(client, other, JsonObject::new()).await?;
    }
    // One by hand, as another process would do it the next day, and one by the driver.
    let mut with = Pending::from_json(&with.to_json())?;
    for key in with.open().into_iter().map(str::to_owned).collect::<Vec<_>>() {
        let form = with.question(&key).map(fill_in).unwrap_or_default();
        with.accept(&key, form)?;
    }
    match with.send(client).await? {
        Sent::Done(_) => {}
        other => return Err(format!("expected the result, got {other:?}").into()),
    }
    drive(client, without, &Anybody, DriveLimits::default()).await?;
    Ok(())
}

async fn asked(client: &Client, tool: &str) -> Result<Pending, BoxError> {
    match Call::tool(tool, JsonObject::new()).send(client).await? {
        Sent::Asks(pending) => Ok(pending),
        other => Err(format!("expected a question of {tool}, got {other:?}").into()),
    }
}

/// A request of every kind.
async fn everything(client: &Client) -> Result<(), BoxError> {
    tools(client).await?;
    for resource in client.peer().list_all_resources().await? {
        run(client, Call::resource(resource.uri.clone())).await?;
    }
    for prompt in client.peer().list_all_prompts().await? {
        run(client, Call::prompt(prompt.name, JsonObject::new())).await?;
    }
    Ok(())
}

/// The calls of the scenario. The tools' schemas declare which arguments become headers, so the tools are listed first.
async fn headers(client: &Client, context: &Value) -> Result<(), BoxError> {
    client.peer().list_all_tools().await?;
    for wanted in context["toolCalls"].as_array().ok_or("the context has no toolCalls")? {
        let name = wanted["name"].as_str().ok_or("a call without a name")?;
        call(client, name, wanted["arguments"].as_object().cloned().unwrap_or_default()).await?;
    }
    Ok(())
}

/// Sends a tool's schema back unchanged.
async fn schemas(client: &Client) -> Result<(), BoxError> {
    let tools = client.peer().list_all_tools().await?;
    let tool = tools
        .iter()
        .find(|tool| tool.name == "json_schema_2020_12_tool")
        .ok_or("the server does not list json_schema_2020_12_tool")?;
    let schema = JsonObject::clone(&tool.input_schema);
    call(client, "json_schema_echo", object!({"schema": schema})).await.map(drop)
}

async fn call(client: &Client, tool: &str, arguments: JsonObject) -> Result<Done, BoxError> {
    run(client, Call::tool(tool, arguments)).await
}

async fn run(client: &Client, call: Call) -> Result<Done, BoxError> {
    match drive(client, call, &Anybody, DriveLimits::default()).await? {
        DriveOutcome::Done(done) => Ok(done),
        other => Err(format!("expected a result, got {other:?}").into()),
    }
}

/// A value for every argument that a tool requires.
fn arguments(tool: &Tool) -> JsonObject {
    let schema = Value::Object(JsonObject::clone(&tool.input_schema));
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let value = |name: &str| match schema["properties"][name]["type"].as_str() {
        Some("number" | "integer") => json!(2),
        Some("boolean") => json!(true),
        Some("object") => json!({}),
        Some("array") => json!([]),
        _ => json!("text"),
    };
    required.map(|name| (name.to_owned(), value(name))).collect()
}
