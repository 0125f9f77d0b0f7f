//! The host: a responder as rmcp's `ClientHandler`, so that it answers servers of both eras.

#![expect(deprecated, reason = "rmcp deprecates sampling and roots, and servers still ask for them")]

use std::{fmt, sync::Arc, time::Duration};

use rmcp::{
    ClientHandler, ClientLifecycleMode, ErrorData, RoleClient,
    model::{
        CancelledNotificationParam, ClientConfig, CreateMessageRequestMethod, CreateMessageRequestParams,
        CreateMessageResult, CustomNotification, CustomRequest, CustomResult, ElicitRequestParams, ElicitResult,
        ElicitationCapability, ErrorCode, ListRootsRequestMethod, ListRootsResult, LoggingMessageNotificationParam,
        ProgressNotificationParam, ProtocolVersion, ResourceUpdatedNotificationParam, RootsCapabilities,
        SamplingCapability, SubscriptionsAcknowledgedNotificationParams, TASKS_EXTENSION_ID,
        TaskStatusNotificationParams,
    },
    service::{ClientInitializeError, ClientServiceExt, NotificationContext, Peer, RequestContext, RunningService},
    transport::IntoTransport,
};
use serde_json::Value;
use tokio::sync::watch;

use super::{
    DriveLimits, Responder, Server, UserAnswer,
    push::{MAX_PUSHED, Thought, answer, internal, timed_out},
    question::{AskedQuestion, Came, Context, RawQuestion},
};
use crate::shared::{
    clock::{Clock, SystemClock},
    kind::QuestionKind,
    order::ORDER,
};

/// A [`Responder`] as rmcp's `ClientHandler`.
///
/// Questions of a server of the modern era are answered by [`drive`](super::drive) or by hand. A server of the legacy
/// era pushes questions over the live connection during a call: then the host asks the responder. Either way the
/// capabilities declare to the server that it may ask what the responder [can](Responder::can) answer, and nothing
/// else. Other calls on the connection continue while a user thinks.
///
/// ```no_run
/// use rmcp::object;
/// use rounds::client::{Call, Host, DriveLimits, drive, defaults_only};
///
/// # async fn example(transport: tokio::io::DuplexStream) -> Result<(), Box<dyn std::error::Error>> {
/// let client = Host::new(defaults_only()).connect(transport).await?;
/// let call = Call::tool("weather", object!({"location": "Paris"}));
/// let outcome = drive(&client, call, client.service().responder(), DriveLimits::default()).await?;
/// # Ok(())
/// # }
/// ```
pub struct Host<R, H = ()> {
    responder: Arc<R>,
    handler: H,
    address: Option<String>,
    clock: Arc<dyn Clock>,
    patience: Duration,
    eras: Eras,
    /// Whether it polls tasks.
    tasks: bool,
    thinking: watch::Sender<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Eras {
    Both,
    Modern,
    Legacy,
}

impl<R: Responder + 'static> Host<R> {
    /// A host that connects to servers of both eras, and declares only what it can be asked.
    pub fn new(responder: R) -> Self {
        Self {
            responder: Arc::new(responder),
            handler: (),
            address: None,
            clock: Arc::new(SystemClock),
            patience: DriveLimits::default().question,
            eras: Eras::Both,
            tasks: false,
            thinking: watch::Sender::new(0),
        }
    }
}

impl<R: Responder + 'static, H: ClientHandler> Host<R, H> {
    /// Passes notifications and pings on to this handler, and takes the client's name from it; a `ClientConfig` of rmcp
    /// is enough. The capabilities that it declares for questions are ignored.
    pub fn with_handler<G: ClientHandler>(self, handler: G) -> Host<R, G> {
        let Self { responder, address, clock, patience, eras, tasks, thinking, .. } = self;
        Host { responder, handler, address, clock, patience, eras, tasks, thinking }
    }

    /// Sets the address of the server: see [`Server::at`].
    pub fn at(mut self, address: impl Into<String>) -> Self {
        self.address = Some(address.into());
        self
    }

    /// Measures time by this clock.
    pub fn with_clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Sets the timeout of a question that a legacy server pushes; then the question is cancelled. The default is that
    /// of [`DriveLimits::question`].
    pub fn with_question_timeout(mut self, timeout: Duration) -> Self {
        self.patience = timeout;
        self
    }

    /// Disables the fallback to the legacy era: [`connect`](Self::connect) fails with a server that supports no other,
    /// and every pushed question is answered with an error. (So are the questions of rmcp's own loop,
    /// `RunningService::call_tool`, which asks in the same way: use [`drive`](super::drive).)
    pub fn modern_only(mut self) -> Self {
        self.eras = Eras::Modern;
        self
    }

    /// Declares to servers that a call may become a task, which this host polls: [`drive`](super::drive) does so by
    /// itself, and [`Call::send`](super::Call::send) returns [`Sent::Later`](super::Sent::Later). Without this, servers
    /// answer each call with its result or its questions.
    pub fn with_tasks(mut self) -> Self {
        self.tasks = true;
        self
    }

    /// Begins with `initialize`, as clients of the legacy era do, even with servers of the modern era.
    pub fn legacy_only(mut self) -> Self {
        self.eras = Eras::Legacy;
        self
    }

    /// Connects: with `server/discover` first, then with `initialize` if the server supports only that, or has not
    /// answered within 10 seconds. There is no timeout for a server that answers nothing at all: add one of your own.
    ///
    /// # Errors
    ///
    /// The errors of rmcp's `serve_with_lifecycle`, which this calls.
    pub async fn connect<T, E, A>(self, transport: T) -> Result<RunningService<RoleClient, Self>, ClientInitializeError>
    where
        T: IntoTransport<RoleClient, E, A>,
        E: std::error::Error + Send + Sync + 'static,
    {
        let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
        let lifecycle = match self.eras {
            Eras::Modern => ClientLifecycleMode::Discover { preferred_versions },
            Eras::Legacy => ClientLifecycleMode::Initialize,
            Eras::Both => {
                let legacy_version = Some(ProtocolVersion::V_2025_11_25);
                ClientLifecycleMode::Auto { preferred_versions, legacy_version }
            }
        };
        self.serve_with_lifecycle(transport, lifecycle).await
    }

    /// The responder.
    pub fn responder(&self) -> &Arc<R> {
        &self.responder
    }

    /// The handler that notifications are passed on to.
    pub fn handler(&self) -> &H {
        &self.handler
    }

    pub(super) fn server<'a>(&self, peer: &'a Peer<RoleClient>) -> Server<'a> {
        let thinking = Some(self.thinking.subscribe());
        Server { peer, address: self.address.clone(), clock: self.clock.clone(), thinking }
    }

    /// Answers a question that a server has pushed.
    async fn push(&self, raw: RawQuestion, context: &RequestContext<RoleClient>) -> Result<UserAnswer, ErrorData> {
        let refused = |why: String| Err(ErrorData::invalid_params(why, None));
        if self.eras == Eras::Modern {
            return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, raw.method, None));
        }
        let came = Came::Json(raw);
        if let Err(what) = came.check_size() {
            return refused(format!("the question is too large: {what}"));
        }
        let origin = self.server(&context.peer).origin();
        let asked = Arc::new(Context {
            origin,
            expires_at: None,
            received_at: self.clock.now().into(),
            pushed: true,
            of_task: false,
        });
        let question = match AskedQuestion::read(String::new(), came, asked, None) {
            Ok(question) => question,
            Err(why) => return refused(format!("the question cannot be asked: {why}")),
        };
        if !self.responder.can(question.kind()) {
            return refused("this client does not answer this kind of question, and did not declare it".to_owned());
        }
        let Some(_thinking) = Thought::begin(&self.thinking) else {
            return refused(format!("more than {MAX_PUSHED} questions are pending: wait for an answer to one"));
        };
        let answer = tokio::select! {
            biased;
            () = context.ct.cancelled() => return refused("the question was withdrawn".to_owned()),
            answer = answer(&*self.responder, question.clone()) => answer,
            () = self.clock.sleep(self.patience) => timed_out(&question),
        };
        let answer = answer.map_err(|error| internal(&error.to_string()))?;
        question.check(answer).map_err(|error| internal(&error.to_string()))
    }
}

#[deny(clippy::missing_trait_methods)]
impl<R: Responder + 'static, H: ClientHandler> ClientHandler for Host<R, H> {
    async fn ping(&self, context: RequestContext<RoleClient>) -> Result<(), ErrorData> {
        self.handler.ping(context).await
    }

    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        if !self.responder.can(QuestionKind::Sample) {
            return Err(ErrorData::method_not_found::<CreateMessageRequestMethod>());
        }
        match self.push(RawQuestion::new("sampling/createMessage", &params), &context).await? {
            UserAnswer::Sample(result) => Ok(*result),
            _ => Err(internal("the answer is not a sample")),
        }
    }

    async fn list_roots(&self, context: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        if !self.responder.can(QuestionKind::Roots) {
            return Err(ErrorData::method_not_found::<ListRootsRequestMethod>());
        }
        match self.push(RawQuestion::new("roots/list", &Value::Null), &context).await? {
            UserAnswer::Roots(result) => Ok(result),
            _ => Err(internal("the answer is not a list of roots")),
        }
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let mut raw = RawQuestion::of_elicitation(&request);
        // rmcp has removed the metadata from the parameters.
        raw.arrange(context.meta.get(ORDER));
        let answer = self.push(raw, &context).await?;
        serde_json::from_value(answer.to_wire()).map_err(|error| internal(&error.to_string()))
    }

    /// Handles what rmcp cannot read, such as a page without the retired `elicitationId`.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        if request.method != "elicitation/create" {
            return self.handler.on_custom_request(request, context).await;
        }
        let params = request.params.unwrap_or_default();
        let answer = self.push(RawQuestion::new("elicitation/create", &params), &context).await?;
        Ok(CustomResult(answer.to_wire()))
    }

    async fn on_cancelled(&self, params: CancelledNotificationParam, context: NotificationContext<RoleClient>) {
        self.handler.on_cancelled(params, context).await;
    }

    async fn on_progress(&self, params: ProgressNotificationParam, context: NotificationContext<RoleClient>) {
        self.handler.on_progress(params, context).await;
    }

    async fn on_logging_message(
        &self,
        params: LoggingMessageNotificationParam,
        context: NotificationContext<RoleClient>,
    ) {
        self.handler.on_logging_message(params, context).await;
    }

    async fn on_resource_updated(
        &self,
        params: ResourceUpdatedNotificationParam,
        context: NotificationContext<RoleClient>,
    ) {
        self.handler.on_resource_updated(params, context).await;
    }

    async fn on_resource_list_changed(&self, context: NotificationContext<RoleClient>) {
        self.handler.on_resource_list_changed(context).await;
    }

    async fn on_tool_list_changed(&self, context: NotificationContext<RoleClient>) {
        self.handler.on_tool_list_changed(context).await;
    }

    async fn on_prompt_list_changed(&self, context: NotificationContext<RoleClient>) {
        self.handler.on_prompt_list_changed(context).await;
    }

    async fn on_subscriptions_acknowledged(
        &self,
        params: SubscriptionsAcknowledgedNotificationParams,
        context: NotificationContext<RoleClient>,
    ) {
        self.handler.on_subscriptions_acknowledged(params, context).await;
    }

    async fn on_task_status(&self, params: TaskStatusNotificationParams, context: NotificationContext<RoleClient>) {
        self.handler.on_task_status(params, context).await;
    }

    async fn on_custom_notification(&self, notification: CustomNotification, context: NotificationContext<RoleClient>) {
        self.handler.on_custom_notification(notification, context).await;
    }

    fn get_info(&self) -> ClientConfig {
        let mut info = self.handler.get_info();
        let can = |kind| self.responder.can(kind);
        let capabilities = &mut info.capabilities;
        capabilities.elicitation = (can(QuestionKind::Form) || can(QuestionKind::Url)).then(|| {
            let mut modes = ElicitationCapability::new();
            modes.form = can(QuestionKind::Form).then(Default::default);
            modes.url = can(QuestionKind::Url).then(Default::default);
            modes
        });
        capabilities.sampling = can(QuestionKind::Sample).then(SamplingCapability::default);
        capabilities.roots = can(QuestionKind::Roots).then(RootsCapabilities::default);
        if self.tasks {
            capabilities.extensions.get_or_insert_default().entry(TASKS_EXTENSION_ID.to_owned()).or_default();
        }
        info
    }
}

impl<R, H> fmt::Debug for Host<R, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("address", &self.address).field("eras", &self.eras).finish_non_exhaustive()
    }
}
