//! Requests as they are on the wire, and what comes back.

use std::{
    collections::VecDeque,
    convert::Infallible,
    fmt::Debug,
    io,
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, combinators::BoxBody};
use serde_json::Value;
use tower_service::Service;

use crate::desk::{Caller, meta};

tokio::task_local! {
    /// Set for the task that sends a request, and for no other.
    pub(crate) static BY_HAND: ();
}

#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) method: Method,
    pub(crate) uri: &'static str,
    pub(crate) headers: HeaderMap,
    pub(crate) frames: Vec<Piece>,
}

#[derive(Clone, Debug)]
pub(crate) enum Piece {
    Data(Bytes),
    Trailers,
    Failure,
}

impl Sent {
    /// A request without any fault.
    pub(crate) fn new(method: &str, mut params: Value) -> Self {
        params["_meta"] = serde_json::to_value(meta()).unwrap();
        let name = params
            .get("name")
            .or_else(|| params.get("uri"))
            .or_else(|| params.get("taskId"))
            .and_then(Value::as_str)
            .map(str::to_owned);
        let message = serde_json::json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let sent = Self::legacy(&message).with("mcp-protocol-version", "2026-07-28").with("mcp-method", method);
        match name {
            Some(name) => sent.with("mcp-name", &name),
            None => sent,
        }
    }

    /// A message with the headers that there were before 2026-07-28.
    pub(crate) fn legacy(message: &Value) -> Self {
        let frames = vec![Piece::Data(message.to_string().into())];
        let sent = Self { method: Method::POST, uri: "/mcp", headers: HeaderMap::new(), frames };
        sent.with("host", "localhost:8000")
            .with("content-type", "application/json")
            .with("accept", "application/json, text/event-stream")
    }

    /// With one more header.
    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
        self.headers.append(HeaderName::from_static(name), value);
        self
    }

    /// With something else at a place in its message.
    pub(crate) fn putting(mut self, place: &str, value: Value) -> Self {
        let mut message: Value = serde_json::from_slice(&self.body()).unwrap();
        let (parent, key) = place.rsplit_once('/').unwrap();
        message.pointer_mut(parent).unwrap()[key.replace("~1", "/")] = value;
        self.frames = vec![Piece::Data(message.to_string().into())];
        self
    }

    pub(crate) fn body(&self) -> Vec<u8> {
        let data = |piece: &Piece| if let Piece::Data(data) = piece { data.to_vec() } else { Vec::new() };
        self.frames.iter().flat_map(data).collect()
    }

    pub(crate) fn request(&self) -> Request<Pieces> {
        let mut request = Request::new(Pieces(self.frames.clone().into()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.parse().unwrap();
        *request.headers_mut() = self.headers.clone();
        request.extensions_mut().insert(Caller("alice"));
        request
    }

    /// Sends it, and waits for all of the answer. A stream without an end is left when nothing has come for a while, on a clock
    /// that is to stand still.
    pub(crate) async fn to<S>(&self, service: &mut S) -> Answer
    where
        S: Service<Request<Pieces>, Response = Response<BoxBody<Bytes, Infallible>>, Error: Debug>,
    {
        let (head, body) = BY_HAND.scope((), service.call(self.request())).await.unwrap().into_parts();
        let mut headers: Vec<_> = head.headers.into_iter().map(|(name, value)| (name.unwrap(), value)).collect();
        for (name, value) in &mut headers {
            if name == "mcp-session-id" {
                *value = HeaderValue::from_static("some");
            }
        }
        headers.sort_by(|one, other| one.0.as_str().cmp(other.0.as_str()));
        let mut body = pin!(body);
        let mut said = Vec::new();
        while let Ok(Some(frame)) = tokio::time::timeout(Duration::from_secs(1), body.frame()).await {
            said.extend(frame.unwrap().into_data().unwrap());
        }
        Answer { status: head.status, headers, body: masked(&String::from_utf8(said).unwrap()) }
    }
}

/// Sealed states are never the same twice, and the members of a question come in another order from each lane.
fn masked(body: &str) -> String {
    body.split_inclusive('\n').map(masked_line).collect()
}

fn masked_line(line: &str) -> String {
    let Some((before, state)) = line.split_once("\"requestState\":\"r1.") else { return line.to_owned() };
    let after = state.split_once('"').map_or("", |(_, after)| after);
    let masked = format!("{before}\"requestState\":\"…\"{after}");
    let (event, message) = masked.split_at(masked.find('{').unwrap());
    let end = if event.is_empty() { "" } else { "\n" };
    format!("{event}{}{end}", serde_json::from_str::<Value>(message).unwrap())
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) body: String,
}

impl Answer {
    /// The message in it, plain or as the one event of a stream.
    pub(crate) fn message(&self) -> Value {
        let message = self.body.strip_prefix("data: ").unwrap_or(&self.body);
        serde_json::from_str(message).unwrap_or_else(|_| panic!("no message: {self:?}"))
    }
}

pub(crate) struct Pieces(VecDeque<Piece>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        Poll::Ready(self.0.pop_front().map(|piece| match piece {
            Piece::Data(data) => Ok(Frame::data(data)),
            Piece::Trailers => Ok(Frame::trailers(HeaderMap::new())),
            Piece::Failure => Err(io::Error::other("gone")),
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }
}
