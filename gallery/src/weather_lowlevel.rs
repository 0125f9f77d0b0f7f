//! By hand: no macro and no extractor. The handler returns rmcp's `InputRequiredResult`, with a state in plain text.
//!
//! The server seals that text before it leaves, and gives exactly that text back with the answer, so the handler knows
//! at which question it is. The handler runs again for every round, and its code shows it. That the server pushes the
//! question to legacy clients is configured in `lib.rs`.

use rmcp::{
    ErrorData,
    handler::server::{
        common::schema_for_type,
        router::tool::{ToolRoute, ToolRouter},
        tool::{ToolCallContext, parse_json_object},
    },
    model::{CallToolResponse, CallToolResult, ContentBlock, InputRequiredResult, Tool},
};
use serde_json::{Value, json};

use crate::{Gallery, Place, Units, report};

const STATE: &str = "awaiting-units";

impl Gallery {
    pub(crate) fn weather_lowlevel_tools() -> ToolRouter<Self> {
        let description = "Weather for a place, asking for units (by hand)";
        let tool = Tool::new("weather_lowlevel", description, schema_for_type::<Place>());
        let route = ToolRoute::new_dyn(tool, |call: ToolCallContext<'_, Self>| {
            Box::pin(async move { call.service.weather_lowlevel(call) })
        });
        ToolRouter::new().with_route(route)
    }

    fn weather_lowlevel(&self, call: ToolCallContext<'_, Self>) -> Result<CallToolResponse, ErrorData> {
        let place: Place = parse_json_object(call.arguments.unwrap_or_default())?;
        // Without a state nothing was asked yet, whatever the client sent along.
        let Some(state) = call.request_state else { return ask("Which units?") };
        assert_eq!(state, STATE, "a state comes back as it was written");
        let answers = call.input_responses.unwrap_or_default();
        let Some(answer) = answers.get("units") else { return ask("Which units?") };
        let outcome = match answer["action"].as_str() {
            Some("decline") => "Cancelled (decline).".to_owned(),
            Some("cancel") => "Cancelled (cancel).".to_owned(),
            _ => match read(&answer["content"]["units"]) {
                Ok(units) => report(&place, units),
                Err(problem) => return ask(&format!("Which units? (`units` {problem})")),
            },
        };
        self.audit.record("weather_lowlevel");
        Ok(CallToolResult::success(vec![ContentBlock::text(outcome)]).into())
    }
}

/// Ends the leg with the question.
fn ask(message: &str) -> Result<CallToolResponse, ErrorData> {
    let units = json!({"type": "string", "enum": ["metric", "imperial"], "title": "Units"});
    let form = json!({"type": "object", "properties": {"units": units}, "required": ["units"]});
    let asked = json!({
        "resultType": "input_required",
        "requestState": STATE,
        "inputRequests": {
            "units": {"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": form}},
        },
    });
    let asked: InputRequiredResult =
        serde_json::from_value(asked).map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    Ok(asked.into())
}

/// The units in an answer, or what is wrong with them.
fn read(units: &Value) -> Result<Units, &'static str> {
    match units {
        Value::String(units) if units == "metric" => Ok(Units::Metric),
        Value::String(units) if units == "imperial" => Ok(Units::Imperial),
        Value::String(_) => Err("must be one of metric, imperial"),
        Value::Null => Err("is missing"),
        _ => Err("must be of type string"),
    }
}
