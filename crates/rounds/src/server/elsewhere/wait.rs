//! Waiting for decisions: looking for them before a round is claimed, and holding a retry until there are some.

use std::time::Duration;

use rmcp::model::{InputRequests, InputResponses};
use tokio_util::sync::CancellationToken;

use crate::{
    server::{
        engine::core::Core,
        flows::{DecideError, DecisionOutcome, Flows, FlowsError, QuestionElsewhere, RecordedDecision, Way},
        ledger::register::{FlowRecord, FlowStatus, Watch},
        seal::{
            Digest, FlowId,
            envelope::{Envelope, QuestionKind},
        },
    },
    shared::{clock::Timestamp, order},
};

/// How often the decisions are looked for where a change is not told, as when the store that tells is away.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// What was found of the decisions on a round.
pub(super) enum Found {
    /// All of them, as the answers that the leg brings, and the keys of those that do not count.
    Decided(InputResponses, Vec<String>),
    /// Not all. These are the questions.
    Open(Box<Open>),
    /// The questions cannot be decided: the flow was cancelled or removed, or its record was changed. The leg says what
    /// comes of that.
    Gone,
}

/// The questions of a round that waits.
pub(super) struct Open {
    pub(super) record: FlowRecord,
    pub(super) questions: Vec<QuestionElsewhere>,
    /// The questions as they are on the wire.
    pub(super) requests: InputRequests,
}

impl Open {
    /// Until when the last question can be decided.
    pub(super) fn until(&self) -> Timestamp {
        self.questions.iter().map(|question| question.until).max().unwrap_or(self.record.summary.open_until)
    }
}

/// Whether a round waits for decisions.
pub(super) fn waits_elsewhere(envelope: &Envelope) -> bool {
    !envelope.asked.is_empty() && envelope.asked.iter().all(|asked| asked.kind == QuestionKind::Elsewhere)
}

/// Waits up to this long for the decisions on a round. None when the request was cancelled meanwhile.
pub(super) async fn decisions(
    core: &Core,
    flows: &Flows,
    envelope: &Envelope,
    hold: Duration,
    cancelled: &CancellationToken,
) -> Result<Option<Found>, FlowsError> {
    let found = look(flows, envelope).await?;
    if hold.is_zero() || !matches!(found, Found::Open(_)) {
        return Ok(Some(found));
    }
    // From here on every change is told. What was decided before is found by looking once more.
    let mut changes = flows.watch().await.ok();
    let until = core.now() + hold;
    loop {
        let open = match look(flows, envelope).await? {
            Found::Open(open) => open,
            found => return Ok(Some(found)),
        };
        let left = until.since(core.now());
        if left.is_zero() {
            return Ok(Some(Found::Open(open)));
        }
        // A question whose time is over is decided by that.
        let next = open.questions.iter().map(|question| question.until.since(core.now())).min().unwrap_or(left);
        let next = next.max(Duration::from_millis(1)).min(left).min(LOOK_AGAIN);
        tokio::select! {
            biased;
            () = cancelled.cancelled() => return Ok(None),
            () = told(&mut changes, open.record.summary.id) => {}
            () = core.clock.sleep(next) => {}
        }
    }
}

/// Resolves when the flow has changed. Without a watch, it does not.
async fn told(changes: &mut Option<Watch>, flow: FlowId) {
    while let Some(watch) = changes {
        match watch.next().await {
            Some(changed) if changed.id == flow => return,
            Some(_) => {}
            None => *changes = None,
        }
    }
    std::future::pending::<()>().await;
}

/// Looks for the decisions on a round. A question whose time is over is decided by that, once and for all.
pub(super) async fn look(flows: &Flows, envelope: &Envelope) -> Result<Found, FlowsError> {
    let Some(record) = flows.get(envelope.flow.in_ledger()).await? else { return Ok(Found::Gone) };
    if record.summary.status == FlowStatus::Cancelled {
        return Ok(Found::Gone);
    }
    let details = flows.details(&record)?;
    let mut questions = QuestionElsewhere::of(&record, &details);
    questions.retain(|question| question.round == envelope.round);
    if questions.len() != envelope.asked.len() {
        return Ok(Found::Gone);
    }
    let (mut answers, mut void, mut all) = (InputResponses::new(), Vec::new(), true);
    for question in &mut questions {
        question.decision = decided(flows, &record, question).await?;
        match &question.decision {
            Some(decision) => {
                answers.insert(question.key.clone(), decision.answer(question));
                void.extend(decision.void.is_some().then(|| question.key.clone()));
            }
            None => all = false,
        }
    }
    if all {
        let arguments = Digest::of_arguments(question_arguments(&questions)) == envelope.binding.arguments;
        return match unlike(&questions, arguments) {
            None => Ok(Found::Decided(answers, void)),
            Some(question) => {
                flows.void(&record, question, "the question was another one when the call continued").await;
                Ok(Found::Gone)
            }
        };
    }
    let asked = details.rounds.iter().find(|round| round.number == envelope.round);
    let requests = asked.and_then(|round| serde_json::from_value::<InputRequests>(round.questions.clone()?).ok());
    let Some(mut requests) = requests else { return Ok(Found::Gone) };
    requests.values_mut().for_each(order::restore_fields);
    Ok(Found::Open(Box::new(Open { record, questions, requests })))
}

/// The arguments that were shown with these questions.
fn question_arguments(questions: &[QuestionElsewhere]) -> Option<&rmcp::model::JsonObject> {
    questions.first()?.arguments.as_ref()?.as_object()
}

/// The question whose decision was made on something else than what is asked, if there is one.
fn unlike(questions: &[QuestionElsewhere], same_arguments: bool) -> Option<&QuestionElsewhere> {
    questions.iter().find(|question| {
        let decision = question.decision.as_ref();
        decision.is_some_and(|decision| decision.shown != question.shown || !same_arguments)
    })
}

/// The decision on a question, or the end of its time.
async fn decided(
    flows: &Flows,
    record: &FlowRecord,
    question: &QuestionElsewhere,
) -> Result<Option<RecordedDecision>, FlowsError> {
    if let Some((_, decision)) = flows.decision(question).await? {
        return Ok(Some(decision));
    }
    if flows.now() < question.until {
        return Ok(None);
    }
    match flows.record_decision(record, question, DecisionOutcome::Expired, "", Way::Expiry).await {
        Ok(decision) => Ok(Some(decision)),
        Err(DecideError::AlreadyDecided { decision }) => Ok(Some(*decision)),
        Err(DecideError::Flows(error)) => Err(error),
        Err(_) => Ok(None),
    }
}
