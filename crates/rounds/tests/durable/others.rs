//! Prompts and resources can be durable too.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    handler::server::router::prompt::PromptRouter,
    model::{
        Prompt, PromptMessage, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ResourceContents,
        Role, ServerCapabilities, ServerConfig,
    },
    prompt_handler, schemars,
    service::RequestContext,
};
use rounds::{Durable, FlowError, KeyRing, Rounds, durable_prompt, ledger::MemoryLedger, test::Client};
use serde::Deserialize;
use serde_json::json;

struct Guide {
    prompt_router: PromptRouter<Self>,
    looked_up: Arc<AtomicUsize>,
}

#[derive(Deserialize, schemars::JsonSchema)]
struct Place {
    place: String,
}

async fn tour(flow: Durable<Guide>, Place { place }: Place) -> Result<Vec<PromptMessage>, FlowError> {
    let sights = flow.once("sights", async |guide, _key| guide.looked_up.fetch_add(1, Ordering::SeqCst) + 3).await?;
    let pace: String = flow.form(format!("{sights} sights in {place}. At what pace?")).key("pace").await?;
    Ok(vec![PromptMessage::new_text(Role::User, format!("Show me {sights} sights of {place}, at a {pace} pace."))])
}

#[prompt_handler(router = self.prompt_router)]
impl ServerHandler for Guide {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_prompts().enable_resources().build())
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let flow = Durable::<Self>::from_context(&context)?;
        let sights =
            flow.once("sights", async |guide, _key| guide.looked_up.fetch_add(1, Ordering::SeqCst) + 3).await?;
        let long = flow.confirm("The long version?").await?;
        let text = format!("{} sights, {}", sights, if long { "at length" } else { "in short" });
        Ok(ReadResourceResult::new(vec![ResourceContents::text(text, request.uri)]).into())
    }
}

#[tokio::test]
async fn prompts_and_resources_go_on_anywhere_as_well() {
    let (ledger, looked_up) = (MemoryLedger::new(), Arc::new(AtomicUsize::new(0)));
    let instance = || async {
        let prompt = Prompt::new("tour", Some("A tour of a place"), None);
        let prompt_router = PromptRouter::new().with_route(durable_prompt(prompt, tour));
        let guide = Guide { prompt_router, looked_up: looked_up.clone() };
        let keys = KeyRing::from_bytes([[7; 32]]).unwrap();
        let server = Rounds::builder(guide).keys(keys).audience("guide").ledger(ledger.clone()).build();
        Client::modern(server.unwrap()).await
    };
    let asked = instance().await.prompt("tour", json!({"place": "Rome"})).await.asked();
    assert_eq!(asked.message("pace"), "3 sights in Rome. At what pace?");
    let done = asked.accept("pace", json!({"pace": "slow"})).send(&instance().await).await;
    assert_eq!(done.text(), "Show me 3 sights of Rome, at a slow pace.");

    let asked = instance().await.read("guide://rome").await.asked();
    let done = asked.accept("confirm", json!({"confirm": true})).send(&instance().await).await;
    assert_eq!(done.text(), "4 sights, at length");
    assert_eq!(looked_up.load(Ordering::SeqCst), 2);
}
