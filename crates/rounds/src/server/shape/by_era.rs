//! Two handlers for one tool, selected by the protocol era of the client.

use rmcp::handler::server::tool::{ToolCallContext, ToolRoute};

use crate::server::policy::gate::Era;

/// Makes one tool from two handlers: the first for clients of the modern era, the second for clients of the legacy era.
///
/// The tool is listed with the description of the first. The second handler may ask with an [`Ask`](crate::Ask), which
/// pushes questions over the live connection, or not ask at all.
///
/// ```
/// use rmcp::{handler::server::router::tool::{ToolRoute, ToolRouter}, model::CallToolResponse, tool, tool_router};
/// use rounds::{Ask, FlowError, Given, Round, by_era, text};
///
/// struct Deploys;
///
/// #[tool_router]
/// impl Deploys {
///     #[tool(description = "Deploys, after asking")]
///     async fn deploy(&self, round: Round) -> Result<CallToolResponse, FlowError> {
///         match round.given::<bool>("confirm") {
///             Given::Accepted(true) => Ok(text("Deployed.")),
///             Given::Missing => round.ask_form::<bool>("confirm", "Deploy?"),
///             _ => Ok(text("Not deployed.")),
///         }
///     }
///
///     #[tool(description = "Deploys, after asking")]
///     async fn deploy_legacy(&self, ask: Ask) -> Result<String, FlowError> {
///         Ok(if ask.confirm("Deploy?").await? { "Deployed." } else { "Not deployed." }.to_owned())
///     }
/// }
///
/// let modern = ToolRoute::new(Deploys::deploy_tool_attr(), Deploys::deploy);
/// let legacy = ToolRoute::new(Deploys::deploy_legacy_tool_attr(), Deploys::deploy_legacy);
/// let router = ToolRouter::new().with_route(by_era(modern, legacy));
/// assert!(router.has_route("deploy") && !router.has_route("deploy_legacy"));
/// ```
///
/// # Panics
///
/// If the two handlers take different arguments, because a client sees one schema.
pub fn by_era<S: Send + Sync + 'static>(modern: ToolRoute<S>, legacy: ToolRoute<S>) -> ToolRoute<S> {
    assert!(
        modern.attr.input_schema == legacy.attr.input_schema,
        "`{}` and `{}` take different arguments, and a client sees one schema: give both handlers the same parameters",
        modern.name(),
        legacy.name()
    );
    let (attr, modern, legacy) = (modern.attr, modern.call, legacy.call);
    ToolRoute::new_dyn(attr, move |context: ToolCallContext<'_, S>| match Era::of(&context.request_context) {
        Era::Modern => modern(context),
        Era::Legacy => legacy(context),
    })
}
