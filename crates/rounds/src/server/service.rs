//! [`AnyService`]: a handler made of a service of rmcp's that is not one.

use std::{borrow::Cow, fmt, sync::Arc};

use rmcp::{
    ErrorData, RoleServer, ServerHandler, Service,
    model::*,
    service::{DynService, NotificationContext, RequestContext},
};

use super::engine::exchange::Response as _;

/// A handler made of a `Service<RoleServer>`, such as rmcp's `Router<S>` or a service behind a `dyn DynService`.
///
/// [`Rounds`](crate::Rounds) wraps a [`ServerHandler`]; every request and notification of this one goes to the service.
///
/// ```
/// use rmcp::{ServerHandler, handler::server::router::Router};
/// use rounds::{Rounds, service::AnyService};
///
/// struct Weather;
/// impl ServerHandler for Weather {}
///
/// let router = Router::new(Weather);
/// let server = Rounds::builder(AnyService::new(router)).pushes().build()?;
/// # Ok::<(), rounds::BuildError>(())
/// ```
///
/// The extractors of this crate work in the service's handlers, except that a [`Durable`](crate::Durable) one finds
/// no server of its type. Three things that rmcp asks of a handler and not of a service are missing:
/// `subscriptions/listen` is answered as an unknown method, tools cannot be looked up without a request, and a failing
/// notification is only logged.
#[derive(Clone)]
pub struct AnyService(Arc<dyn DynService<RoleServer>>);

impl AnyService {
    /// Makes a handler of a service.
    pub fn new(service: impl Service<RoleServer>) -> Self {
        Self(Arc::new(service))
    }

    async fn request<T>(
        &self,
        request: impl Into<ClientRequest>,
        context: RequestContext<RoleServer>,
        read: impl FnOnce(ServerResult) -> Option<T>,
    ) -> Result<T, ErrorData> {
        let result = self.0.handle_request(request.into(), context).await?;
        read(result)
            .ok_or_else(|| ErrorData::internal_error("the service returned the result of another request", None))
    }

    async fn notify(&self, notification: impl Into<ClientNotification>, context: NotificationContext<RoleServer>) {
        if let Err(error) = self.0.handle_notification(notification.into(), context).await {
            tracing::warn!(target: "rounds", %error, "the service failed to handle a notification");
        }
    }
}

impl From<Arc<dyn DynService<RoleServer>>> for AnyService {
    fn from(service: Arc<dyn DynService<RoleServer>>) -> Self {
        Self(service)
    }
}

impl fmt::Debug for AnyService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyService").finish_non_exhaustive()
    }
}

/// Reads one kind of result.
macro_rules! result {
    ($result:ident) => {
        |result| if let ServerResult::$result(result) = result { Some(result) } else { None }
    };
}

/// Reads the result of a request that has none.
fn nothing(result: ServerResult) -> Option<()> {
    matches!(result, ServerResult::EmptyResult(_)).then_some(())
}

/// Methods whose request is its parameters.
macro_rules! requests {
    ($($method:ident($request:ident: $params:ty) -> $output:ty = $read:expr;)*) => {
        $(async fn $method(&self, request: $params, context: RequestContext<RoleServer>) -> Result<$output, ErrorData> {
            self.request($request::new(request), context, $read).await
        })*
    };
}

/// Methods whose request is a list, and whose parameters are the page.
macro_rules! lists {
    ($($method:ident($request:ident) -> $output:ident;)*) => {
        $(async fn $method(
            &self,
            page: Option<PaginatedRequestParams>,
            context: RequestContext<RoleServer>,
        ) -> Result<$output, ErrorData> {
            let mut request = $request::default();
            request.params = page;
            self.request(request, context, result!($output)).await
        })*
    };
}

#[expect(deprecated, reason = "passed through as long as rmcp has it")]
impl ServerHandler for AnyService {
    requests! {
        call_tool(CallToolRequest: CallToolRequestParams) -> CallToolResponse = CallToolResponse::from_result;
        get_prompt(GetPromptRequest: GetPromptRequestParams) -> GetPromptResponse = GetPromptResponse::from_result;
        read_resource(ReadResourceRequest: ReadResourceRequestParams) -> ReadResourceResponse =
            ReadResourceResponse::from_result;
        initialize(InitializeRequest: InitializeRequestParams) -> InitializeResult = result!(InitializeResult);
        complete(CompleteRequest: CompleteRequestParams) -> CompleteResult = result!(CompleteResult);
        set_level(SetLevelRequest: SetLevelRequestParams) -> () = nothing;
        subscribe(SubscribeRequest: SubscribeRequestParams) -> () = nothing;
        unsubscribe(UnsubscribeRequest: UnsubscribeRequestParams) -> () = nothing;
        get_task(GetTaskRequest: GetTaskParams) -> GetTaskResult = result!(GetTaskResult);
        update_task(UpdateTaskRequest: UpdateTaskParams) -> () = nothing;
        cancel_task(CancelTaskRequest: CancelTaskParams) -> () = nothing;
    }

    lists! {
        list_tools(ListToolsRequest) -> ListToolsResult;
        list_prompts(ListPromptsRequest) -> ListPromptsResult;
        list_resources(ListResourcesRequest) -> ListResourcesResult;
        list_resource_templates(ListResourceTemplatesRequest) -> ListResourceTemplatesResult;
    }

    async fn ping(&self, context: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        self.request(PingRequest::default(), context, nothing).await
    }

    async fn discover(&self, context: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        self.request(DiscoverRequest::default(), context, result!(DiscoverResult)).await
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        self.request(request, context, result!(CustomResult)).await
    }

    async fn on_cancelled(&self, params: CancelledNotificationParam, context: NotificationContext<RoleServer>) {
        self.notify(CancelledNotification::new(params), context).await;
    }

    async fn on_progress(&self, params: ProgressNotificationParam, context: NotificationContext<RoleServer>) {
        self.notify(ProgressNotification::new(params), context).await;
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        self.notify(InitializedNotification::default(), context).await;
    }

    async fn on_roots_list_changed(&self, context: NotificationContext<RoleServer>) {
        self.notify(RootsListChangedNotification::default(), context).await;
    }

    async fn on_custom_notification(&self, notification: CustomNotification, context: NotificationContext<RoleServer>) {
        self.notify(notification, context).await;
    }

    fn get_info(&self) -> ServerConfig {
        self.0.get_info()
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        self.0.supported_protocol_versions()
    }
}
