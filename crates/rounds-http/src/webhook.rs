//! A webhook: notifications of questions that are answered elsewhere, as signed HTTP requests.

use std::{fmt, time::Duration};

use reqwest::{Client, StatusCode, Url, header::CONTENT_TYPE, redirect};
use rounds::{
    elsewhere::{Notice, Notify, NotifyError, WebhookKey, WebhookSignature},
    time::{BoxFuture, Clock as _, SystemClock},
};

/// How long the connection and the whole request may take.
const CONNECT: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(10);

/// Sends each notification as a `POST` to one address, for [`Elsewhere::notify`](rounds::elsewhere::Elsewhere::notify).
///
/// The body is [`Notice::to_json`]. It is signed as [Standard Webhooks](https://www.standardwebhooks.com) says, in the
/// headers that [`WebhookKey::verify`] verifies. Every status of success is one; the body of the response is not read, and
/// redirects are not followed. Every other response, and one that takes longer than ten seconds, is a failure, after which
/// `rounds` tries again.
///
/// ```
/// use rounds::elsewhere::{Elsewhere, WebhookKey};
/// use rounds_http::Webhook;
///
/// # fn main_() -> Result<(), Box<dyn std::error::Error>> {
/// let key = WebhookKey::from_text(&std::fs::read_to_string("webhook.secret")?)?;
/// let webhook = Webhook::new("https://chat.example/hooks/approvals", key)?;
/// let elsewhere = Elsewhere::at("https://shop.example/questions").notify(webhook);
/// # Ok(()) }
/// ```
pub struct Webhook {
    client: Client,
    url: Url,
    key: WebhookKey,
}

impl Webhook {
    /// Sends to this address, signed with this key. If the process has no provider of cryptography for TLS yet, that of
    /// `ring` is installed.
    ///
    /// # Errors
    ///
    /// [`WebhookSetupError`] if the address is not an `http` or `https` URL, or the client cannot be set up.
    pub fn new(url: &str, key: WebhookKey) -> Result<Self, WebhookSetupError> {
        let url = Url::parse(url).map_err(|_| WebhookSetupError::Url)?;
        if !["http", "https"].contains(&url.scheme()) {
            return Err(WebhookSetupError::Url);
        }
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // An error says that another thread was first.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let client = Client::builder().redirect(redirect::Policy::none()).connect_timeout(CONNECT).timeout(TIMEOUT);
        Ok(Self { client: client.build().map_err(WebhookSetupError::Client)?, url, key })
    }

    async fn send(&self, notice: &Notice) -> Result<(), NotifyError> {
        let body = notice.to_json().to_string();
        let signature = self.key.sign(&notice.id, SystemClock.now().into(), body.as_bytes());
        let request = self.client.post(self.url.clone()).header(CONTENT_TYPE, "application/json");
        let request = request.header(WebhookSignature::ID, signature.id);
        let request = request.header(WebhookSignature::TIMESTAMP, signature.timestamp);
        let request = request.header(WebhookSignature::SIGNATURE, signature.signature);
        // An address may have a secret in it, which does not belong into a log.
        let response = request.body(body).send().await.map_err(|error| NotifyError::new(error.without_url()))?;
        match response.status() {
            status if status.is_success() => Ok(()),
            status => Err(NotifyError::new(NotAccepted(status))),
        }
    }
}

impl Notify for Webhook {
    fn notify<'a>(&'a self, notice: &'a Notice) -> BoxFuture<'a, Result<(), NotifyError>> {
        Box::pin(self.send(notice))
    }
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook").field("host", &self.url.host_str()).finish_non_exhaustive()
    }
}

/// Why a [`Webhook`] cannot be set up.
#[derive(Debug)]
#[non_exhaustive]
pub enum WebhookSetupError {
    /// The address is not an `http` or `https` URL.
    Url,
    /// The HTTP client cannot be built.
    Client(reqwest::Error),
}

impl fmt::Display for WebhookSetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url => f.write_str("the address of a webhook has to be an http or https URL"),
            Self::Client(_) => f.write_str("the HTTP client of a webhook cannot be built"),
        }
    }
}

impl std::error::Error for WebhookSetupError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Url => None,
            Self::Client(error) => Some(error),
        }
    }
}

/// The receiver did not accept a notification.
#[derive(Debug)]
struct NotAccepted(StatusCode);

impl fmt::Display for NotAccepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the receiver answered with status {}", self.0.as_u16())
    }
}

impl std::error::Error for NotAccepted {}
