//! A server whose answers depend on nothing but the request, and which tells in them what it got to see.

#![expect(deprecated, reason = "SEP-2577 deprecates logging and roots, and a server may still use them")]

use std::{
    borrow::Cow,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::request::Parts;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, CompleteRequestParams,
        CompleteResult, CompletionInfo, ContentBlock, CreateTaskResult, DetailedTask, DiscoverResult, ErrorCode,
        GetPromptRequestParams, GetPromptResponse, GetPromptResult, GetTaskParams, GetTaskResult, InputRequiredResult,
        JsonObject, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
        LoggingMessageNotificationParam, NotificationMetaObject, PaginatedRequestParams, ProgressNotificationParam,
        Prompt, PromptMessage, ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult,
        RequestMetaObject, Resource, ResourceContents, ResourceTemplate, Role, ServerCapabilities, ServerConfig, Task,
        TaskPayload, TaskStatus, Tool, UpdateTaskParams,
    },
    service::RequestContext,
};
use serde_json::{Value, json};

use crate::send::BY_HAND;

/// What HTTP middleware knows of a request.
#[derive(Clone)]
pub(crate) struct Caller(pub(crate) &'static str);

/// Clones are one desk.
#[derive(Clone, Default)]
pub(crate) struct Desk {
    fast: Arc<AtomicUsize>,
    versions: Option<&'static [ProtocolVersion]>,
}

impl Desk {
    /// One that speaks nothing but this.
    pub(crate) fn of(versions: &'static [ProtocolVersion]) -> Self {
        Self { versions: Some(versions), ..Self::default() }
    }

    /// How many requests came by the fast lane: the only one that runs a handler in its caller's task.
    pub(crate) fn fast(&self) -> usize {
        self.fast.load(Ordering::SeqCst)
    }

    fn seen(&self, request: &impl std::fmt::Debug, context: &RequestContext<RoleServer>) -> String {
        if BY_HAND.try_with(|()| ()).is_ok() {
            self.fast.fetch_add(1, Ordering::SeqCst);
        }
        let head = context.extensions.get::<Parts>().map(|parts| {
            let caller = parts.extensions.get::<Caller>().map(|caller| caller.0);
            format!("{} {} {:?} {:?} by {caller:?}", parts.method, parts.uri, parts.version, parts.headers)
        });
        // Each lane may give a request another token, as long as progress reaches the client with the one that it sent.
        let mut meta = context.meta.clone();
        if meta.get_progress_token().is_some() {
            meta.insert("progressToken".to_owned(), json!("some"));
        }
        let seen = json!({
            "request": format!("{request:?}"),
            "id": format!("{:?}", context.id),
            "meta": meta,
            "head": head,
            "left": context.extensions.get::<RequestMetaObject>(),
            "version": context.protocol_version(),
            "client": context.client_info(),
            "capabilities": context.client_capabilities(),
            "peer": context.peer.peer_info().as_deref(),
            "closed": context.peer.is_transport_closed(),
            "cancelled": context.ct.is_cancelled(),
        });
        seen.to_string()
    }
}

/// Tells the client how far its request is, and writes to its log, as far as it wants to know.
async fn tell(context: &RequestContext<RoleServer>, step: u64) {
    let meta = (step % 3 == 1).then(|| {
        let mut meta = NotificationMetaObject::default();
        meta.insert("example/step".to_owned(), json!({ "z": step, "a": "\n\"" }));
        meta
    });
    if let Some(token) = context.meta.get_progress_token() {
        let mut progress = ProgressNotificationParam::new(token, step as f64 / 2.0);
        progress.total = step.is_multiple_of(2).then_some(1e21);
        progress.message = (step % 5 != 4).then(|| format!("step {step} of \"größe\"\u{0}"));
        progress.meta = meta.clone();
        let _ = context.peer.notify_progress(progress).await;
    }
    if let Some(level) = context.meta.log_level() {
        let mut message = LoggingMessageNotificationParam::new(level, json!({ "step": step }));
        message.meta = meta;
        let _ = context.peer.notify_logging_message(message).await;
    }
}

impl ServerHandler for Desk {
    fn get_info(&self) -> ServerConfig {
        let capabilities =
            ServerCapabilities::builder().enable_tools().enable_prompts().enable_resources().enable_completions();
        ServerConfig::new(capabilities.enable_tasks().enable_logging().build())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let seen = self.seen(&request, &context);
        let info = CompletionInfo::new(vec![seen]).map_err(|why| ErrorData::internal_error(why, None))?;
        Ok(CompleteResult::new(info))
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let task = Task::new(self.seen(&request, &context), TaskStatus::Working, "then".to_owned(), "now".to_owned());
        Ok(GetTaskResult::new(DetailedTask::new(task, TaskPayload::Working)))
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        match self.seen(&request, &context) {
            _ if request.task_id == "1" => Ok(()),
            seen => Err(ErrorData::invalid_params(seen, None)),
        }
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        tell(&context, 1).await;
        Err(ErrorData::invalid_params(self.seen(&request, &context), None))
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(self.versions.unwrap_or(ProtocolVersion::KNOWN_VERSIONS))
    }

    async fn discover(&self, context: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        let info = self.get_info().with_instructions(self.seen(&(), &context));
        Ok(DiscoverResult::from_server_info(self.supported_protocol_versions().into_owned(), info))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools().into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let seen = self.seen(&request, &context);
        let argument = |name| request.arguments.as_ref().and_then(|arguments| arguments.get(name));
        match &*request.name {
            "echo" | "region" | "nested" | "größe" | "" => {
                Ok(CallToolResult::success(vec![ContentBlock::text(seen)]).into())
            }
            "slow" => {
                tokio::task::yield_now().await;
                Ok(CallToolResult::structured(json!({ "seen": seen })).into())
            }
            "fail" => Ok(CallToolResult::error(vec![ContentBlock::text(seen)]).into()),
            "refuse" => {
                let code = argument("code").and_then(Value::as_i64).unwrap_or_default();
                Err(ErrorData::new(ErrorCode(code as i32), "refused", Some(json!(seen))))
            }
            "ask" => match request.request_state {
                None => Ok(InputRequiredResult::from_request_state(seen).into()),
                Some(state) => {
                    Ok(CallToolResult::success(vec![ContentBlock::text(state), ContentBlock::text(seen)]).into())
                }
            },
            "notify" => {
                let number = |name| argument(name).and_then(Value::as_u64).unwrap_or_default().min(1000);
                for step in 0..number("before") {
                    tell(&context, step).await;
                }
                if number("wait") > 0 {
                    tokio::time::sleep(Duration::from_millis(number("wait"))).await;
                }
                for step in 0..number("after") {
                    tell(&context, 1000 + step).await;
                }
                match number("refuse") {
                    0 => Ok(CallToolResult::success(vec![ContentBlock::text(seen)]).into()),
                    code => Err(ErrorData::new(ErrorCode(-(code as i32) - 32000), "refused", None)),
                }
            }
            "push" => {
                let refused = context.peer.list_roots().await.unwrap_err();
                Ok(CallToolResult::success(vec![ContentBlock::text(refused.to_string())]).into())
            }
            "task" => {
                let task = Task::new("1".to_owned(), TaskStatus::Working, "then".to_owned(), "now".to_owned());
                Ok(CreateTaskResult::new(task).into())
            }
            name => Err(ErrorData::invalid_params(format!("no tool {name}"), None)),
        }
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut result = ListToolsResult::with_all_items(tools());
        result.next_cursor = Some(self.seen(&request, &context));
        Ok(result)
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let seen = self.seen(&request, &context);
        match request.name.as_str() {
            "echo" => Ok(GetPromptResult::new(vec![PromptMessage::new_text(Role::User, seen)]).into()),
            "ask" => Ok(InputRequiredResult::from_request_state(seen).into()),
            name => Err(ErrorData::invalid_params(format!("no prompt {name}"), None)),
        }
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let mut result = ListPromptsResult::with_all_items(vec![Prompt::new("echo", None::<&str>, None)]);
        result.next_cursor = Some(self.seen(&request, &context));
        Ok(result)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let seen = self.seen(&request, &context);
        match request.uri.as_str() {
            "echo" => Ok(ReadResourceResult::new(vec![ResourceContents::text(seen, "echo")]).into()),
            "ask" => Ok(InputRequiredResult::from_request_state(seen).into()),
            uri => Err(ErrorData::resource_not_found(format!("no resource {uri}"), None)),
        }
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let mut result = ListResourcesResult::with_all_items(vec![Resource::new("echo", "echo")]);
        result.next_cursor = Some(self.seen(&request, &context));
        Ok(result)
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let mut result = ListResourceTemplatesResult::with_all_items(vec![ResourceTemplate::new("{echo}", "echo")]);
        result.next_cursor = Some(self.seen(&request, &context));
        Ok(result)
    }
}

fn tools() -> Vec<Tool> {
    let properties = |properties: Value| {
        let schema = json!({ "type": "object", "properties": properties });
        serde_json::from_value::<JsonObject>(schema).unwrap()
    };
    let header = || json!({ "type": "string", "x-mcp-header": "Region" });
    let plain = || properties(json!({ "value": { "type": "string" } }));
    let mut tools: Vec<_> = ["echo", "größe", "slow", "fail", "refuse", "ask", "notify", "push", "task", ""]
        .into_iter()
        .map(|name| Tool::new(name, "A tool", plain()))
        .collect();
    tools.push(Tool::new("region", "With a header", properties(json!({ "value": header() }))));
    let nested = json!({ "value": { "type": "object", "properties": { "value": header() } } });
    tools.push(Tool::new("nested", "With a header further in", properties(nested)));
    tools
}

/// The metadata that every request has to carry.
pub(crate) fn meta() -> RequestMetaObject {
    serde_json::from_value(json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "tester", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "form": {} } },
    }))
    .unwrap()
}
