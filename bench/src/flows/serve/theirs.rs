//! The weather tool on bare rmcp, as its users write it: a guard by hand, and a state that rmcp's codec signs and binds
//! to the tool and its arguments, with a lifetime.

use std::{collections::BTreeMap, error::Error, sync::Arc, time::Duration};

use rmcp::{
    ErrorData, ServerHandler,
    handler::server::{
        router::tool::ToolRouter,
        tool::{InputResponses, RequestState},
        wrapper::Parameters,
    },
    model::{
        CallToolResponse, CallToolResult, ContentBlock, ElicitRequest, ElicitRequestParams, ElicitationSchema,
        InputRequest, InputRequiredResult, RequestStateCodec, SealOptions, ServerCapabilities, ServerConfig,
    },
    schemars, tool, tool_handler, tool_router,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// How long the user has to answer.
const LIFETIME: Duration = Duration::from_secs(600);

pub(super) fn service(
    config: StreamableHttpServerConfig,
) -> Result<StreamableHttpService<Arc<Weather>, LocalSessionManager>, Box<dyn Error>> {
    let weather = Arc::new(Weather::new()?);
    Ok(StreamableHttpService::new(move || Ok(Arc::clone(&weather)), Arc::default(), config))
}

pub(super) struct Weather {
    tool_router: ToolRouter<Self>,
    codec: RequestStateCodec,
    question: ElicitationSchema,
}

#[derive(Serialize, Deserialize, schemars::JsonSchema)]
struct Place {
    location: String,
}

#[tool_router]
impl Weather {
    fn new() -> Result<Self, Box<dyn Error>> {
        let question = json!({
            "type": "object",
            "properties": {"units": {"type": "string", "enum": ["metric", "imperial"]}},
            "required": ["units"],
        });
        Ok(Self {
            tool_router: Self::tool_router(),
            codec: RequestStateCodec::try_new([7; 32])?,
            question: serde_json::from_value(question)?,
        })
    }

    #[tool(description = "Weather for a place, asking for units")]
    async fn weather(
        &self,
        Parameters(place): Parameters<Place>,
        RequestState(state): RequestState,
        InputResponses(answers): InputResponses,
    ) -> Result<CallToolResponse, ErrorData> {
        let call = format!("weather {}", serde_json::to_string(&place).map_err(failed)?);
        let Some(state) = state else {
            return Ok(self.ask(&call).into());
        };
        self.codec.open_with(&state, call.as_bytes()).map_err(failed)?;
        let answer = answers.as_ref().and_then(|answers| answers.get("units"));
        let temperature = match answer.and_then(|answer| answer["content"]["units"].as_str()) {
            Some("metric") => "22°C",
            Some("imperial") => "72°F",
            _ => return Err(ErrorData::invalid_params("no units", None)),
        };
        let report = format!("Weather in {}: {temperature}, partly cloudy.", place.location);
        Ok(CallToolResult::success(vec![ContentBlock::text(report)]).into())
    }

    fn ask(&self, call: &str) -> InputRequiredResult {
        let question = ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: "Which units?".to_owned(),
            requested_schema: self.question.clone(),
        };
        let questions = [("units".to_owned(), InputRequest::Elicitation(ElicitRequest::new(question)))];
        let options = SealOptions::new().associated_data(call.as_bytes()).ttl(LIFETIME);
        let state = self.codec.seal_with(b"asked for units", &options);
        InputRequiredResult::new(Some(BTreeMap::from(questions)), Some(state))
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Weather {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

fn failed(error: impl Error) -> ErrorData {
    ErrorData::invalid_params(error.to_string(), None)
}
