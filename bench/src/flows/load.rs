//! The client of the comparison: persistent connections, each with one weather call after the other.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    net::SocketAddr,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{
    Request, StatusCode,
    client::conn::http1::{SendRequest, handshake},
};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use tokio::{net::TcpStream, task::JoinSet};

use crate::alone::Failure;

/// The result of driving a server for a while.
pub(crate) struct Load {
    pub(crate) took: Duration,
    /// The duration of each flow, shortest first.
    pub(crate) flows: Vec<Duration>,
}

impl Load {
    /// The time within which this share of the flows ended.
    pub(crate) fn quantile(&self, share: f64) -> Duration {
        let last = self.flows.len().saturating_sub(1);
        self.flows.get((last as f64 * share).round() as usize).copied().unwrap_or_default()
    }
}

/// What is called, and what the client wants to be told meanwhile.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Called {
    pub(crate) tool: &'static str,
    pub(crate) wants: Wants,
}

/// What a request asks for in its metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wants {
    Nothing,
    /// It has a progress token.
    Progress,
    /// It has a log level.
    Logs,
    /// It has a progress token, and a tool is called that sends so many notifications.
    Steps(u32),
}

impl From<&'static str> for Called {
    fn from(tool: &'static str) -> Self {
        Self { tool, wants: Wants::Nothing }
    }
}

/// Connections to one server, kept from one turn to the next.
pub(crate) struct Connections {
    address: SocketAddr,
    free: Vec<SendRequest<Full<Bytes>>>,
}

impl Connections {
    pub(crate) fn to(address: SocketAddr) -> Self {
        Self { address, free: Vec::new() }
    }

    /// Calls this tool on as many connections at once, each as often as fits into the time. Flows that were begun are
    /// ended.
    pub(crate) async fn drive(
        &mut self,
        called: impl Into<Called>,
        count: usize,
        time: Duration,
    ) -> Result<Load, Failure> {
        let called = called.into();
        // Some servers close what was idle while others had their turns.
        self.free.retain(|connection| !connection.is_closed());
        while self.free.len() < count {
            self.free.push(connect(self.address).await?);
        }
        let host = self.address;
        let start = Instant::now();
        let mut drivers = JoinSet::new();
        for mut connection in self.free.split_off(self.free.len() - count) {
            drivers.spawn(async move {
                let mut flows = Vec::new();
                while start.elapsed() < time {
                    let begun = Instant::now();
                    match flow(&mut connection, host, called).await {
                        Ok(()) => flows.push(begun.elapsed()),
                        // The server may also close it at the moment it is used again.
                        Err(_) if flows.is_empty() && is_closed(&mut connection).await => {
                            connection = connect(host).await?;
                            let begun = Instant::now();
                            flow(&mut connection, host, called).await?;
                            flows.push(begun.elapsed());
                        }
                        Err(error) => return Err(format!("{called:?} at {host}: {error}").into()),
                    }
                }
                Ok::<_, Failure>((connection, flows))
            });
        }
        let mut flows = Vec::new();
        while let Some(driver) = drivers.join_next().await {
            let (connection, times) = driver??;
            self.free.push(connection);
            flows.extend(times);
        }
        flows.sort_unstable();
        Ok(Load { took: start.elapsed(), flows })
    }
}

async fn is_closed(connection: &mut SendRequest<Full<Bytes>>) -> bool {
    connection.ready().await.is_err()
}

async fn connect(address: SocketAddr) -> Result<SendRequest<Full<Bytes>>, Failure> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

/// A whole call: the question, and the answer to it; or what is told, and the result.
async fn flow(connection: &mut SendRequest<Full<Bytes>>, host: SocketAddr, called: Called) -> Result<(), Failure> {
    if let Wants::Steps(steps) = called.wants {
        return check_steps(&leg(connection, host, called, json!({"arguments": {"steps": steps}})).await?, steps);
    }
    let answers = answers(&leg(connection, host, called, json!({})).await?)?;
    check(&leg(connection, host, called, answers).await?)
}

async fn leg(
    connection: &mut SendRequest<Full<Bytes>>,
    host: SocketAddr,
    called: Called,
    more: Value,
) -> Result<Bytes, Failure> {
    let request = wanting(&host.to_string(), called.tool, called.wants, more)?;
    connection.ready().await?;
    let response = connection.send_request(request).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    match status {
        StatusCode::OK => Ok(body),
        _ => Err(format!("{status}: {}", String::from_utf8_lossy(&body)).into()),
    }
}

/// A call of the weather tool, with further parameters.
pub(crate) fn request(host: &str, tool: &str, more: Value) -> Result<Request<Full<Bytes>>, Failure> {
    wanting(host, tool, Wants::Nothing, more)
}

fn wanting(host: &str, tool: &str, wants: Wants, more: Value) -> Result<Request<Full<Bytes>>, Failure> {
    let mut params = json!({
        "name": tool,
        "arguments": {"location": "Tokyo"},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
        },
    });
    match wants {
        Wants::Nothing => {}
        Wants::Progress | Wants::Steps(_) => params["_meta"]["progressToken"] = json!(1),
        Wants::Logs => params["_meta"]["io.modelcontextprotocol/logLevel"] = json!("info"),
    }
    if let (Value::Object(params), Value::Object(more)) = (&mut params, more) {
        params.extend(more);
    }
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
    Ok(Request::post("/mcp")
        .header("host", host)
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", tool)
        .body(Full::from(body))?)
}

/// The parameters of the second leg, given the response to the first.
pub(crate) fn answers(asked: &[u8]) -> Result<Value, Failure> {
    let asked: Asked<'_> = read(asked)?;
    let key = asked.result.input_requests.keys().next().ok_or("no question")?;
    let answers = json!({ (*key): {"action": "accept", "content": {"units": "metric"}} });
    Ok(json!({"inputResponses": answers, "requestState": asked.result.request_state}))
}

/// Checks that a call has ended with the weather.
fn check(told: &[u8]) -> Result<(), Failure> {
    let told: Told<'_> = read(told)?;
    match &told.result.content[..] {
        [Text { text }] if text == "Weather in Tokyo: 22°C, partly cloudy." => Ok(()),
        _ => Err("the result is not the weather".into()),
    }
}

/// Whether a stream has this many notifications before the result.
fn check_steps(told: &[u8], steps: u32) -> Result<(), Failure> {
    let result: Told<'_> = read(told)?;
    let told = std::str::from_utf8(told)?.matches("notifications/progress").count();
    match &result.result.content[..] {
        [Text { text }] if text == "done" && told == steps as usize => Ok(()),
        _ => Err(format!("{told} notifications and another result").into()),
    }
}

/// The message of a response, which is its body, or the last event of a stream.
fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Failure> {
    let text = std::str::from_utf8(body)?;
    let message = text.lines().rev().find_map(|line| line.strip_prefix("data:")).unwrap_or(text);
    serde_json::from_str(message).map_err(|error| format!("{error} in {text}").into())
}

#[derive(Deserialize)]
struct Asked<'a> {
    #[serde(borrow)]
    result: Questions<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Questions<'a> {
    #[serde(borrow)]
    input_requests: BTreeMap<&'a str, &'a RawValue>,
    #[serde(borrow)]
    request_state: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Told<'a> {
    #[serde(borrow)]
    result: Content<'a>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow)]
    content: Vec<Text<'a>>,
}

#[derive(Deserialize)]
struct Text<'a> {
    #[serde(borrow)]
    text: Cow<'a, str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_from_a_body_and_from_a_stream() {
        let message = r#"{"result": {"content": [{"type": "text", "text": "fair"}]}}"#;
        let stream = format!("id: 0\nretry: 3000\ndata:\n\nid: 1\ndata: {message}\n\n");
        for body in [message, &stream] {
            let told: Told<'_> = read(body.as_bytes()).expect("a message");
            assert_eq!(told.result.content[0].text, "fair");
        }
    }

    #[test]
    fn one_slow_flow_in_a_hundred_is_the_last_percent() {
        let mut flows = vec![Duration::from_micros(100); 200];
        flows[199] = Duration::from_micros(900);
        let load = Load { took: Duration::from_millis(20), flows };
        assert_eq!(load.quantile(0.5), Duration::from_micros(100));
        assert_eq!(load.quantile(0.99), Duration::from_micros(100));
        assert_eq!(load.quantile(1.0), Duration::from_micros(900));
    }
}
