//! Questions that are answered elsewhere: who may answer one, and what the engine knows of it.

use std::{sync::Arc, time::Duration};

use rmcp::model::{InputRequest, InputRequests, JsonObject, RequestMetaObject, RequestParamsMeta as _};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::{
    server::seal::FlowId,
    shared::{clock::Timestamp, wire::ELSEWHERE},
};

/// Who may answer a question that is asked elsewhere. All conditions have to hold.
///
/// It is recorded with the question, so that every instance and every tool applies the same rule. A person is checked
/// when the question is shown and again when it is decided.
///
/// ```
/// use rounds::elsewhere::Approvers;
///
/// let managers = Approvers::role("manager").not_requester();
/// let two_people = Approvers::people(["ada", "grace"]);
/// let own_rule = Approvers::rule("on-call"); // set with `Elsewhere::rule`
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[must_use]
pub struct Approvers {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) people: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) roles: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rule: Option<String>,
    #[serde(default)]
    pub(crate) not_requester: bool,
}

impl Approvers {
    /// Everyone whom the way in has authenticated.
    pub fn anyone() -> Self {
        Self::default()
    }

    /// Principals with one of these names.
    pub fn people(names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { people: Some(names.into_iter().map(Into::into).collect()), ..Self::default() }
    }

    /// Principals with this role. The server's [`Roles`](crate::elsewhere::Roles) say who has it.
    pub fn role(role: impl Into<String>) -> Self {
        Self::roles([role])
    }

    /// Principals with one of these roles.
    pub fn roles(roles: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { roles: Some(roles.into_iter().map(Into::into).collect()), ..Self::default() }
    }

    /// Principals that the server's rule of this name admits: see [`Elsewhere::rule`](crate::elsewhere::Elsewhere::rule).
    pub fn rule(name: impl Into<String>) -> Self {
        Self { rule: Some(name.into()), ..Self::default() }
    }

    /// The same, but not the principal that made the call. A caller without a principal has no name that could be
    /// compared: such a call is held back by [`Principal::required`](crate::Principal::required), not here.
    pub fn not_requester(self) -> Self {
        Self { not_requester: true, ..self }
    }
}

/// A question that is answered elsewhere, as its shape describes it. It travels in the extensions of its request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PosedElsewhere {
    pub(crate) message: String,
    /// The form. None for an approval, and for a page of the author's own.
    pub(crate) schema: Option<JsonObject>,
    pub(crate) approvers: Approvers,
    /// The address of the author's own page, with `{name}` where its name belongs.
    pub(crate) page: Option<String>,
    /// How long it waits, until it is known until when.
    #[serde(skip)]
    pub(crate) within: Option<Duration>,
    pub(crate) until: Option<Timestamp>,
}

impl PosedElsewhere {
    /// What this request asks elsewhere, if it does.
    pub(crate) fn of(request: &InputRequest) -> Option<&Self> {
        match request {
            InputRequest::Elicitation(request) => request.extensions.get(),
            _ => None,
        }
    }

    pub(crate) fn of_mut(request: &mut InputRequest) -> Option<&mut Self> {
        match request {
            InputRequest::Elicitation(request) => request.extensions.get_mut(),
            _ => None,
        }
    }
}

/// Whether all of these requests are of questions that are answered elsewhere, by what they say on the wire.
pub(crate) fn are_elsewhere(requests: &InputRequests) -> bool {
    !requests.is_empty() && requests.values().all(is_marked)
}

/// Leaves the questions that are answered elsewhere for a later round, if there are others: each round has one kind, so
/// that no answer of a client is lost while a decision is awaited.
pub(crate) fn leave_elsewhere(requests: &mut InputRequests) {
    let is_elsewhere = |request: &InputRequest| PosedElsewhere::of(request).is_some();
    if requests.values().any(is_elsewhere) && !requests.values().all(is_elsewhere) {
        requests.retain(|_, request| !is_elsewhere(request));
    }
}

/// The `_meta` member by which a client can tell such a question from a page to visit.
pub(crate) fn mark() -> RequestMetaObject {
    let mut meta = RequestMetaObject::default();
    meta.0.0.insert(ELSEWHERE.to_owned(), true.into());
    meta
}

fn is_marked(request: &InputRequest) -> bool {
    let InputRequest::Elicitation(request) = request else { return false };
    // One that comes out of a record has its metadata beside its parameters.
    let aside = request.extensions.get::<RequestMetaObject>();
    aside.or(request.params.meta()).is_some_and(|meta| meta.0.0.contains_key(ELSEWHERE))
}

/// What the engine has to know to ask elsewhere.
#[derive(Debug, Clone, Default)]
pub(crate) struct AskingElsewhere {
    /// The address under which questions are shown.
    pub(crate) page: Option<String>,
    /// Notified when there is something to be done that no request waits for.
    pub(crate) wake: Arc<Notify>,
}

impl AskingElsewhere {
    /// The longest time that a question may wait.
    pub(crate) const LONGEST: Duration = super::lifetimes::LONGEST;

    /// The address of this question, if questions are shown somewhere.
    pub(crate) fn address(&self, flow: FlowId, key: &str) -> Option<String> {
        let base = self.page.as_deref()?.trim_end_matches('/');
        Some(format!("{base}/{flow}/{}", in_path(key)))
    }
}

/// A key as a segment of a path.
fn in_path(key: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~');
    let encoded = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    key.bytes().map(encoded).collect()
}
