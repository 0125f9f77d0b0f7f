//! The shim: a handler that is called again for each round, at a client of the legacy era. Its questions are asked over the live
//! connection, and it is called again with the answers, all within the one request that the client knows of.

use std::{sync::Arc, time::Duration};

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{ElicitRequestParams, InputRequest, InputRequests, InputResponses},
    service::RequestContext,
};
use serde::de::DeserializeOwned;

use crate::{
    server::{
        engine::{
            admission,
            answer::Received,
            exchange::{Exchange, Response},
            frame::OpenQuestion,
            view::View,
        },
        policy::{
            elsewhere::{are_elsewhere, leave_elsewhere},
            error::FlowError,
            gate::kind_of,
            measure::Limit,
            observe::Station,
        },
        seal::envelope::QuestionKind,
    },
    shared::order,
};

/// Calls the handler until it no longer asks.
///
/// To be polled in the task in which rmcp handles the request, like every push.
pub(crate) async fn call<X: Exchange, H: ServerHandler>(
    handler: &H,
    mut request: X,
    mut view: Arc<View>,
    mut context: RequestContext<RoleServer>,
) -> Result<X::Response, ErrorData> {
    let frame = view.frame.clone();
    let spare = Spare::of(&mut request, &mut context);
    loop {
        view.put(&mut context);
        frame.event(view.round.number, &Station::Started);
        // Tasks that this run of the handler starts learn when the run is over, like those of a leg.
        context.ct = spare.context.ct.child_token();
        let over = context.ct.clone().drop_guard();
        let admitted = match admission::is_admitted_first::<X>(&view) {
            true => Box::pin(admission::admit(handler, &request, &context, &view)).await,
            false => Ok(()),
        };
        let returned = match admitted {
            Ok(()) => request.call(handler, context).await,
            Err(error) => Err(error),
        };
        drop(over);
        let (returned, declared) = frame.came_to(view.round.number, returned);
        let mut asks = match returned?.into_asks() {
            // Their answers do not come through this client.
            Ok(asks) if asks.input_requests.as_ref().is_some_and(are_elsewhere) => return Ok(asks.into()),
            // The questions that a handler declares are pushed in any case.
            Ok(asks) if declared || frame.legacy().pushes().is_some() => asks,
            // It is told further on that it cannot ask.
            Ok(asks) => return Ok(asks.into()),
            Err(complete) => return Ok(complete),
        };
        let (max_rounds, timeout) =
            frame.legacy().pushes().unwrap_or_else(|| (frame.core.limits.rounds, frame.round_lifetime()));
        if view.round.number >= max_rounds {
            frame.core.limit_reached(Limit::Rounds);
            return Ok(X::Response::failed(FlowError::TooManyRounds { limit: max_rounds })?);
        }
        let keys = order::keys(&asks);
        let mut requests = asks.input_requests.take().unwrap_or_default();
        leave_elsewhere(&mut requests);
        if requests.is_empty() && asks.request_state.is_none() {
            return Ok(X::Response::failed(FlowError::NothingAsked)?);
        }
        let received = match push(&view, &keys, requests, timeout).await {
            Ok(received) => received,
            Err(error) => return Ok(X::Response::failed(error)?),
        };
        (request, context) = spare.again(frame.arguments.as_deref());
        *request.answers() = Some(raw(&received));
        *request.state() = asks.request_state.clone();
        frame.answers().receive(received);
        frame.onces.called_again();
        let round = view.round.next();
        let (peer, server) = (view.peer, view.server.clone());
        view = View::new(round, peer, asks.request_state, true, server, frame.clone(), None);
    }
}

/// What it takes to call the handler again. It is kept while a person thinks, and so without the trees that the client chose the
/// size of.
struct Spare<X> {
    /// Without arguments, which the frame has, and without answers, which are others each time.
    request: X,
    /// Without `_meta`.
    context: RequestContext<RoleServer>,
    /// `_meta`, as JSON text.
    meta: Option<Box<str>>,
}

impl<X: Exchange> Spare<X> {
    fn of(request: &mut X, context: &mut RequestContext<RoleServer>) -> Self {
        let (arguments, answers) = (request.arguments_mut().and_then(Option::take), request.answers().take());
        let meta = std::mem::take(&mut context.meta);
        let spare = Self {
            request: request.clone(),
            context: context.clone(),
            meta: serde_json::to_string(&meta).ok().filter(|_| !meta.is_empty()).map(String::into_boxed_str),
        };
        if let Some(place) = request.arguments_mut() {
            *place = arguments;
        }
        *request.answers() = answers;
        context.meta = meta;
        spare
    }

    fn again(&self, arguments: Option<&str>) -> (X, RequestContext<RoleServer>) {
        let (mut request, mut context) = (self.request.clone(), self.context.clone());
        if let Some(place) = request.arguments_mut() {
            *place = arguments.and_then(read);
        }
        context.meta = self.meta.as_deref().and_then(read).unwrap_or_default();
        (request, context)
    }
}

/// Reads what was JSON before it was text.
fn read<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_str(text).ok()
}

/// Asks these together, in the order of these keys, and waits for all.
async fn push(
    view: &View,
    keys: &[String],
    mut requests: InputRequests,
    timeout: Duration,
) -> Result<Vec<(String, QuestionKind, Received)>, FlowError> {
    if let Some(error) = view.frame.onces.cannot_ask() {
        return Err(error);
    }
    let limit = view.frame.core.limits.questions;
    if requests.len() > limit {
        view.frame.core.limit_reached(Limit::Questions);
        return Err(FlowError::TooManyQuestions { asks: requests.len(), limit });
    }
    if let Some(key) = requests.keys().find(|key| view.frame.answers().clashes(key)) {
        return Err(FlowError::DuplicateKey { key: key.clone() });
    }
    let until = view.frame.core.now() + timeout;
    let mut asked = Vec::new();
    for (key, request) in keys.iter().filter_map(|key| requests.remove_entry(key)) {
        let (kind, message) = (kind_of(&request)?, words(&request).into());
        let (request, name) = (Some(Box::new(request)), key.as_str().into());
        let question = OpenQuestion { key: name, kind, request, form: None, digest: None, message, until: Some(until) };
        asked.push((key, kind, view.frame.pose(question, false)?));
    }
    let mut received = Vec::new();
    for (key, kind, opened) in asked {
        received.push((key, kind, opened.await?));
    }
    Ok(received)
}

fn words(request: &InputRequest) -> String {
    match request {
        InputRequest::Elicitation(request) => match &request.params {
            ElicitRequestParams::FormElicitationParams { message, .. }
            | ElicitRequestParams::UrlElicitationParams { message, .. } => message.clone(),
            _ => String::new(),
        },
        InputRequest::CreateMessage(_) => "a question to the client's model".to_owned(),
        _ => "the client's roots".to_owned(),
    }
}

/// The answers as a client of the modern era would have sent them, for a handler that reads them there.
fn raw(received: &[(String, QuestionKind, Received)]) -> InputResponses {
    received.iter().filter_map(|(key, kind, received)| Some((key.clone(), received.to_raw(*kind)?))).collect()
}
