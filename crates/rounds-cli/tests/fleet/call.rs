//! A call of a client of 2026-07-28, leg by leg.

use serde_json::{Value, json};

pub(crate) const METRIC: &str = "Weather in Tokyo: 22°C, partly cloudy.";

/// One leg.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    method: &'static str,
    params: Value,
    /// Whether the client can poll tasks.
    tasks: bool,
}

impl Call {
    pub(crate) fn new(method: &'static str, params: Value) -> Self {
        Self { method, params, tasks: false }
    }

    pub(crate) fn tool(name: &str, arguments: &Value) -> Self {
        Self::new("tools/call", json!({"name": name, "arguments": arguments}))
    }

    pub(crate) fn weather(tool: &str) -> Self {
        Self::tool(tool, &json!({"location": "Tokyo"}))
    }

    pub(crate) fn booking(number: usize) -> Self {
        Self::tool("book_flight", &json!({"from": "LHR", "to": "FCO", "date": format!("day {number}")}))
    }

    pub(crate) fn prompt(name: &str) -> Self {
        Self::new("prompts/get", json!({"name": name}))
    }

    pub(crate) fn resource(uri: &str) -> Self {
        Self::new("resources/read", json!({"uri": uri}))
    }

    /// The same from a client that can poll tasks.
    pub(crate) fn with_tasks(mut self) -> Self {
        self.tasks = true;
        self
    }

    /// A request about a task.
    pub(crate) fn of_task(method: &'static str, id: &str) -> Self {
        Self::new(method, json!({"taskId": id})).with_tasks()
    }

    /// The same with answers to the questions of a task.
    pub(crate) fn answering(mut self, answers: Value) -> Self {
        self.params["inputResponses"] = answers;
        self
    }

    /// The leg that answers the questions of this one.
    #[track_caller]
    pub(crate) fn answered(&self, asked: &Value, answers: Value) -> Self {
        let state = asked["result"]["requestState"].as_str().unwrap_or_else(|| panic!("{asked}"));
        let mut next = self.clone();
        next.params["requestState"] = json!(state);
        next.params["inputResponses"] = answers;
        next
    }

    /// The leg that accepts the only question of this one.
    #[track_caller]
    pub(crate) fn accepted(&self, asked: &Value, key: &str, value: Value) -> Self {
        self.answered(asked, json!({key: {"action": "accept", "content": {key: value}}}))
    }

    #[track_caller]
    pub(crate) fn metric(&self, asked: &Value) -> Self {
        self.accepted(asked, "units", json!("metric"))
    }

    pub(crate) async fn send(&self, http: &reqwest::Client, url: &str) -> Result<Value, reqwest::Error> {
        let mut request = http.post(url);
        for (name, value) in self.headers() {
            request = request.header(name, value);
        }
        request.json(&self.message()).send().await?.error_for_status()?.json().await
    }

    /// The request as it is on the wire.
    pub(crate) fn to_http(&self, host: &str) -> String {
        let body = self.message().to_string();
        let headers: String = self.headers().iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        format!(
            "POST /mcp HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n{headers}Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
    }

    fn headers(&self) -> Vec<(&'static str, &str)> {
        let name = ["name", "uri", "taskId"].into_iter().find_map(|name| self.params[name].as_str());
        let fixed = [
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", self.method),
            ("Accept", "application/json, text/event-stream"),
        ];
        fixed.into_iter().chain(name.map(|name| ("Mcp-Name", name))).collect()
    }

    fn message(&self) -> Value {
        let mut params = self.params.clone();
        let mut capabilities = json!({"elicitation": {"form": {}}});
        if self.tasks {
            capabilities["extensions"] = json!({"io.modelcontextprotocol/tasks": {}});
        }
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": capabilities,
            "io.modelcontextprotocol/clientInfo": {"name": "fleet", "version": "1"},
        });
        json!({"jsonrpc": "2.0", "id": 1, "method": self.method, "params": params})
    }
}

/// The text of a response's result.
#[track_caller]
pub(crate) fn text(response: &Value) -> &str {
    let result = &response["result"];
    let texts =
        [&result["content"][0]["text"], &result["messages"][0]["content"]["text"], &result["contents"][0]["text"]];
    texts.into_iter().find_map(Value::as_str).unwrap_or_else(|| panic!("{response}"))
}

pub(crate) fn asks_for_a_retry(response: &Value) -> bool {
    response["error"]["data"]["reason"] == "retry"
}

/// Whether this is the frozen error, which answers every rejected state.
pub(crate) fn is_frozen(response: &Value) -> bool {
    response["error"]["code"] == -32602 && response["error"]["data"] == json!({"reason": "invalid_request_state"})
}
