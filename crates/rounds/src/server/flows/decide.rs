//! Showing questions and recording decisions: what every way in does through [`Flows`].

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Flows, FlowsError,
    approve::{Deciders, Roles},
    decision::{DecideError, DecisionOutcome, RecordedDecision, Verdict, Way},
    question::{ElsewhereKind, QuestionElsewhere},
};
use crate::server::{
    ledger::{
        PrincipalShare, Retention,
        documents::{DocumentChange, DocumentId, DocumentKind, Version},
        register::{Changed, FlowRecord, FlowStatus},
    },
    policy::principal::Principal,
    seal::{
        Digest, FlowId,
        page::{self, PageQuestion},
    },
};

impl Flows {
    /// The questions of a flow that are answered elsewhere, open and decided, in the order in which they were asked. The id is
    /// that of the register, or the name of the flow.
    ///
    /// It does not decide who may see them: ask [`may_answer`](Self::may_answer).
    ///
    /// # Errors
    ///
    /// [`FlowsError`], as for every method here; [`FlowsError::Unreadable`] if a record does not open.
    pub async fn questions(&self, id: FlowId) -> Result<Vec<QuestionElsewhere>, FlowsError> {
        let Some(record) = self.get(id).await? else { return Ok(Vec::new()) };
        let mut questions = QuestionElsewhere::of(&record, &self.details(&record)?);
        for question in &mut questions {
            question.decision = self.decision(question).await?.map(|(_, decision)| decision);
        }
        Ok(questions)
    }

    /// The open question with this key. None if the flow does not wait for it.
    ///
    /// # Errors
    ///
    /// As for [`questions`](Self::questions).
    pub async fn question(&self, id: FlowId, key: &str) -> Result<Option<QuestionElsewhere>, FlowsError> {
        let questions = self.questions(id).await?;
        Ok(questions.into_iter().find(|question| question.is_open && question.key == key))
    }

    /// Whether this principal may answer this question. A page asks this before it shows the question, and
    /// [`decide`](Self::decide) asks it again.
    ///
    /// # Errors
    ///
    /// [`DecideError::NotAllowed`], or [`DecideError::RuleElsewhere`] if the rule cannot be applied here.
    pub async fn may_answer(&self, question: &QuestionElsewhere, who: &Principal) -> Result<(), DecideError> {
        question.approvers.admit(who, question, self.deciders.as_deref()).await
    }

    /// Says which roles principals have, where no server runs. Otherwise the server's own settings say so.
    pub fn with_roles(mut self, roles: impl Roles) -> Self {
        self.deciders = Some(Arc::new(Deciders { roles: Some(Box::new(roles)), ..Deciders::default() }));
        self
    }

    /// Decides a question, and records who did, when, through which way, and what was shown. A call whose client waits
    /// continues with its next request, and a task by itself. A call that has ended with a reference continues by itself
    /// too: on this instance at once, or on another one after [a lease](crate::Limits::lease) at most.
    ///
    /// The question is the one that was shown to the person: if it is another one by now, or was decided, nothing is
    /// recorded.
    ///
    /// # Errors
    ///
    /// [`DecideError`] says which check failed. [`DecideError::AlreadyDecided`] has the decision that was first.
    pub async fn decide(
        &self,
        question: &QuestionElsewhere,
        verdict: Verdict,
        by: &Principal,
        way: Way,
    ) -> Result<RecordedDecision, DecideError> {
        let (record, now_asked) = self.asked_now(question.flow, question.round, &question.key).await?;
        self.may_answer(&now_asked, by).await?;
        if now_asked.shown != question.shown {
            return Err(DecideError::Changed);
        }
        let outcome = now_asked.outcome(verdict)?;
        self.record_decision(&record, &now_asked, outcome, by.as_str(), way).await
    }

    /// Completes a page of the author's own with a value. The name is the one in the address of the page. The first
    /// completion counts. `by` is the name to record, such as the account that signed in.
    ///
    /// # Errors
    ///
    /// [`DecideError`], as for [`decide`](Self::decide). [`DecideError::NotFound`] for a name that this server did not
    /// make.
    pub async fn complete(
        &self,
        name: &str,
        value: Value,
        by: Option<&Principal>,
    ) -> Result<RecordedDecision, DecideError> {
        let (flow, round, key) = self.page_of(name).ok_or(DecideError::NotFound)?;
        let (record, question) = self.asked_now(flow, round, &key).await?;
        if question.kind != ElsewhereKind::Page {
            return Err(DecideError::WrongVerdict { question: question.kind.in_words() });
        }
        let outcome = DecisionOutcome::Answered { value };
        self.record_decision(&record, &question, outcome, by.map_or("", Principal::as_str), Way::Page).await
    }

    /// The question that a page is for, so that it can be shown there. None for a name that this server did not make, and for
    /// a question that is no longer open. Looking at it grants and changes nothing.
    ///
    /// # Errors
    ///
    /// As for [`questions`](Self::questions).
    pub async fn question_of_page(&self, name: &str) -> Result<Option<QuestionElsewhere>, FlowsError> {
        let Some((flow, round, key)) = self.page_of(name) else { return Ok(None) };
        let question = self.question(flow, &key).await?;
        Ok(question.filter(|question| question.round == round))
    }

    /// The question as it is asked now, if it can still be decided.
    async fn asked_now(
        &self,
        flow: FlowId,
        round: u32,
        key: &str,
    ) -> Result<(FlowRecord, QuestionElsewhere), DecideError> {
        let record = self.get(flow).await?.ok_or(DecideError::NotFound)?;
        let questions = QuestionElsewhere::of(&record, &self.details(&record)?);
        let question = questions.into_iter().find(|question| question.round == round && question.key == key);
        let question = question.ok_or(DecideError::NotFound)?;
        if let Some((_, decision)) = self.decision(&question).await? {
            return Err(DecideError::AlreadyDecided { decision: Box::new(decision) });
        }
        if question.until <= self.now() {
            return Err(DecideError::Expired);
        }
        if !question.is_open {
            return Err(DecideError::Withdrawn { status: question.status });
        }
        Ok((record, question))
    }

    /// Records a decision, unless there is one.
    pub(crate) async fn record_decision(
        &self,
        record: &FlowRecord,
        question: &QuestionElsewhere,
        outcome: DecisionOutcome,
        by: &str,
        way: Way,
    ) -> Result<RecordedDecision, DecideError> {
        let (by, at, shown) = (by.to_owned(), self.now(), question.shown);
        let decision = RecordedDecision { outcome, by, at, way, shown, void: None };
        if self.write_decision(record, question, None, &decision).await? {
            tracing::info!(
                target: "rounds",
                flow = %question.flow, key = question.key, by = decision.by, %way, "a question was decided elsewhere"
            );
            self.wake();
            return Ok(decision);
        }
        match self.decision(question).await? {
            Some((_, decision)) => Err(DecideError::AlreadyDecided { decision: Box::new(decision) }),
            None => Err(DecideError::NotFound),
        }
    }

    /// Notes that the decision on this question does not count, and why, so that the person who made it can see so.
    pub(crate) async fn void(&self, record: &FlowRecord, question: &QuestionElsewhere, why: &str) {
        let Ok(Some((version, decision))) = self.decision(question).await else { return };
        if decision.void.is_some() {
            return;
        }
        let voided = RecordedDecision { void: Some(why.to_owned()), ..decision };
        tracing::warn!(
            target: "rounds",
            flow = %question.flow, key = question.key, by = voided.by, why, "a decision does not count"
        );
        if let Err(error) = self.write_decision(record, question, Some(version), &voided).await {
            tracing::warn!(target: "rounds", %error, "that a decision does not count could not be recorded");
        }
    }

    /// Does so for the decisions with these keys, or for all, on a round of a flow.
    pub(crate) async fn void_round(&self, flow: FlowId, round: u32, keys: Option<&[String]>, why: &str) {
        let Ok(Some(record)) = self.get(flow).await else { return };
        let Ok(details) = self.details(&record) else { return };
        for question in QuestionElsewhere::of(&record, &details) {
            if question.round == round && keys.is_none_or(|keys| keys.contains(&question.key)) {
                self.void(&record, &question, why).await;
            }
        }
    }

    /// The decision on this question.
    pub(crate) async fn decision(
        &self,
        question: &QuestionElsewhere,
    ) -> Result<Option<(Version, RecordedDecision)>, FlowsError> {
        let id = decision_id(question.flow, question.round, &question.key);
        let Some((version, content)) = self.read_document(id).await? else { return Ok(None) };
        let unreadable = |_| FlowsError::Unreadable { id: question.flow };
        let stored: StoredDecision = serde_json::from_slice(&content).map_err(unreadable)?;
        Ok(Some((version, stored.decision)))
    }

    /// Records a decision, which is due at once: an instance looks whether a call goes on with it.
    async fn write_decision(
        &self,
        record: &FlowRecord,
        question: &QuestionElsewhere,
        before: Option<Version>,
        decision: &RecordedDecision,
    ) -> Result<bool, DecideError> {
        let stored = StoredDecision { flow: question.flow, round: question.round, decision: decision.clone() };
        let content = serde_json::to_vec(&stored).expect("a decision has no type that JSON cannot write");
        if content.len() > self.record_bytes {
            return Err(DecideError::TooLarge { bytes: content.len(), limit: self.record_bytes });
        }
        let id = decision_id(question.flow, question.round, &question.key);
        let tell = Some(Changed { id: question.flow, status: FlowStatus::Waiting });
        let (due, keep) = (Some(self.now()), self.keep_with(record));
        let change = DocumentChange { sealed: content, due, keep, tell };
        Ok(self.write_document(id, before, change).await?.is_some())
    }

    /// Reads a decision that is due. None if it is over by now.
    pub(crate) async fn due_decision(&self, id: DocumentId) -> Result<Option<DueDecision>, FlowsError> {
        let Some((version, content)) = self.read_document(id).await? else { return Ok(None) };
        let stored: StoredDecision = serde_json::from_slice(&content).map_err(|_| FlowsError::UnreadableDocument)?;
        Ok(Some(DueDecision { id, version, content, flow: stored.flow, round: stored.round }))
    }

    /// Notes that nothing is left to be done about a decision.
    pub(crate) async fn attended(&self, due: DueDecision) -> Result<(), FlowsError> {
        let Some(record) = self.get(due.flow).await? else { return self.remove_document(due.id).await };
        let change = DocumentChange { sealed: due.content, due: None, keep: self.keep_with(&record), tell: None };
        // If another instance was first, or the decision was found not to count, there is nothing to be done either.
        self.write_document(due.id, Some(due.version), change).await.map(drop)
    }

    /// As long as the record of this flow, and counted with it.
    pub(super) fn keep_with(&self, record: &FlowRecord) -> Retention {
        let share = record.summary.principal.map_or(PrincipalShare::Common, PrincipalShare::Principal);
        Retention { now: self.now(), until: record.summary.kept_until, share }
    }

    fn page_of(&self, name: &str) -> Option<PageQuestion> {
        page::question(&self.ring(), name)
    }
}

fn decision_id(flow: FlowId, round: u32, key: &str) -> DocumentId {
    DocumentId { kind: DocumentKind::Decision, key: Digest::of_document("decision", flow, &format!("{round}/{key}")) }
}

/// A decision as it is stored, with what it is on.
#[derive(Serialize, Deserialize)]
struct StoredDecision {
    flow: FlowId,
    round: u32,
    #[serde(flatten)]
    decision: RecordedDecision,
}

/// A decision that an instance has to look at.
pub(crate) struct DueDecision {
    id: DocumentId,
    version: Version,
    content: Vec<u8>,
    pub(crate) flow: FlowId,
    pub(crate) round: u32,
}
