//! The calls that are kept, each for the visitor who made it.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rmcp::model::JsonObject;
use rounds::Principal;
use serde_json::Value;
use tokio::{sync::Notify, time::timeout};

use super::{StateChange, TriedLeg};
use crate::{problem::Problem, recorder::Events};

/// How many calls are kept: the oldest ones are dropped.
const CALLS: usize = 64;

/// How many legs a call can have.
const LEGS: usize = 40;

/// How large a response may be to be kept, in bytes.
const RESPONSE: usize = 256 << 10;

/// How long a page waits for the response of a leg before it is shown without.
const SOON: Duration = Duration::from_secs(2);

/// The latest calls.
#[derive(Default)]
pub(crate) struct Calls(Mutex<VecDeque<Arc<TriedCall>>>);

impl Calls {
    pub(crate) fn keep(&self, call: TriedCall) -> Arc<TriedCall> {
        let call = Arc::new(call);
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if calls.len() >= CALLS {
            calls.pop_front();
        }
        calls.push_back(call.clone());
        call
    }

    /// The call with this id, if this visitor made it.
    pub(crate) fn find(&self, id: &str, visitor: Option<&Principal>) -> Result<Arc<TriedCall>, Problem> {
        let calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |call: &&Arc<TriedCall>| call.id == id && call.owner.as_ref() == visitor;
        calls.iter().find(is_it).cloned().ok_or(Problem::CallGone)
    }
}

/// A call, with its legs so far.
pub(crate) struct TriedCall {
    pub(crate) id: String,
    pub(crate) owner: Option<Principal>,
    pub(crate) tool: String,
    pub(crate) arguments: JsonObject,
    pub(crate) events: Arc<Events>,
    legs: Mutex<Vec<TriedLeg>>,
    responded: Notify,
}

impl TriedCall {
    pub(crate) fn new(owner: Option<Principal>, tool: String, arguments: JsonObject) -> Self {
        let mut id = [0; 16];
        getrandom::fill(&mut id).expect("the operating system provides randomness");
        let id = format!("{:032x}", u128::from_be_bytes(id));
        let (events, legs, responded) = Default::default();
        Self { id, owner, tool, arguments, events, legs, responded }
    }

    pub(crate) fn legs(&self) -> Vec<TriedLeg> {
        self.lock().clone()
    }

    /// Whether the server works on a leg.
    pub(crate) fn runs(&self) -> bool {
        self.lock().last().is_some_and(|leg| leg.response.is_none())
    }

    /// The latest leg whose questions can still be answered: a leg that was refused does not spend them.
    pub(crate) fn asked(&self) -> Option<TriedLeg> {
        let legs = self.legs();
        let last = legs.iter().rev().find(|leg| leg.response.is_none() || leg.change.is_none() && !leg.is_refused());
        last.filter(|leg| !leg.questions().is_empty()).cloned()
    }

    /// The latest leg that can be sent again as it was.
    pub(crate) fn repeatable(&self) -> Option<TriedLeg> {
        self.lock().iter().rev().find(|leg| leg.sent_state().is_some() && leg.change.is_none()).cloned()
    }

    /// Begins a leg, if none is on its way.
    pub(super) fn begin(
        &self,
        title: &'static str,
        request: Arc<Value>,
        change: Option<StateChange>,
    ) -> Result<(), Problem> {
        let mut legs = self.lock();
        if legs.last().is_some_and(|leg| leg.response.is_none()) {
            return Err(Problem::CallRuns);
        }
        if legs.len() >= LEGS {
            return Err(Problem::TooManyLegs(LEGS));
        }
        legs.push(TriedLeg { title, request, response: None, change });
        Ok(())
    }

    pub(super) fn respond(&self, response: Result<Value, String>) {
        let size = response.as_ref().map_or(0, |response| response.to_string().len());
        let response = match size > RESPONSE {
            true => Err(format!("The response has {size} bytes, which is more than this page keeps.")),
            false => response,
        };
        if let Some(leg) = self.lock().last_mut() {
            leg.response = Some(Arc::new(response));
        }
        self.responded.notify_waiters();
    }

    /// Waits a moment for the response of the latest leg.
    pub(crate) async fn soon(&self) {
        let responded = self.responded.notified();
        if self.runs() {
            // The page is shown without the response otherwise.
            let _ = timeout(SOON, responded).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<TriedLeg>> {
        self.legs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TriedLeg {
    /// Whether the server answered with the frozen error.
    pub(crate) fn is_refused(&self) -> bool {
        self.error().is_some_and(|error| error["data"]["reason"] == "invalid_request_state")
    }
}
