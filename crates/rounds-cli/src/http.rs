//! HTTP for the command line: rmcp's transport over reqwest, with a limit on the size of a server's message.
//!
//! rmcp's own client reads the body of a response without a limit. This client treats statuses and headers in the same
//! way, so that the transport can switch to another era, open a new session, or report an error.

use std::{borrow::Cow, collections::HashMap, io, pin::Pin, sync::Arc};

use futures_core::Stream;
use http::{
    HeaderName, HeaderValue, StatusCode,
    header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE},
};
use http_body_util::BodyExt;
use reqwest::{Client, RequestBuilder, Response, redirect::Policy};
use rmcp::{
    ErrorData,
    model::{ClientJsonRpcMessage, ClientRequest, JsonRpcMessage, RequestId, ServerJsonRpcMessage},
    transport::streamable_http_client::{
        AuthRequiredError, HttpStatusError, InsufficientScopeError, SseError, StreamableHttpClient,
        StreamableHttpError, StreamableHttpPostResponse,
    },
};
use sse_stream::{Sse, SseStream};

use crate::bound::{Bound, Events};

const EVENTS: &str = "text/event-stream";
const JSON: &str = "application/json";
const SESSION: &str = "mcp-session-id";

/// How many redirects a request may follow.
const REDIRECTS: usize = 10;

type Failed = StreamableHttpError<reqwest::Error>;
type EventStream = Pin<Box<dyn Stream<Item = Result<Sse, SseError>> + Send>>;

#[derive(Clone)]
pub(crate) struct Http {
    client: Client,
    bound: Bound,
}

impl Http {
    pub(crate) fn new(bound: Bound) -> Result<Self, reqwest::Error> {
        // reqwest brings no cryptography of its own here. That there is a provider already is as good.
        #[cfg(feature = "tls")]
        let _ = rustls::crypto::ring::default_provider().install_default();
        Ok(Self { client: Client::builder().redirect(Policy::custom(redirected)).build()?, bound })
    }

    async fn send(
        &self,
        mut request: RequestBuilder,
        session: Option<&str>,
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<Response, Failed> {
        request = request.header(ACCEPT, format!("{EVENTS}, {JSON}"));
        for (name, value) in headers {
            request = request.header(name, value);
        }
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        if let Some(session) = session {
            request = request.header(SESSION, session);
        }
        let response = request.send().await.map_err(Failed::Client)?;
        match challenge(&response) {
            Some(failed) => Err(failed),
            None => Ok(response),
        }
    }

    fn events(&self, response: Response) -> EventStream {
        let body = http::Response::from(response).into_body();
        Box::pin(SseStream::new(Events::new(body, self.bound.clone())))
    }

    /// Reads a whole body, up to the limit.
    async fn whole(&self, response: Response) -> Result<Vec<u8>, Failed> {
        self.bound.check(response.content_length().unwrap_or(0))?;
        let mut body = http::Response::from(response).into_body();
        let mut whole = Vec::new();
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame.map_err(Failed::Client)?.into_data() {
                self.bound.check((whole.len() + data.len()) as u64)?;
                whole.extend_from_slice(&data);
            }
        }
        Ok(whole)
    }
}

impl StreamableHttpClient for Http {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Failed> {
        let request = self.client.post(&*uri).header(CONTENT_TYPE, JSON).body(serde_json::to_vec(&message)?);
        let response = self.send(request, session.as_deref(), token, headers).await?;
        let status = response.status();
        match status {
            StatusCode::ACCEPTED | StatusCode::NO_CONTENT => return Ok(StreamableHttpPostResponse::Accepted),
            StatusCode::NOT_FOUND if session.is_some() => return Err(Failed::SessionExpired),
            _ => {}
        }
        let kind = kind(&response);
        let is = |wanted: &str| kind.as_deref().is_some_and(|kind| kind.starts_with(wanted));
        let unavailable = unavailable(&response);
        if let Some(unavailable) = unavailable.filter(|_| status == StatusCode::TOO_MANY_REQUESTS || !is(JSON)) {
            return Err(unavailable.into());
        }
        let given = response.headers().get(SESSION).and_then(|id| id.to_str().ok()).map(str::to_owned);
        if status.is_success() && is(EVENTS) {
            return Ok(StreamableHttpPostResponse::Sse(self.events(response), given));
        }
        let unavailable = self::unavailable(&response);
        let body = self.whole(response).await?;
        let read = serde_json::from_slice::<ServerJsonRpcMessage>(&body);
        if !status.is_success() {
            return refused(&message, session.is_some(), status, is(JSON), read.ok())
                .map(|error| StreamableHttpPostResponse::Json(error, given))
                .ok_or_else(|| match unavailable {
                    Some(unavailable) => unavailable.into(),
                    None => unexpected(format!("HTTP {status}: {}", String::from_utf8_lossy(&body))),
                });
        }
        // A notification or response needs no reply, so a body that comes anyway is ignored.
        let is_request = matches!(message, JsonRpcMessage::Request(_));
        match read {
            Ok(read) if is(JSON) => Ok(StreamableHttpPostResponse::Json(read, given)),
            Err(error) if is(JSON) && is_request => {
                Err(unexpected(format!("the response is not a JSON-RPC message: {error}")))
            }
            _ if !is_request && (is(JSON) || body.is_empty()) => Ok(StreamableHttpPostResponse::Accepted),
            _ => Err(Failed::UnexpectedContentType(kind)),
        }
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<EventStream, Failed> {
        let mut request = self.client.get(&*uri);
        if let Some(last_event) = last_event {
            request = request.header("last-event-id", last_event);
        }
        let response = self.send(request, session.as_deref(), token, headers).await?;
        if response.status() == StatusCode::METHOD_NOT_ALLOWED {
            return Err(Failed::ServerDoesNotSupportSse);
        }
        if let Some(unavailable) = unavailable(&response) {
            return Err(unavailable.into());
        }
        let response = response.error_for_status().map_err(Failed::Client)?;
        match kind(&response) {
            Some(kind) if kind.starts_with(EVENTS) => Ok(self.events(response)),
            other => Err(Failed::UnexpectedContentType(other)),
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Failed> {
        let response = self.send(self.client.delete(&*uri), Some(&session), token, headers).await?;
        // A server need not let its clients end a session.
        if response.status() != StatusCode::METHOD_NOT_ALLOWED {
            response.error_for_status().map_err(Failed::Client)?;
        }
        Ok(())
    }
}

/// The JSON-RPC error in an unsuccessful response, if it has one for this message.
///
/// Legacy servers do not know `server/discover`. Some of them, or proxies in front of them, reject it with another id
/// or in plain text. Any client error counts as a rejection of it, so that the connection can fall back to the legacy
/// era.
fn refused(
    message: &ClientJsonRpcMessage,
    has_session: bool,
    status: StatusCode,
    is_json: bool,
    read: Option<ServerJsonRpcMessage>,
) -> Option<ServerJsonRpcMessage> {
    if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        return None;
    }
    let error = read.filter(|read| matches!(read, JsonRpcMessage::Error(_)));
    let Some(id) = discovery(message).filter(|_| !has_session && status.is_client_error()) else {
        return error.filter(|_| is_json);
    };
    let error = match error {
        Some(JsonRpcMessage::Error(error)) => error.error,
        _ => ErrorData::invalid_request(format!("server/discover was refused with HTTP {status}"), None),
    };
    Some(ServerJsonRpcMessage::error(error, Some(id.clone())))
}

/// The id of a `server/discover` request.
fn discovery(message: &ClientJsonRpcMessage) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Request(request) if matches!(request.request, ClientRequest::DiscoverRequest(_)) => {
            Some(&request.id)
        }
        _ => None,
    }
}

/// The error for a response that asks for authentication or denies access.
fn challenge(response: &Response) -> Option<Failed> {
    let challenge = response.headers().get(WWW_AUTHENTICATE)?;
    let challenge = String::from_utf8_lossy(challenge.as_bytes()).into_owned();
    match response.status() {
        StatusCode::UNAUTHORIZED => Some(Failed::AuthRequired(AuthRequiredError::new(challenge))),
        StatusCode::FORBIDDEN => Some(Failed::InsufficientScope(InsufficientScopeError::new(challenge, None))),
        _ => None,
    }
}

/// The error for a server that cannot answer now.
fn unavailable(response: &Response) -> Option<HttpStatusError> {
    let status = response.status();
    let later = response.headers().get(RETRY_AFTER).and_then(|later| later.to_str().ok()).map(str::to_owned);
    let is_unavailable = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
    is_unavailable.then(|| HttpStatusError::new(status.as_u16(), later))
}

fn kind(response: &Response) -> Option<String> {
    let kind = response.headers().get(CONTENT_TYPE)?;
    Some(String::from_utf8_lossy(kind.as_bytes()).to_lowercase())
}

fn unexpected(what: String) -> Failed {
    Failed::UnexpectedServerResponse(Cow::Owned(what))
}

/// Follows a redirect only if the same request is repeated at the same origin. Any other redirect would drop the
/// message or send the token to another server.
fn redirected(attempt: reqwest::redirect::Attempt<'_>) -> reqwest::redirect::Action {
    let is_same = matches!(attempt.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT)
        && attempt.previous().last().is_some_and(|from| from.origin() == attempt.url().origin());
    match attempt.previous().len() {
        _ if !is_same => attempt.stop(),
        0..=REDIRECTS => attempt.follow(),
        _ => attempt.error(io::Error::other("too many redirects")),
    }
}
