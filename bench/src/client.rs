//! A call driven by `drive`, compared with the same call driven by rmcp's own loop, over the same connection to the
//! same server: in memory, where nothing else takes time, and over HTTP to another process.

use std::convert::Infallible;

use counts::Weather;
use rmcp::{
    ClientHandler, ClientLifecycleMode, ClientServiceExt, ErrorData, RoleClient,
    model::{
        CallToolRequestParams, ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction,
        ElicitationCapability, JsonObject, ProtocolVersion,
    },
    service::{RequestContext, RunningService, serve_server},
    transport::StreamableHttpClientTransport,
};
use rounds::{
    Rounds,
    client::{AskedQuestion, Call, DriveLimits, DriveOutcome, UserAnswer, drive},
};
use serde_json::json;

use crate::{
    alone::Failure,
    flows::{self, Server, Stack},
    progress::Progress,
    report::{Bars, Section, Table, figure},
    sample::Sample,
};

/// How often each is measured, in turns.
const TURNS: usize = 4001;

/// Turns that are not counted.
const WARM_UP: usize = 400;

/// rmcp's client, with a user who answers immediately.
pub(crate) struct Person;

/// A client that is connected to this server in memory.
pub(crate) async fn connect(server: Rounds<Weather>) -> Result<RunningService<RoleClient, Person>, Failure> {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    tokio::spawn(async { serve_server(server, theirs).await?.waiting().await.map_err(Failure::from) });
    Ok(Person.serve_with_lifecycle(ours, modern()).await?)
}

pub(crate) fn modern() -> ClientLifecycleMode {
    ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] }
}

/// The arguments of the tool, for both.
pub(crate) fn arguments() -> JsonObject {
    rmcp::object!({"location": "Tokyo"})
}

impl ClientHandler for Person {
    async fn create_elicitation(
        &self,
        _request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(json!({"units": "metric"})))
    }

    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = Some(ElicitationCapability::default());
        let mut info = ClientConfig::default();
        info.capabilities = capabilities;
        info
    }
}

pub(crate) async fn measure() -> Result<Section, Failure> {
    let mut progress = Progress::new("client", 2);
    let mut table = Table::new(["connected", "driven by", "takes", "in this run"]);
    let mut bars = Bars::new("A call with one question", "multiples of rmcp's loop");
    let in_memory = connect(Rounds::new(Weather::new())).await?;
    let server = Server::start(flows::ours(Stack::Durable)?)?;
    let transport = StreamableHttpClientTransport::from_uri(format!("http://{}/mcp", server.address));
    let over_http = Person.serve_with_lifecycle(transport, modern()).await?;
    for (connected, client) in [("in memory", in_memory), ("over HTTP", over_http)] {
        progress.step(&format!("{TURNS} calls by each {connected}, in turns"));
        let (loops, drives) = compare(&client).await?;
        let ratio = drives.ratio_to(&loops);
        let mut push = |sample: &Sample, ratio: f64| {
            let took = format!("{} µs", figure(sample.micros()));
            table.push([connected.to_owned(), sample.name.to_owned(), figure(ratio), took]);
        };
        push(&loops, 1.0);
        push(&drives, ratio);
        bars = bars.group(format!("{} {connected}", drives.name.replace('`', "")), [ratio]);
    }
    Ok(Section {
        name: "client",
        title: "Driving a call",
        text: format!(
            "A whole call with one question that is answered immediately, {TURNS} by each in turns, over one \
             connection to one server: in memory, on the same thread, and over HTTP, with rmcp's client and our \
             endpoint in another process. Medians, as multiples of rmcp's own loop, `RunningService::call_tool`. \
             Both include the time of the connection and of the server."
        ),
        table,
        plots: vec![bars.mark(1.05, "goal").into()],
    })
}

/// The times of a call by rmcp's loop, and by `drive`.
async fn compare(client: &RunningService<RoleClient, Person>) -> Result<(Sample, Sample), Failure> {
    let person = async |_: AskedQuestion| Ok::<_, Infallible>(UserAnswer::Form(rmcp::object!({"units": "metric"})));
    let (mut loops, mut drives) = (Sample::new("rmcp's loop"), Sample::new("`drive`"));
    for turn in 0..WARM_UP + TURNS {
        if turn == WARM_UP {
            (loops, drives) = (Sample::new(loops.name), Sample::new(drives.name));
        }
        // Alternates the order, because the second finds the first one's data in the caches.
        for driven in [turn % 2 == 0, turn % 2 == 1] {
            if driven {
                let call = Call::tool("guard", arguments());
                let driven = drives.time(drive(client.peer(), call, &person, DriveLimits::default())).await?;
                assert!(matches!(driven, DriveOutcome::Done(_)), "the call ends with the weather");
            } else {
                let request = CallToolRequestParams::new("guard").with_arguments(arguments());
                let looped = loops.time(client.call_tool(request)).await?;
                assert!(!looped.content.is_empty(), "the call ends with the weather");
            }
        }
    }
    Ok((loops, drives))
}
