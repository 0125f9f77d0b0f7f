//! One client over different transports: memory, the pipes of a process, or HTTP. Its messages are the same.

use reqwest::{RequestBuilder, Response, header::CONTENT_TYPE};
use rmcp::ServiceExt;
use rounds::{Era, tasks::Tasks};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, Lines, duplex, split},
    process::Child,
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
};

use crate::process::{Server, in_time, rounds};

/// A connection to a new gallery, and a client of either era.
pub(crate) struct Wire {
    way: Way,
    pub(crate) era: Era,
    /// Whether the client can poll tasks.
    pub(crate) tasks: bool,
    next_id: u64,
}

enum Way {
    Lines {
        writer: Box<dyn AsyncWrite + Unpin>,
        reader: Lines<BufReader<Box<dyn AsyncRead + Unpin>>>,
        /// The process at the other end, if there is one. It ends when this is dropped.
        _child: Option<Child>,
    },
    Http {
        server: Server,
        session: Option<String>,
        inbox: (UnboundedSender<Value>, UnboundedReceiver<Value>),
    },
}

impl Wire {
    pub(crate) async fn memory(era: Era) -> Self {
        let (ours, theirs) = duplex(1 << 16);
        let server = gallery::rounds().tasks(Tasks::at_once()).build().unwrap();
        tokio::spawn(async move { server.serve(theirs).await.unwrap().waiting().await });
        let (reader, writer) = split(ours);
        Self::lines(era, Box::new(reader), Box::new(writer), None).await
    }

    pub(crate) async fn stdio(era: Era) -> Self {
        let mut child =
            rounds(&["serve", "--stdio", "--tasks-after", "0s"]).stdin(std::process::Stdio::piped()).spawn().unwrap();
        let (reader, writer) = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
        Self::lines(era, Box::new(reader), Box::new(writer), Some(child)).await
    }

    pub(crate) async fn http(era: Era) -> Self {
        let server = Server::start(&["--tasks-after", "0s"]).await;
        Self::begin(era, Way::Http { server, session: None, inbox: unbounded_channel() }).await
    }

    async fn lines(
        era: Era,
        reader: Box<dyn AsyncRead + Unpin>,
        writer: Box<dyn AsyncWrite + Unpin>,
        child: Option<Child>,
    ) -> Self {
        Self::begin(era, Way::Lines { writer, reader: BufReader::new(reader).lines(), _child: child }).await
    }

    async fn begin(era: Era, way: Way) -> Self {
        let mut wire = Self { way, era, tasks: false, next_id: 0 };
        if era == Era::Legacy {
            let params = json!({
                "protocolVersion": "2025-11-25",
                "capabilities": {"elicitation": {"form": {}}},
                "clientInfo": {"name": "rounds-cli-test", "version": "1"},
            });
            wire.request("initialize", params).await;
            assert_eq!(wire.receive().await["result"]["protocolVersion"], "2025-11-25");
            wire.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        }
        wire
    }

    /// Sends a request in the form of the client's era.
    pub(crate) async fn request(&mut self, method: &str, mut params: Value) {
        if self.era == Era::Modern {
            let mut capabilities = json!({"elicitation": {"form": {}}});
            if self.tasks {
                capabilities["extensions"] = json!({"io.modelcontextprotocol/tasks": {}});
            }
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": capabilities,
                "io.modelcontextprotocol/clientInfo": {"name": "rounds-cli-test", "version": "1"},
            });
        }
        self.next_id += 1;
        self.send(json!({"jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params})).await;
    }

    pub(crate) async fn send(&mut self, message: Value) {
        match &mut self.way {
            Way::Lines { writer, .. } => writer.write_all(format!("{message}\n").as_bytes()).await.unwrap(),
            Way::Http { server, session, inbox: (inbox, _) } => {
                let mut request = rounds_testkit::http_client().post(&server.url).json(&message);
                request = request.header("Accept", "application/json, text/event-stream");
                request = match session {
                    Some(session) => request.header("Mcp-Session-Id", session.as_str()),
                    None => request,
                };
                let response = in_time("the request", headers(request, self.era, &message).send()).await.unwrap();
                if let Some(id) = response.headers().get("mcp-session-id") {
                    *session = Some(id.to_str().unwrap().to_owned());
                }
                tokio::spawn(forward(response, inbox.clone()));
            }
        }
    }

    /// The next message of any kind.
    pub(crate) async fn receive(&mut self) -> Value {
        match &mut self.way {
            Way::Lines { reader, .. } => {
                let line = in_time("a message", reader.next_line()).await.unwrap().expect("a message");
                serde_json::from_str(&line).unwrap()
            }
            Way::Http { inbox: (_, inbox), .. } => in_time("a message", inbox.recv()).await.unwrap(),
        }
    }
}

fn headers(request: RequestBuilder, era: Era, message: &Value) -> RequestBuilder {
    if era == Era::Legacy {
        return request.header("MCP-Protocol-Version", "2025-11-25");
    }
    let request = request.header("MCP-Protocol-Version", "2026-07-28");
    let request = request.header("Mcp-Method", message["method"].as_str().unwrap());
    let name = ["name", "taskId"].into_iter().find_map(|name| message["params"][name].as_str());
    request.header("Mcp-Name", name.unwrap())
}

/// Reads the messages of a response, one or a stream of them, until it ends.
async fn forward(mut response: Response, inbox: UnboundedSender<Value>) {
    assert!(response.status().is_success(), "{response:?}");
    let streams = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "text/event-stream");
    let mut text = Vec::new();
    while let Some(chunk) = response.chunk().await.unwrap() {
        text.extend_from_slice(&chunk);
        while let Some(end) = text.iter().position(|byte| streams && *byte == b'\n') {
            let line: Vec<u8> = text.drain(..=end).collect();
            // Other lines configure reconnection.
            if let Some(Ok(message)) = line.strip_prefix(b"data:").map(serde_json::from_slice) {
                let _ = inbox.send(message);
            }
        }
    }
    if let Ok(message) = serde_json::from_slice(&text) {
        let _ = inbox.send(message);
    }
}
