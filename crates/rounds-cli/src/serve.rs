//! `rounds serve`: serves the gallery to any MCP client.

use std::{
    convert::Infallible,
    future::ready,
    io::{self, Write},
    net::{Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use clap::{ArgGroup, Args, ValueEnum, builder::NonEmptyStringValueParser};
use gallery::Gallery;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, header::CONTENT_TYPE, uri::Authority};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use rmcp::{
    ServiceExt,
    transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService},
};
use rounds::{KeyRing, Principal, Rounds, elsewhere::Elsewhere, format, http::Sessions, tasks::Tasks};
use rounds_http::{Endpoint, Incoming, Port, Probes};
use tokio::net::TcpListener;
use tower_service::Service;

use crate::{
    Failure,
    crowd::CrowdOptions,
    data::Data,
    desk::{DeskParts, DeskService},
    duration,
    ending::{self, Signals},
    keys::AUDIENCE,
    limits::LimitOptions,
    memory_options::MemoryOptions,
    metrics::MetricParts,
    reload::Reload,
    store::StoreUrl,
    store_options::StoreOptions,
};

pub(crate) const EXAMPLE: &str = "Example:\n  rounds serve --http 127.0.0.1:8000";

pub(crate) const EXAMPLES: &str = r#"Example:
  rounds serve --http 127.0.0.1:8000

and from another terminal a flow, with you as its user:
  rounds call http://127.0.0.1:8000/mcp weather_e location=Tokyo

or its first leg, by hand:
  curl -s http://127.0.0.1:8000/mcp -H 'content-type: application/json' \
    -H 'accept: application/json, text/event-stream' -H 'mcp-protocol-version: 2026-07-28' \
    -H 'mcp-method: tools/call' -H 'mcp-name: weather_e' -d '{"jsonrpc": "2.0", "id": 1,
      "method": "tools/call", "params": {"name": "weather_e", "arguments": {"location": "Tokyo"},
      "_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "curl", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}}}'

The second leg is the same request with two more params: "requestState", unchanged, and
"inputResponses": {"units": {"action": "accept", "content": {"units": "metric"}}}.

The same server, with everything in a folder, so that a restart loses nothing:
  rounds serve --http 127.0.0.1:8000 --data data

Three instances of one server, any of which can serve any leg (or with --store postgres://127.0.0.1/):
  (umask 077; rounds keygen > keys)
  rounds serve --http 127.0.0.1:8001 --store redis://127.0.0.1/ --key-file keys --instance a
  rounds serve --http 127.0.0.1:8002 --store redis://127.0.0.1/ --key-file keys --instance b
  rounds serve --http 127.0.0.1:8003 --store redis://127.0.0.1/ --key-file keys --instance c"#;

/// The path of the MCP endpoint. Probes and the desk have all others.
const PATH: &str = "/mcp";

/// Where and how to serve.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("transport").required(true).args(["http", "stdio"])))]
pub(crate) struct Options {
    /// Serve streamable HTTP at http://ADDR/mcp, until SIGTERM or SIGINT
    ///
    /// Port 0 chooses a free port; `listening on http://ADDR/mcp` on stderr names it. On a loopback
    /// address, requests for a loopback host are served. On any other address, --host or --any-host
    /// is required. Requests from web pages of other origins are rejected.
    ///
    /// On a loopback address the desk is served at http://ADDR/: a page that shows what waits, and where
    /// you can try the tools. The server then keeps a register.
    #[arg(long, value_name = "ADDR", verbatim_doc_comment)]
    http: Option<String>,
    /// Do not serve the desk
    #[arg(long, conflicts_with = "stdio")]
    no_desk: bool,
    /// Serve requests for this host: a name or an address, with or without a port. Can be repeated
    ///
    /// This stops web pages from reaching the server through a host name of their own (DNS rebinding).
    /// On a loopback address the loopback names are served too.
    #[arg(long, value_name = "NAME", conflicts_with = "stdio", value_parser = host, verbatim_doc_comment)]
    host: Vec<String>,
    /// Serve requests for any host, which lets web pages reach the server through DNS rebinding
    #[arg(long, conflicts_with_all = ["stdio", "host"])]
    any_host: bool,
    /// Serve only clients of protocol version 2026-07-28 and later, and keep no sessions
    #[arg(long)]
    modern_only: bool,
    /// HTTP implementation: the endpoint of rounds, or rmcp's own service for comparison
    #[arg(long, value_name = "STACK", value_enum, default_value_t, conflicts_with = "stdio")]
    http_stack: HttpStack,
    /// Serve one client on stdin and stdout, until it closes stdin
    #[arg(long)]
    stdio: bool,
    /// Seal with the keys of this file instead of a random key that is lost on restart
    ///
    /// The file is read again on SIGHUP. If it is not usable then, the keys stay unchanged.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Keep everything in this folder, so that a restart loses nothing: keys, claims, effects, accounts
    ///
    /// The first start creates the folder, a key file `keys` that only you can read, and a SQLite database
    /// `rounds.db`. Servers with the same folder continue each other's flows.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["key_file", "store"], verbatim_doc_comment)]
    data: Option<PathBuf>,
    /// Keep claims in this store: sqlite:FILE, postgres://..., or redis://...
    ///
    /// SQLite is for one host. Postgres and Redis are for a fleet, whose instances share claims, messages between
    /// instances, the airline and, in Postgres, the bank. All instances need the same keys and the same audience, which
    /// is also the prefix of their keys in Redis. --redis is another name for this option.
    #[arg(long, alias = "redis", value_name = "URL", requires = "key_file", verbatim_doc_comment)]
    store: Option<StoreUrl>,
    /// Name of this instance of a fleet in logs [default: gallery]
    #[arg(long, value_name = "NAME", requires = "store")]
    instance: Option<String>,
    /// How long calls whose handler waits in memory may take to end after SIGTERM or SIGINT
    ///
    /// Meanwhile the server is served, /readyz fails, and no other call begins to wait in memory. It ends when no handler
    /// waits or when this time has passed; a second signal ends it at once.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse, verbatim_doc_comment)]
    drain: Duration,
    /// How long requests in flight may continue after the server has drained
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = duration::parse, hide_short_help = true)]
    in_flight: Duration,
    /// Serve metrics for Prometheus at /metrics, or at an address of their own with --metrics=ADDR
    ///
    /// They are served for requests to an IP address, to localhost and to each --host. Let only your scraper reach
    /// them: they name the tools and say how much each is used.
    #[arg(long, value_name = "ADDR", num_args = 0..=1, require_equals = true, default_missing_value = "", verbatim_doc_comment)]
    metrics: Option<String>,
    /// Lease duration: how long an instance may go without renewing its claim on a leg
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse)]
    lease: Duration,
    /// Name of the service that the keys seal for [default with a key file: gallery]
    ///
    /// Servers with the same keys and the same audience can continue each other's flows; other servers cannot.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    audience: Option<String>,
    /// How long the user has to answer a question: 250ms, 90s, 10m, 1h
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration::parse)]
    round_lifetime: Duration,
    /// How long a flow may take in total
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration::parse)]
    flow_deadline: Duration,
    /// How long the record of a flow is kept after the flow has ended
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = duration::parse, hide_short_help = true)]
    keep_flows: Duration,
    /// How long a request waits for a decision that is made elsewhere, before its client has to send it again
    #[arg(long, value_name = "DURATION", default_value = "25s", value_parser = duration::parse, hide_short_help = true)]
    elsewhere_hold: Duration,
    /// How many rounds clients allow; a call that waits for a decision ends with a reference one round before
    #[arg(long, value_name = "NUMBER", default_value_t = Elsewhere::ROUNDS, hide_short_help = true)]
    elsewhere_rounds: u32,
    /// Take the principal from this HTTP header; without the header the request has no principal
    ///
    /// The header is not verified: use it to try out what happens when another principal presents a state.
    #[arg(long, value_name = "NAME", conflicts_with = "stdio")]
    principal_header: Option<HeaderName>,
    /// Write the format of the previous release, which its instances can read, or of this one. Both are read
    ///
    /// Choose `current` when every instance of a fleet runs this release.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    format: Format,
    /// Answer a tool call that takes longer than this with a task, if its client can poll one; 0s: every call
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    tasks_after: Option<Duration>,
    #[command(flatten)]
    crowd: CrowdOptions,
    #[command(flatten)]
    limits: LimitOptions,
    #[command(flatten)]
    store_options: StoreOptions,
    #[command(flatten)]
    memory: MemoryOptions,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum HttpStack {
    #[default]
    Rounds,
    Rmcp,
}

/// [`rounds::format::Format`] on the command line.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Format {
    #[default]
    Previous,
    Current,
}

impl From<Format> for format::Format {
    fn from(format: Format) -> Self {
        match format {
            Format::Previous => Self::Previous,
            Format::Current => Self::Current,
        }
    }
}

/// Serves until the client disconnects or a signal arrives.
pub(crate) async fn serve(options: Options) -> Result<(), Failure> {
    crate::log::to_stderr(options.instance.as_deref())?;
    let data = options.data.as_deref().map(Data::open).transpose()?;
    let key_file = options.key_file.clone().or_else(|| data.as_ref().map(Data::keys));
    let (desk, metrics) = (options.desk(), options.metrics().await?);
    let data = data.as_ref().map(Data::store);
    let server = options.build(key_file.as_deref(), data, desk.as_ref(), metrics.as_ref()).await?;
    // Before the server is announced, so that no signal is missed.
    if let Some(file) = key_file {
        Reload::listen(file)?.start(server.clone());
    }
    match options.http.clone() {
        Some(address) => options.serve_http(server, desk, metrics, address).await,
        None => {
            if let Some(metrics) = &metrics {
                metrics.announce();
            }
            serve_stdio(server, options.drain).await
        }
    }
}

impl Options {
    /// What the desk needs, if this build has one and it is wanted.
    fn desk(&self) -> Option<DeskParts> {
        (self.http.is_some() && !self.no_desk).then(DeskParts::default)
    }

    fn elsewhere(&self) -> Elsewhere {
        Elsewhere::new().hold(self.elsewhere_hold).rounds(self.elsewhere_rounds).result_tool()
    }

    /// What the metrics need, if they are wanted.
    async fn metrics(&self) -> Result<Option<MetricParts>, Failure> {
        match self.metrics.as_deref() {
            None => Ok(None),
            Some("") if self.stdio => Err(Failure::Usage(
                "--metrics needs an address with --stdio, because there is no other: --metrics=127.0.0.1:9090"
                    .to_owned(),
            )),
            Some(address) => MetricParts::new(address, &self.host, self.any_host).await.map(Some),
        }
    }

    async fn build(
        &self,
        key_file: Option<&Path>,
        data: Option<StoreUrl>,
        desk: Option<&DeskParts>,
        metrics: Option<&MetricParts>,
    ) -> Result<Rounds<Gallery>, Failure> {
        let audience = self.audience.as_deref();
        let mut builder = match self.store.as_ref().or(data.as_ref()) {
            None => self.memory.join(),
            Some(store) => {
                let instance = self.instance.as_deref().unwrap_or(AUDIENCE);
                store.join(audience.unwrap_or(AUDIENCE), instance, &self.store_options).await?
            }
        };
        // So that `refund_large` can ask, also where nothing outlasts the process.
        builder = builder.register_for(self.keep_flows).elsewhere(self.elsewhere());
        builder = builder.round_lifetime(self.round_lifetime).flow_deadline(self.flow_deadline);
        builder = builder.limits(self.limits.limits().with_lease(self.lease)).format(self.format.into());
        if let Some(file) = key_file {
            builder = builder.keys(KeyRing::from_file(file)?).audience(AUDIENCE);
        }
        if self.modern_only {
            builder = builder.modern_only();
        }
        if let Some(time) = self.tasks_after {
            builder = builder.tasks(Tasks::after(time));
        }
        if let Some(audience) = audience {
            builder = builder.audience(audience);
        }
        if let Some(desk) = desk {
            builder = desk.prepare(builder);
        }
        if let Some(metrics) = metrics {
            builder = metrics.prepare(builder);
        }
        Ok(builder.build()?)
    }

    async fn serve_http(
        self,
        server: Rounds<Gallery>,
        desk: Option<DeskParts>,
        metrics: Option<MetricParts>,
        address: String,
    ) -> Result<(), Failure> {
        let (listener, local) = bind(address).await?;
        // Before the server is announced, so that no signal is missed.
        let signals = Signals::listen()?;
        let config = self.crowd.configure(StreamableHttpServerConfig::default().with_json_response(true));
        let config = Hosts { named: self.host, any: self.any_host }.configure(config, local)?;
        let desk = desk.and_then(|desk| desk.open(&server, local));
        announce(local);
        if let Some(metrics) = &metrics {
            metrics.announce();
        }
        if desk.is_some() {
            crate::desk::announce(local);
        }

        let health = server.health();
        let port = match &desk {
            Some(_) => Port::at_every_path(listener),
            None => Port::new(listener, PATH),
        };
        let port = self.crowd.set_up(port.with_drain(self.in_flight)).with_probes(Probes::new(health.clone()));
        let port = match metrics {
            Some(metrics) => metrics.set_up(port),
            None => port,
        };
        let stack = match self.http_stack {
            HttpStack::Rounds => Stack::Rounds(self.crowd.limit(Endpoint::new(&server, config))),
            HttpStack::Rmcp => Stack::Rmcp(server.streamable_http(config)),
        };
        let service = Identified { header: self.principal_header, stack, desk };
        ending::until_ended(signals, health, self.drain, async |told| {
            port.serve(service, async { _ = told.await }).await;
            Ok(())
        })
        .await
    }
}

async fn serve_stdio(server: Rounds<Gallery>, drain: Duration) -> Result<(), Failure> {
    let (signals, health) = (Signals::listen()?, server.health());
    let conversation = async {
        let running =
            server.serve(rounds::transport::stdio()).await.map_err(|error| Failure::Stdio(Box::new(error)))?;
        // It ends when the client disconnects, for whatever reason.
        let _ = running.waiting().await;
        Ok(())
    };
    ending::until_ended(signals, health, drain, async move |told| {
        tokio::select! {
            ended = conversation => ended,
            _ = told => Ok(()),
        }
    })
    .await
}

/// The hosts for which requests are served.
struct Hosts {
    named: Vec<String>,
    any: bool,
}

impl Hosts {
    fn configure(
        self,
        mut config: StreamableHttpServerConfig,
        local: SocketAddr,
    ) -> Result<StreamableHttpServerConfig, Failure> {
        if self.any {
            return Ok(config.disable_allowed_hosts());
        }
        if !local.ip().is_loopback() {
            if self.named.is_empty() {
                return Err(Failure::Usage(format!(
                    "{local} is not a loopback address, so clients reach this server under a host name that it \
                     does not know: add --host NAME for each name, such as --host mcp.example.com, or --any-host"
                )));
            }
            config.allowed_hosts.clear();
        }
        config.allowed_hosts.extend(self.named);
        Ok(config)
    }
}

/// A host as it appears in a request: not a URL, and not a pattern.
fn host(name: &str) -> Result<String, String> {
    let bare = name.parse::<Ipv6Addr>().is_ok();
    let is_host = |authority: Authority| !authority.host().is_empty() && !authority.as_str().contains(['@', '*']);
    match bare || name.parse::<Authority>().is_ok_and(is_host) {
        true => Ok(name.to_owned()),
        false => Err("give a name or an address, such as mcp.example.com or 10.0.0.7:8000".to_owned()),
    }
}

pub(crate) async fn bind(address: String) -> Result<(TcpListener, SocketAddr), Failure> {
    let bound = async {
        let listener = TcpListener::bind(&address).await?;
        let local = listener.local_addr()?;
        Ok((listener, local))
    };
    bound.await.map_err(|source| Failure::Listen { address, source })
}

fn announce(local: SocketAddr) {
    // If stderr is closed, the message is lost.
    let _ = writeln!(io::stderr(), "listening on http://{local}{PATH}");
}

/// Takes the principal from a header without checks. In production, take it from verified credentials.
#[derive(Clone)]
struct Identified {
    /// Without one, no request has a principal.
    header: Option<HeaderName>,
    stack: Stack,
    /// Serves all other paths.
    desk: Option<DeskService>,
}

/// One type for either stack, so that what serves connections is compiled once.
#[derive(Clone)]
enum Stack {
    Rounds(Endpoint<Rounds<Gallery>>),
    Rmcp(StreamableHttpService<Rounds<Gallery>, Sessions>),
}

type BoxResponse = Response<BoxBody<Bytes, Infallible>>;
pub(crate) type Responding = Pin<Box<dyn Future<Output = Result<BoxResponse, Infallible>> + Send>>;

impl Service<Request<Incoming>> for Identified {
    type Response = BoxResponse;
    type Error = Infallible;
    type Future = Responding;

    /// Both stacks are always ready.
    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Incoming>) -> Self::Future {
        if let Some(header) = &self.header {
            match request.headers().get(header).map(HeaderValue::to_str) {
                None => {}
                Some(Ok(name)) if !name.is_empty() => {
                    let principal = Principal::new(name);
                    request.extensions_mut().insert(principal);
                }
                // A header that is empty or not text is a mistake. Serving the request without a principal would hide
                // it.
                Some(_) => {
                    let mut response = Response::new(
                        Full::from(format!(
                            "the {header} header is empty or is not text, so it does not name a principal: send a name"
                        ))
                        .boxed(),
                    );
                    *response.status_mut() = StatusCode::BAD_REQUEST;
                    let text = HeaderValue::from_static("text/plain; charset=utf-8");
                    response.headers_mut().insert(CONTENT_TYPE, text);
                    return Box::pin(ready(Ok(response)));
                }
            }
        }
        if let Some(desk) = self.desk.as_mut().filter(|_| request.uri().path() != PATH) {
            return desk.call(request);
        }
        match &mut self.stack {
            Stack::Rounds(endpoint) => endpoint.call(request),
            // With the type of body that the endpoint hands to rmcp, for which its code is compiled already.
            Stack::Rmcp(service) => {
                service.call(request.map(|body| body.map_err(|error| error.to_string()).boxed_unsync()))
            }
        }
    }
}
