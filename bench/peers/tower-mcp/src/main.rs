//! The benchmark's weather tool, served by tower-mcp.
//!
//! The codec signs its input, and binds it to a subject only if there is one; here the client does not sign in. The
//! handler has to check which call a state belongs to, so the place travels in the state and is read from there.

use std::{error::Error, net::Ipv4Addr, time::Duration};

use axum::serve::ListenerExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tower_mcp::{
    CallToolResult, HttpTransport, InputRequest, InputRequests, InputRequiredResult, InputResponse, McpRouter,
    RequestContext, RequestOutcome, RequestStateCodec, ToolBuilder,
    protocol::{ElicitAction, ElicitFieldValue, ElicitFormParams, ElicitFormSchema, ElicitRequestParams},
};

#[derive(Serialize, Deserialize, JsonSchema)]
struct Place {
    location: String,
}

async fn weather(ctx: RequestContext, place: Place) -> tower_mcp::Result<RequestOutcome<CallToolResult>> {
    let codec = ctx.request_state_codec().ok_or_else(|| tower_mcp::Error::internal("no codec"))?;
    let Some(state) = ctx.request_state() else {
        let state = codec.encode(&place).map_err(|error| tower_mcp::Error::internal(error.to_string()))?;
        let asked = InputRequiredResult::with_requests(question()).with_request_state(state);
        return Ok(RequestOutcome::input_required(asked));
    };
    let place: Place = codec.decode(state).map_err(|error| tower_mcp::Error::invalid_params(error.to_string()))?;
    let Some(InputResponse::Elicit(answer)) = ctx.input_responses().and_then(|answers| answers.get("units")) else {
        return Err(tower_mcp::Error::invalid_params("no answer to units"));
    };
    if answer.action != ElicitAction::Accept {
        return Ok(RequestOutcome::Complete(CallToolResult::text("Cancelled.")));
    }
    let units = answer.content.as_ref().and_then(|content| content.get("units"));
    let metric = matches!(units, Some(ElicitFieldValue::String(units)) if units == "metric");
    let temperature = if metric { "22°C" } else { "72°F" };
    let report = format!("Weather in {}: {temperature}, partly cloudy.", place.location);
    Ok(RequestOutcome::Complete(CallToolResult::text(report)))
}

fn question() -> InputRequests {
    let options = vec!["metric".to_owned(), "imperial".to_owned()];
    let form = ElicitFormParams {
        mode: None,
        message: "Which units?".to_owned(),
        requested_schema: ElicitFormSchema::new().enum_field("units", None, options, true),
        meta: None,
    };
    InputRequests::from([("units".to_owned(), InputRequest::Elicit(ElicitRequestParams::Form(form)))])
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut key = [0; 32];
    getrandom::fill(&mut key)?;
    let tool = ToolBuilder::new("weather").description("Weather for a place").mrtr_handler(weather).build();
    let router = McpRouter::new()
        .server_info("tower-mcp", "0.25.0")
        .with_extension(RequestStateCodec::new(key, Duration::from_secs(600))?)
        .tool(tool);

    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    println!("listening on http://{}/mcp", listener.local_addr()?);
    // Its own `serve` uses axum as well, without TCP_NODELAY.
    let listener = listener.tap_io(|stream| _ = stream.set_nodelay(true));
    axum::serve(listener, HttpTransport::new(router).into_router_at("/mcp")).await?;
    Ok(())
}
