//! [`Rounds`] as an rmcp handler: it handles three methods and passes the others on.

use std::{borrow::Cow, future::poll_fn, sync::Arc, task::Poll, time::Duration};

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::*,
    service::{MaybeSendFuture, NotificationContext, RequestContext, SubscriptionContext},
};

use tokio_util::either::Either;

use super::{
    elsewhere::{ElsewherePlayer, RESULT_TOOL, result_tool},
    engine::{exchange::Exchange, leg},
    policy::gate::Era,
    rounds::Rounds,
    seal::envelope::Method,
    tasks::{Called, Player, TaskService, is_brief, promise, require_declared},
};

#[deny(clippy::missing_trait_methods)]
impl<H: ServerHandler> ServerHandler for Rounds<H> {
    fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> impl Future<Output = Result<CallToolResponse, ErrorData>> + MaybeSendFuture + '_ {
        if request.name == RESULT_TOOL
            && self.has_result_tool()
            && let Some(player) = self.elsewhere_player()
        {
            return Called::Offered(player.result(request, context));
        }
        self.core.targets.called(&**self.handlers.here(), &request.name);
        match self.tasks.as_ref().and_then(|tasks| Some((tasks, tasks.offers(&request, &context)?))) {
            None => match self.elsewhere_player() {
                Some(player) => Called::Offered(player.play(request, context)),
                None => Called::Leg(leg::play(&self.core, &self.handlers, request, context)),
            },
            Some((tasks, after)) if after.is_zero() || self.elsewhere.is_some() || !is_brief(&request, &context) => {
                Called::Offered(self.player(tasks).call(request, context, after))
            }
            Some((tasks, after)) => Called::Promising(self.call_inline(tasks, request, context, after)),
        }
    }

    fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> impl Future<Output = Result<GetPromptResponse, ErrorData>> + MaybeSendFuture + '_ {
        match self.elsewhere_player() {
            Some(player) => Either::Right(player.play(request, context)),
            None => Either::Left(leg::play(&self.core, &self.handlers, request, context)),
        }
    }

    fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> impl Future<Output = Result<ReadResourceResponse, ErrorData>> + MaybeSendFuture + '_ {
        match self.elsewhere_player() {
            Some(player) => Either::Right(player.play(request, context)),
            None => Either::Left(leg::play(&self.core, &self.handlers, request, context)),
        }
    }

    /// rmcp decodes a request as a custom one if its state is not a string or its answers are not a map.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let param = |name: &str| request.params.as_ref().and_then(|params| params.get(name));
        let wrong = |name, right: fn(&serde_json::Value) -> bool| {
            param(name).is_some_and(|value| !value.is_null() && !right(value))
        };
        match Method::from_name(&request.method) {
            Some(method)
                if wrong("requestState", serde_json::Value::is_string)
                    || wrong("inputResponses", serde_json::Value::is_object) =>
            {
                Err(leg::refuse_unreadable(&self.core, method, request.params.as_ref()))
            }
            None if self.tasks.is_some() && TASK_METHODS.contains(&&*request.method) => {
                require_declared(&context)?;
                Err(ErrorData::invalid_params("the parameters of this request about a task have the wrong type", None))
            }
            _ => self.handlers.serve(&context).on_custom_request(request, context).await,
        }
    }

    async fn ping(&self, context: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        self.handlers.serve(&context).ping(context).await
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        if self.core.modern_only {
            return Err(no_legacy(request.protocol_version, &self.supported_protocol_versions()));
        }
        #[cfg(feature = "http")]
        crate::server::http::sessions::admit(&self.core, &context).await?;
        self.handlers.of(Era::Legacy).initialize(request, context).await
    }

    fn negotiate_initialize(&self, request: &InitializeRequestParams) -> Result<InitializeResult, ErrorData> {
        self.handlers.of(Era::Legacy).negotiate_initialize(request)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        let mut supported = ServerHandler::supported_protocol_versions(&**self.handlers.here());
        if self.core.modern_only {
            supported.to_mut().retain(is_modern);
        }
        supported
    }

    async fn discover(&self, context: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        let mut discovered = self.handlers.serve(&context).discover(context).await?;
        if self.core.modern_only {
            discovered.supported_versions.retain(is_modern);
        }
        self.declare_tasks(&mut discovered.capabilities);
        Ok(discovered)
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        self.handlers.serve(&context).complete(request, context).await
    }

    #[expect(deprecated, reason = "passed through as long as rmcp has it")]
    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.handlers.serve(&context).set_level(request, context).await
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let (is_first, handler) = (is_first(request.as_ref()), self.handlers.serve(&context));
        let listed = handler.list_prompts(request, context).await?;
        let names = listed.prompts.iter().map(|prompt| prompt.name.as_ref());
        self.core.targets.prompts(&**handler, names, is_first && listed.next_cursor.is_none());
        Ok(listed)
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        self.handlers.serve(&context).list_resources(request, context).await
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        self.handlers.serve(&context).list_resource_templates(request, context).await
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        self.handlers.here().accepted_subscription_filter(requested)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        self.handlers.serve(context.request_context()).listen(context).await
    }

    #[expect(deprecated, reason = "passed through as long as rmcp has it")]
    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.handlers.serve(&context).subscribe(request, context).await
    }

    #[expect(deprecated, reason = "passed through as long as rmcp has it")]
    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.handlers.serve(&context).unsubscribe(request, context).await
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let (is_first, handler) = (is_first(request.as_ref()), self.handlers.serve(&context));
        let mut listed = handler.list_tools(request, context).await?;
        if is_first && self.has_result_tool() {
            listed.tools.push(result_tool());
        }
        let names = listed.tools.iter().map(|tool| tool.name.as_ref());
        self.core.targets.tools(&**handler, names, is_first && listed.next_cursor.is_none());
        Ok(listed)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        if name == RESULT_TOOL && self.has_result_tool() {
            return Some(result_tool());
        }
        self.handlers.here().get_tool(name)
    }

    async fn on_cancelled(&self, notification: CancelledNotificationParam, context: NotificationContext<RoleServer>) {
        self.handlers.here().on_cancelled(notification, context).await;
    }

    async fn on_progress(&self, notification: ProgressNotificationParam, context: NotificationContext<RoleServer>) {
        self.handlers.here().on_progress(notification, context).await;
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        self.handlers.here().on_initialized(context).await;
    }

    async fn on_roots_list_changed(&self, context: NotificationContext<RoleServer>) {
        self.handlers.here().on_roots_list_changed(context).await;
    }

    async fn on_custom_notification(&self, notification: CustomNotification, context: NotificationContext<RoleServer>) {
        self.handlers.here().on_custom_notification(notification, context).await;
    }

    fn get_info(&self) -> ServerConfig {
        let mut info = ServerHandler::get_info(&**self.handlers.here());
        self.declare_tasks(&mut info.capabilities);
        info
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        match self.tasks_with(&request.task_id) {
            Some(tasks) => self.player(tasks).get(&request.task_id, context).await,
            None => self.handlers.serve(&context).get_task(request, context).await,
        }
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        match self.tasks_with(&request.task_id) {
            Some(tasks) => self.player(tasks).update(request, context).await,
            None => self.handlers.serve(&context).update_task(request, context).await,
        }
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        match self.tasks_with(&request.task_id) {
            Some(tasks) => self.player(tasks).cancel(&request.task_id, context).await,
            None => self.handlers.serve(&context).cancel_task(request, context).await,
        }
    }
}

impl<H: ServerHandler> Rounds<H> {
    /// The tasks among which this id is to be looked for. The wrapped server may have tasks of its own.
    fn tasks_with(&self, id: &str) -> Option<&Arc<TaskService>> {
        let theirs = || ServerHandler::get_info(&**self.handlers.here()).capabilities.supports_tasks();
        self.tasks.as_ref().filter(|_| TaskService::is_ours(id) || !theirs())
    }

    /// Calls a tool. Only if the call does not end at once, a task is prepared for it.
    fn call_inline<'a>(
        &'a self,
        tasks: &'a Arc<TaskService>,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
        after: Duration,
    ) -> impl Future<Output = Result<CallToolResponse, ErrorData>> + Send + Unpin + 'a {
        if tasks.is_to_sweep(&self.core) {
            self.player(tasks).sweep_from_now_on(&context);
        }
        let mut promise = Some(promise(&self.core, &self.handlers, request, context));
        let mut waits = None;
        poll_fn(move |cx| {
            if let Some(begun) = &mut promise
                && let Poll::Ready(played) = begun.poll(cx)
            {
                return Poll::Ready(played);
            }
            let promise = &mut promise;
            let waits = waits.get_or_insert_with(|| {
                let begun = promise.take().expect("a call begins to wait once");
                self.player(tasks).wait(begun, after)
            });
            waits.as_mut().poll(cx)
        })
    }

    fn player(&self, tasks: &Arc<TaskService>) -> Player<H> {
        Player {
            tasks: tasks.clone(),
            core: self.core.clone(),
            handlers: self.handlers.clone(),
            elsewhere: self.elsewhere.clone(),
        }
    }

    /// Plays calls whose questions may be answered elsewhere, if some may.
    fn elsewhere_player<X: Exchange>(&self) -> Option<ElsewherePlayer<X>> {
        let settings = self.elsewhere.clone()?;
        Some(ElsewherePlayer::new(settings, self.core.clone(), self.handlers.clone()))
    }

    fn has_result_tool(&self) -> bool {
        self.elsewhere.as_ref().is_some_and(|elsewhere| elsewhere.has_result_tool)
    }

    /// Declares the extension, if calls may become tasks.
    fn declare_tasks(&self, capabilities: &mut ServerCapabilities) {
        if self.tasks.is_some() {
            capabilities.extensions.get_or_insert_default().entry(TASKS_EXTENSION_ID.to_owned()).or_default();
        }
    }
}

/// The methods of the extension for tasks.
const TASK_METHODS: [&str; 3] = ["tasks/get", "tasks/update", "tasks/cancel"];

fn is_modern(version: &ProtocolVersion) -> bool {
    Era::of_version(version.as_str()) == Era::Modern
}

/// The error for a legacy client of a server that serves modern clients only.
fn no_legacy(requested: ProtocolVersion, supported: &[ProtocolVersion]) -> ErrorData {
    let served = supported.iter().map(ProtocolVersion::as_str).collect::<Vec<_>>().join(", ");
    let mut error = ErrorData::unsupported_protocol_version(requested, supported);
    error.message = format!(
        "this server has no sessions and does not answer `initialize`: it serves protocol version {served}, in which \
         every request carries its version in `_meta`"
    )
    .into();
    error
}

/// Whether a request asks for the first page of a list.
fn is_first(page: Option<&PaginatedRequestParams>) -> bool {
    page.is_none_or(|page| page.cursor.is_none())
}
