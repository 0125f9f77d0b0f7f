//! What is done in each of the suite's scenarios. Most have tools that only want to be called.

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
        // Its tool is there to be listed, and cannot be called.
        "json-schema-ref-no-deref" => client.peer().list_all_tools().await.map(drop).map_err(Into::into),
        _ => tools(client).await,
    }
}

/// Calls whatever there is, with whatever fits.
async fn tools(client: &Client) -> Result<(), BoxError> {
    for tool in client.peer().list_all_tools().await? {
        call(client, &tool.name, arguments(&tool)).await?;
    }
    Ok(())
}

/// Two calls wait for an answer while others are made. Nothing of theirs may get into the others, and each has to get back
/// its own state, or none.
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
        other => return Err(format!("it asks once more: {other:?}").into()),
    }
    drive(client, without, &Anybody, DriveLimits::default()).await?;
    Ok(())
}

async fn asked(client: &Client, tool: &str) -> Result<Pending, BoxError> {
    match Call::tool(tool, JsonObject::new()).send(client).await? {
        Sent::Asks(pending) => Ok(pending),
        other => Err(format!("{tool} does not ask: {other:?}").into()),
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

/// The calls that the scenario wants. What becomes headers is in the tools' schemas, which are therefore listed first.
async fn headers(client: &Client, context: &Value) -> Result<(), BoxError> {
    client.peer().list_all_tools().await?;
    for wanted in context["toolCalls"].as_array().ok_or("there is nothing to call")? {
        let name = wanted["name"].as_str().ok_or("a call without a name")?;
        call(client, name, wanted["arguments"].as_object().cloned().unwrap_or_default()).await?;
    }
    Ok(())
}

/// Gives a tool's schema back as it came.
async fn schemas(client: &Client) -> Result<(), BoxError> {
    let tools = client.peer().list_all_tools().await?;
    let tool = tools.iter().find(|tool| tool.name == "json_schema_2020_12_tool").ok_or("the tool is not there")?;
    let schema = JsonObject::clone(&tool.input_schema);
    call(client, "json_schema_echo", object!({"schema": schema})).await.map(drop)
}

async fn call(client: &Client, tool: &str, arguments: JsonObject) -> Result<Done, BoxError> {
    run(client, Call::tool(tool, arguments)).await
}

async fn run(client: &Client, call: Call) -> Result<Done, BoxError> {
    match drive(client, call, &Anybody, DriveLimits::default()).await? {
        DriveOutcome::Done(done) => Ok(done),
        other => Err(format!("it has not ended: {other:?}").into()),
    }
}

/// Something for everything that a tool requires.
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
