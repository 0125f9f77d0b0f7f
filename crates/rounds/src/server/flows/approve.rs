//! Who may answer: the server's own rules, and how a question's rule is applied to a person.

use std::{collections::HashMap, fmt::Write as _};

use super::{decision::DecideError, question::QuestionElsewhere};
use crate::{
    server::policy::{elsewhere::Approvers, principal::Principal},
    shared::clock::BoxFuture,
};

/// A rule of the server's own: who may answer a question. Implemented by every
/// `Fn(&Principal, &QuestionElsewhere) -> bool`.
pub trait Approve: Send + Sync + 'static {
    /// Whether this principal may answer this question. Asked when the question is shown and again when it is decided.
    fn may_answer<'a>(&'a self, who: &'a Principal, question: &'a QuestionElsewhere) -> BoxFuture<'a, bool>;
}

impl<F> Approve for F
where
    F: Fn(&Principal, &QuestionElsewhere) -> bool + Send + Sync + 'static,
{
    fn may_answer<'a>(&'a self, who: &'a Principal, question: &'a QuestionElsewhere) -> BoxFuture<'a, bool> {
        Box::pin(std::future::ready(self(who, question)))
    }
}

/// The roles of principals. Implemented by every `Fn(&Principal) -> Vec<String>`.
pub trait Roles: Send + Sync + 'static {
    /// The roles that this principal has now.
    fn roles<'a>(&'a self, who: &'a Principal) -> BoxFuture<'a, Vec<String>>;
}

impl<F> Roles for F
where
    F: Fn(&Principal) -> Vec<String> + Send + Sync + 'static,
{
    fn roles<'a>(&'a self, who: &'a Principal) -> BoxFuture<'a, Vec<String>> {
        Box::pin(std::future::ready(self(who)))
    }
}

/// Who may decide what, as the server says.
#[derive(Default)]
pub(crate) struct Deciders {
    pub(crate) rules: HashMap<String, Box<dyn Approve>>,
    pub(crate) roles: Option<Box<dyn Roles>>,
}

impl Approvers {
    /// Whether this person may answer. Where the server does not run, a rule of its own cannot be applied.
    pub(super) async fn admit(
        &self,
        who: &Principal,
        question: &QuestionElsewhere,
        deciders: Option<&Deciders>,
    ) -> Result<(), DecideError> {
        let refused = || DecideError::NotAllowed { who: who.as_str().to_owned(), approvers: self.in_words() };
        let is = |name: &String| name == who.as_str();
        if self.not_requester && question.requester.as_ref().is_some_and(is) {
            return Err(refused());
        }
        if self.people.as_ref().is_some_and(|people| !people.iter().any(is)) {
            return Err(refused());
        }
        if let Some(wanted) = &self.roles {
            let known = match (deciders, deciders.and_then(|deciders| deciders.roles.as_deref())) {
                (_, Some(roles)) => roles.roles(who).await,
                (Some(_), None) => Vec::new(),
                (None, None) => return Err(DecideError::RolesElsewhere { roles: wanted.join(" or ") }),
            };
            if !known.iter().any(|role| wanted.contains(role)) {
                return Err(refused());
            }
        }
        if let Some(name) = &self.rule {
            let rule = deciders.and_then(|deciders| deciders.rules.get(name));
            let rule = rule.ok_or_else(|| DecideError::RuleElsewhere { rule: name.clone() })?;
            if !rule.may_answer(who, question).await {
                return Err(refused());
            }
        }
        Ok(())
    }

    /// The rule for a person to read: `the role manager, but not the requester`.
    pub fn in_words(&self) -> String {
        let mut words = Vec::new();
        if let Some(people) = &self.people {
            words.push(people.join(" or "));
        }
        if let Some(roles) = &self.roles {
            words.push(format!("the role {}", roles.join(" or ")));
        }
        if let Some(rule) = &self.rule {
            words.push(format!("those whom the rule {rule} admits"));
        }
        let mut words = if words.is_empty() { "any person who has signed in".to_owned() } else { words.join(", ") };
        if self.not_requester {
            let _ = write!(words, ", but not the requester");
        }
        words
    }
}
