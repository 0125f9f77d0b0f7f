//! The connection to a server: over HTTP, or over the stdin and stdout of a command that is started for it.

use std::{
    fmt,
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use clap::ValueEnum;
use rmcp::{
    ClientHandler, RoleClient,
    model::{ClientCapabilities, ClientConfig, Implementation, ProgressNotificationParam},
    service::{ClientInitializeError, NotificationContext, RunningService},
    transport::{
        StreamableHttpClientTransport, async_rw::AsyncRwTransport,
        streamable_http_client::StreamableHttpClientTransportConfig,
    },
};
use rounds::client;
use serde::{Deserialize, Serialize};
use tokio::{
    process::{Child, Command},
    task::JoinHandle,
    time::timeout,
};
use url::{Host, Url};

use crate::{
    Failure,
    answering::{Answering, Who},
    bound::{Bound, Lines},
    http::Http,
    reason, server_log,
    terminal::clean,
};

/// How long closing a connection may take.
pub(crate) const FAREWELL: Duration = Duration::from_secs(2);
/// Longer than any person will take to answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);

/// Address of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Address {
    /// A URL.
    Url(String),
    /// A command that is started, and talks over its stdin and stdout.
    Stdio(String),
}

/// Protocol era to speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Protocol {
    /// 2026-07-28 and later only
    Modern,
    /// 2025-11-25, with questions over the live connection
    Legacy,
    /// Modern if the server supports it, otherwise legacy
    #[default]
    Auto,
}

impl Address {
    pub(crate) fn url(text: &str) -> Result<Self, Failure> {
        let known = Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        if known {
            return Ok(Self::Url(text.to_owned()));
        }
        let text = clean::short(text, 80);
        Err(Failure::Usage(format!("{text:?} is not an http:// or https:// URL; for a command, use --stdio")))
    }

    pub(crate) fn stdio(command: &str) -> Result<Self, Failure> {
        words(command).map(|_| Self::Stdio(command.to_owned()))
    }
}

impl Address {
    /// The address, safe to show even if its author is not trusted.
    pub(crate) fn shown(&self) -> String {
        clean::line(&self.to_string())
    }

    /// Whether the traffic can be read on the network: neither https nor a loopback address.
    pub(crate) fn is_open(&self) -> bool {
        let Self::Url(url) = self else { return false };
        let Ok(url) = Url::parse(url) else { return true };
        let is_here = match url.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(ip)) => ip.is_loopback(),
            Some(Host::Ipv6(ip)) => ip.is_loopback(),
            None => false,
        };
        url.scheme() != "https" && !is_here
    }
}

/// Text form of the address, with which a saved call also identifies its server.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => f.write_str(url),
            Self::Stdio(command) => write!(f, "`{command}`"),
        }
    }
}

/// Splits a command into words as a shell would.
fn words(command: &str) -> Result<Vec<String>, Failure> {
    let words = shlex::split(command).filter(|words| !words.is_empty());
    words.ok_or_else(|| {
        Failure::Usage(format!("{:?} is not a command: write it as in a shell", clean::short(command, 80)))
    })
}

/// A connection to a server that has completed the handshake.
pub(crate) struct Connection {
    pub(crate) client: RunningService<RoleClient, client::Host<Arc<Answering>, Ourselves>>,
    child: Option<Started>,
}

impl Connection {
    /// Connects, and waits up to `within` for the handshake to complete.
    pub(crate) async fn open(
        address: &Address,
        era: Protocol,
        bearer: Option<&str>,
        answering: Arc<Answering>,
        within: Duration,
        bound: &Bound,
    ) -> Result<Self, Failure> {
        let host = client::Host::new(answering.clone())
            .with_handler(Ourselves(answering.clone()))
            .with_question_timeout(PATIENCE)
            .with_tasks()
            .at(address.to_string());
        let host = match era {
            Protocol::Modern => host.modern_only(),
            Protocol::Legacy => host.legacy_only(),
            Protocol::Auto => host,
        };
        let failed =
            |error: ClientInitializeError| Failure::Connect { to: address.shown(), why: reason::not_connected(&error) };
        let greeted = async {
            match address {
                #[cfg(not(feature = "tls"))]
                Address::Url(url) if url.starts_with("https:") => {
                    Err(crate::features::missing("an https:// URL", "tls"))
                }
                Address::Url(url) => {
                    let client = Http::new(bound.clone()).map_err(Failure::Http)?;
                    let transport = StreamableHttpClientTransport::with_client(client, http(url, bearer));
                    let client = host.connect(transport).await.map_err(failed)?;
                    Ok(Self { client, child: None })
                }
                Address::Stdio(command) => {
                    let mut started = Started::new(command, &answering)?;
                    let (Some(stdout), Some(stdin)) = (started.child.stdout.take(), started.child.stdin.take()) else {
                        return Err(Failure::Silent { to: address.shown(), within });
                    };
                    // `Lines` applies the configured limit, so rmcp's own limit is lifted.
                    let transport = AsyncRwTransport::new_client(Lines::new(stdout, bound.clone()), stdin);
                    match host.connect(transport.with_max_line_length(usize::MAX)).await {
                        Ok(client) => Ok(Self { client, child: Some(started) }),
                        // The exit status says more than a broken pipe.
                        Err(error) => Err(match started.ended().await {
                            Some(status) => Failure::Ended { to: address.shown(), status },
                            None => failed(error),
                        }),
                    }
                }
            }
        };
        timeout(within, greeted).await.unwrap_or_else(|_| Err(Failure::Silent { to: address.shown(), within }))
    }

    /// Closes the connection, and ends the command that was started for it.
    pub(crate) async fn close(self) {
        let Self { client, child } = self;
        let _ = timeout(FAREWELL, client.cancel()).await;
        if let Some(started) = child {
            // Its stdin is closed by now, which asks it to end. If it does not, it is killed when it is dropped.
            started.ended().await;
        }
    }
}

/// The name of this client, and the receiver of a server's progress.
pub(crate) struct Ourselves(Arc<Answering>);

impl ClientHandler for Ourselves {
    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.0.status.server_progress(&params);
    }

    fn get_info(&self) -> ClientConfig {
        let name = Implementation::new("rounds", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), name)
    }
}

fn http(url: &str, bearer: Option<&str>) -> StreamableHttpClientTransportConfig {
    let config = StreamableHttpClientTransportConfig::with_uri(url);
    match bearer {
        Some(token) => config.auth_header(token),
        None => config,
    }
}

/// A server that was started for the call.
struct Started {
    child: Child,
    /// Reads its log. Without a person at the terminal, the log goes to our own stderr.
    log: Option<JoinHandle<()>>,
}

impl Started {
    fn new(command: &str, answering: &Arc<Answering>) -> Result<Self, Failure> {
        let words = words(command)?;
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        if matches!(answering.who(), Who::Person(_)) {
            command.stderr(Stdio::piped());
        }
        let mut child = command.spawn().map_err(|source| Failure::Start { program: clean::line(&words[0]), source })?;
        let log = child.stderr.take().map(|log| {
            let answering = answering.clone();
            tokio::spawn(async move { server_log::read(log, |line| answering.status.logged(line)).await })
        });
        Ok(Self { child, log })
    }

    /// Waits until it has ended and its log has been read, but not for long. Returns its exit status.
    async fn ended(mut self) -> Option<ExitStatus> {
        let status = timeout(FAREWELL, self.child.wait()).await;
        if let (Ok(_), Some(log)) = (&status, &mut self.log) {
            // A process that it has started may still have its stderr.
            let _ = timeout(FAREWELL, log).await;
        }
        status.ok()?.ok()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(log) = &self.log {
            log.abort();
        }
    }
}
