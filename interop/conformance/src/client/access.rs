//! Authorization with rmcp's own code: when a server rejects a request, the user is sent to the authorization server,
//! and then the request is sent again.

use std::{collections::HashMap, sync::Arc};

use futures::stream::BoxStream;
use http::{HeaderName, HeaderValue};
use rmcp::{
    model::ClientJsonRpcMessage,
    transport::{
        auth::{AuthError, AuthorizationManager, AuthorizationRequest, OAuthState},
        streamable_http_client::{
            InsufficientScopeError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
        },
    },
};
use rounds::client::BoxError;
use serde_json::Value;
use sse_stream::{Error as SseError, Sse};
use tokio::sync::{Mutex, watch};

/// No process listens there: this program plays the user's browser.
const REDIRECT: &str = "http://localhost:3000/callback";

/// The URL of the client metadata document. The suite expects this one.
const METADATA: &str = "https://conformance-test.local/client-metadata.json";

/// How often a rejected request is sent again.
const ATTEMPTS: usize = 3;

type Error = StreamableHttpError<reqwest::Error>;

/// An HTTP client that obtains authorization when a request is rejected.
#[derive(Clone)]
pub(crate) struct Access {
    server: Arc<str>,
    client: Option<(String, String)>,
    http: reqwest::Client,
    state: Arc<Mutex<Option<OAuthState>>>,
    listens: Arc<watch::Sender<bool>>,
}

impl Access {
    /// A client for the server at this address, with a client id and a secret if the authorization server has
    /// registered one.
    pub(crate) fn to(server: &str, context: &Value) -> Result<Self, BoxError> {
        rounds_testkit::install_crypto();
        let known = |name: &str| context[name].as_str().map(str::to_owned);
        Ok(Self {
            server: server.into(),
            client: known("client_id").zip(known("client_secret")),
            // Redirects are read and not followed.
            http: reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build()?,
            state: Arc::default(),
            listens: Arc::default(),
        })
    }

    /// Waits until a legacy server can push messages outside of a call. Some servers lose messages that they push
    /// before.
    pub(crate) async fn listening(&self) {
        // This fails only if no sender is left, and `self` holds one.
        let _ = self.listens.subscribe().wait_for(|listens| *listens).await;
    }

    async fn token(&self) -> Result<Option<String>, AuthError> {
        match &*self.state.lock().await {
            Some(OAuthState::Authorized(manager)) => manager.get_access_token().await.map(Some),
            _ => Ok(None),
        }
    }

    /// Sends a request, and sends it again as long as a new authorization may help.
    async fn attempt<T, F>(&self, request: impl Fn(Option<String>) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        for _ in 0..ATTEMPTS {
            match request(self.token().await?).await {
                Err(StreamableHttpError::AuthRequired(refused)) => {
                    self.authorise(&refused.www_authenticate_header).await?;
                }
                Err(StreamableHttpError::InsufficientScope(refused)) => self.widen(refused).await?,
                result => return result,
            }
        }
        request(self.token().await?).await
    }

    /// Authorizes from the start: credentials of an earlier authorization server are not sent to this one.
    async fn authorise(&self, challenge: &str) -> Result<(), AuthError> {
        let mut state = self.state.lock().await;
        let manager = AuthorizationManager::new_allowing_private_addresses(&*self.server).await?;
        let mut next = OAuthState::Unauthorized(manager);
        let mut wanted = AuthorizationRequest::new(REDIRECT)
            .with_client_name("rounds-conformance")
            .with_client_metadata_url(METADATA)
            .with_challenge(challenge);
        if let Some((id, secret)) = &self.client {
            wanted = wanted.with_preregistered_client(id).with_client_secret(secret);
        }
        next.start_authorization(wanted).await?;
        let page = next.get_authorization_url().await?;
        next.handle_callback_url(&self.visit(&page).await?).await?;
        *state = Some(next);
        Ok(())
    }

    /// Authorizes with more scopes than before.
    async fn widen(&self, refused: InsufficientScopeError) -> Result<(), Error> {
        let mut state = self.state.lock().await;
        let (Some(state), Some(scope)) = (&mut *state, refused.get_required_scope()) else {
            return Err(StreamableHttpError::InsufficientScope(refused));
        };
        let page = state.request_scope_upgrade(scope, REDIRECT).await?;
        state.handle_callback_url(&self.visit(&page).await?).await?;
        Ok(())
    }

    /// Plays the user with a browser: opens the page, consents, and is redirected back.
    async fn visit(&self, page: &str) -> Result<String, AuthError> {
        let failed = |error: &dyn std::fmt::Display| AuthError::AuthorizationFailed(error.to_string());
        let answer = self.http.get(page).send().await.map_err(|error| failed(&error))?;
        let back = answer.headers().get("location").and_then(|location| location.to_str().ok());
        back.map(str::to_owned).ok_or_else(|| failed(&"the authorization server does not redirect back"))
    }
}

impl StreamableHttpClient for Access {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Error> {
        self.attempt(|token| {
            let (uri, message, session_id) = (uri.clone(), message.clone(), session_id.clone());
            self.http.post_message(uri, message, session_id, token, custom_headers.clone())
        })
        .await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Error> {
        let token = self.token().await?;
        self.http.delete_session(uri, session_id, token, custom_headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Error> {
        let token = self.token().await?;
        let stream = self.http.get_stream(uri, session_id, last_event_id, token, custom_headers).await;
        self.listens.send_replace(true);
        stream
    }
}
