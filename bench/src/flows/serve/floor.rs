//! The floor: what any server that answers JSON with JSON has to do, and nothing else.

use axum::{Router, body::Bytes, http::header::CONTENT_TYPE, response::IntoResponse, routing::post};
use serde_json::{Value, json};

pub(super) fn route() -> Router {
    Router::new().route(super::PATH, post(answer))
}

async fn answer(body: Bytes) -> impl IntoResponse {
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let params = &request["params"];
    if let Some(steps) = params["arguments"]["steps"].as_u64() {
        return ([(CONTENT_TYPE, "text/event-stream")], stream(steps, &request));
    }
    let result = match params.get("inputResponses") {
        None => json!({
            "resultType": "input_required",
            "inputRequests": {"units": {"method": "elicitation/create", "params": {
                "message": "Which units?",
                "requestedSchema": {
                    "type": "object",
                    "properties": {"units": {"type": "string", "enum": ["metric", "imperial"]}},
                    "required": ["units"],
                },
            }}},
            "requestState": params["arguments"]["location"],
        }),
        Some(_) => {
            let place = params["requestState"].as_str().unwrap_or_default();
            json!({
                "resultType": "complete",
                "content": [{"type": "text", "text": format!("Weather in {place}: 22°C, partly cloudy.")}],
                "isError": false,
            })
        }
    };
    let response = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
    ([(CONTENT_TYPE, "application/json")], response.to_string())
}

/// As many notifications, and the result after them.
fn stream(steps: u64, request: &Value) -> String {
    let token = &request["params"]["_meta"]["progressToken"];
    let mut stream = String::new();
    let mut event = |message: Value| stream.push_str(&format!("data: {message}\n\n"));
    for step in 0..steps {
        let message = format!("step {step} of {steps}");
        let params = json!({"progressToken": token, "progress": step, "total": steps, "message": message});
        event(json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}));
    }
    let result = json!({"resultType": "complete", "content": [{"type": "text", "text": "done"}], "isError": false});
    event(json!({"jsonrpc": "2.0", "id": request["id"], "result": result}));
    stream
}
