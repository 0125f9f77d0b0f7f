//! The servers of the comparison that are built here, each in a separate process: this program, started again.

mod floor;
mod steps;
mod theirs;

use std::{convert::Infallible, env, error::Error, future::pending, io, process::ExitCode, sync::Arc};

use axum::{Router, extract::Request, response::IntoResponse, serve::ListenerExt};
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
};
use rounds::{KeyRing, Rounds, RoundsBuilder};
use rounds_http::{Endpoint, Port};
use rounds_redis::{RedisLedger, RedisRelay};
use tokio::net::TcpListener;
use tower_service::Service;

use self::steps::Steps;

const PATH: &str = "/mcp";

/// The environment variable that tells a process which stack to serve.
pub(super) const STACK: &str = "ROUNDS_BENCH_STACK";

/// The stacks that can be served. A further HTTP stack is a further line in each of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stack {
    /// An axum handler that only parses and prints JSON: the floor.
    Axum,
    /// Bare rmcp in axum, with its own codec for the state.
    Rmcp,
    /// The same, at a [`Port`].
    RmcpAtPort,
    /// The gallery, through the endpoint of `rounds-http`, at a [`Port`].
    Endpoint,
    /// The same with its claims in Redis.
    OnRedis,
    /// The same with its register in Redis as well.
    OnRedisWithRegister,
    /// The gallery, through the endpoint, in axum.
    EndpointInAxum,
    /// The gallery in axum, over rmcp's HTTP service.
    RoundsOverRmcp,
    /// A durable tool without an effect, which the gallery lacks, through the endpoint, at a [`Port`].
    Durable,
    /// The same in axum.
    DurableInAxum,
    /// A tool that tells how far it is, over bare rmcp in axum.
    Steps,
    /// The same through the endpoint, at a [`Port`].
    StepsAtPort,
    /// The same in axum.
    StepsInAxum,
}

impl Stack {
    const ALL: [Self; 13] = [
        Self::Axum,
        Self::Rmcp,
        Self::RmcpAtPort,
        Self::Endpoint,
        Self::OnRedis,
        Self::OnRedisWithRegister,
        Self::EndpointInAxum,
        Self::RoundsOverRmcp,
        Self::Durable,
        Self::DurableInAxum,
        Self::Steps,
        Self::StepsAtPort,
        Self::StepsInAxum,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Axum => "axum",
            Self::Rmcp => "rmcp",
            Self::RmcpAtPort => "rmcp-at-port",
            Self::Endpoint => "endpoint",
            Self::OnRedis => "on-redis",
            Self::OnRedisWithRegister => "on-redis-with-register",
            Self::EndpointInAxum => "endpoint-in-axum",
            Self::RoundsOverRmcp => "rounds-over-rmcp",
            Self::Durable => "durable",
            Self::DurableInAxum => "durable-in-axum",
            Self::Steps => "steps",
            Self::StepsAtPort => "steps-at-port",
            Self::StepsInAxum => "steps-in-axum",
        }
    }

    /// The stack that this process was started for, if this program started it.
    pub(crate) fn of_this_process() -> Option<Self> {
        let name = env::var(STACK).ok()?;
        Self::ALL.into_iter().find(|stack| stack.name() == name)
    }

    /// Serves at a free port, until killed.
    pub(crate) async fn run(self) -> ExitCode {
        let Err(error) = self.serve().await else { return ExitCode::SUCCESS };
        eprintln!("bench: cannot serve {}: {error}", self.name());
        ExitCode::FAILURE
    }

    async fn serve(self) -> Result<(), Box<dyn Error>> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("listening on http://{}{PATH}", listener.local_addr()?);
        let config = StreamableHttpServerConfig::default().with_json_response(true);
        match self {
            Self::Axum => axum(listener, floor::route()).await?,
            Self::Rmcp => axum(listener, mounted(theirs::service(config)?)).await?,
            Self::RmcpAtPort => Port::new(listener, PATH).serve(theirs::service(config)?, pending()).await,
            Self::Endpoint => Port::new(listener, PATH).serve(Endpoint::new(&gallery()?, config), pending()).await,
            Self::OnRedis => {
                let server = on_redis().await?.build()?;
                Port::new(listener, PATH).serve(Endpoint::new(&server, config), pending()).await;
            }
            Self::OnRedisWithRegister => {
                let server = on_redis().await?.register().build()?;
                Port::new(listener, PATH).serve(Endpoint::new(&server, config), pending()).await;
            }
            Self::EndpointInAxum => axum(listener, mounted(Endpoint::new(&gallery()?, config))).await?,
            Self::RoundsOverRmcp => axum(listener, mounted(gallery()?.streamable_http(config))).await?,
            Self::Durable => Port::new(listener, PATH).serve(Endpoint::new(&durable()?, config), pending()).await,
            Self::DurableInAxum => axum(listener, mounted(Endpoint::new(&durable()?, config))).await?,
            Self::Steps => {
                let sessions = Arc::<LocalSessionManager>::default();
                axum(listener, mounted(StreamableHttpService::new(|| Ok(Steps), sessions, config))).await?;
            }
            Self::StepsAtPort => Port::new(listener, PATH).serve(Endpoint::new(&told(), config), pending()).await,
            Self::StepsInAxum => axum(listener, mounted(Endpoint::new(&told(), config))).await?,
        }
        Ok(())
    }
}

async fn axum(listener: TcpListener, router: Router) -> io::Result<()> {
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, router).await
}

fn mounted<S>(service: S) -> Router
where
    S: Service<Request, Error = Infallible, Response: IntoResponse, Future: Send> + Clone + Send + Sync + 'static,
{
    Router::new().route_service(PATH, service)
}

fn durable() -> Result<Rounds<counts::Weather>, Box<dyn Error>> {
    Ok(Rounds::builder(counts::Weather::new()).build()?)
}

fn told() -> Rounds<Steps> {
    Rounds::new(Steps)
}

/// One instance of a fleet.
async fn on_redis() -> Result<RoundsBuilder<gallery::Gallery>, Box<dyn Error>> {
    let url = env::var(crate::instance::REDIS)?;
    let (ledger, relay) = (RedisLedger::connect(&url).await?, RedisRelay::connect(&url, "bench").await?);
    let keys = KeyRing::from_bytes([[7; 32]])?;
    Ok(gallery::rounds().keys(keys).audience("bench").ledger(ledger).relay(relay))
}

fn gallery() -> Result<Rounds<gallery::Gallery>, Box<dyn Error>> {
    Ok(gallery::rounds().build()?)
}
