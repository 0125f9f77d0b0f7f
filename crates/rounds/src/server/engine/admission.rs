//! Admission: what is settled before the handler of a tool runs, such as the user's confirmation.

use std::sync::Arc;

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{JsonObject, PaginatedRequestParams, Tool},
    service::RequestContext,
};

use super::{exchange::Exchange, frame::Declared, view::View};
use crate::server::seal::envelope::Method;

/// Decides whether a tool may run. Implemented by what the builder's `confirm` sets.
pub(crate) trait Admit: Send + Sync + 'static {
    /// Admits the call, or says what to ask first or how it ends.
    fn admit(&self, view: &View, tool: &Tool, arguments: Option<&JsonObject>) -> Result<(), Declared>;
}

/// A list of tools has at most this many pages that are searched.
const PAGES: usize = 100;

/// Admits a call, or declares what to ask first: then the handler does not run.
pub(crate) async fn admit<X: Exchange, H: ServerHandler>(
    handler: &H,
    request: &X,
    context: &RequestContext<RoleServer>,
    view: &Arc<View>,
) -> Result<(), ErrorData> {
    let Some(admission) = view.frame.core.admission.as_deref() else { return Ok(()) };
    let tool = find(handler, request.target(), context).await?;
    admission.admit(view, &tool, request.arguments()).map_err(|declared| {
        view.frame.declare(declared);
        ErrorData::internal_error("the call was not admitted", None)
    })
}

/// Whether this run of the handler has to be admitted. That of a durable flow that replays was admitted when it ran for
/// the first time.
pub(crate) fn is_admitted_first<X: Exchange>(view: &View) -> bool {
    X::METHOD == Method::Tool && view.frame.core.admission.is_some() && view.frame.journal().is_none()
}

/// The tool of this name, as the server describes it: by its name, or else in the list of all. A tool that the server
/// does not list has a name and no annotations.
async fn find<H: ServerHandler>(
    handler: &H,
    name: &str,
    context: &RequestContext<RoleServer>,
) -> Result<Tool, ErrorData> {
    if let Some(tool) = handler.get_tool(name) {
        return Ok(tool);
    }
    let mut page = None;
    for _ in 0..PAGES {
        let listed = handler.list_tools(page, context.clone()).await?;
        if let Some(tool) = listed.tools.into_iter().find(|tool| tool.name == name) {
            return Ok(tool);
        }
        match listed.next_cursor {
            Some(cursor) => page = Some(PaginatedRequestParams::default().with_cursor(Some(cursor))),
            None => break,
        }
    }
    Ok(Tool::new(name.to_owned(), "", JsonObject::new()))
}
