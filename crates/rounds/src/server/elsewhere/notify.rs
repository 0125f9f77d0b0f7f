//! Notifying people of a question: what a notification says, and when it is sent, tried again and given up.

use std::{error::Error, fmt, time::Duration};

use serde::Serialize;
use serde_json::{Value, json};

use super::{ElsewhereService, work::Worked};
use crate::{
    server::{
        engine::core::Core,
        flows::{ElsewhereKind, Flows, FlowsError, NoticeDocument, Notified, QuestionElsewhere},
        ledger::documents::{DocumentId, Version},
        seal::FlowId,
    },
    shared::clock::{BoxFuture, Timestamp},
};

/// How often a notification is tried at most: for about ten hours.
const ATTEMPTS: u32 = 20;

/// How long one attempt may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The pause after the first failed attempt. It doubles, up to the longest one.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// The longest text of a question in a notification, in bytes.
const TEXT_BYTES: usize = 2000;

/// Tells people that a question waits for them: a message in a chat, an e-mail, a webhook. Set it with
/// [`Elsewhere::notify`](crate::elsewhere::Elsewhere::notify).
///
/// It is called once for each question, on one of the instances. If it fails, it is called again after one second, then
/// two, four and so on, up to an hour, and 20 times at most. That it succeeded is recorded, so that no other instance calls
/// it. If the instance stops after the call and before the record, the notification is sent a second time: the receiver
/// knows it by its [`id`](Notice::id). A question that was decided or withdrawn meanwhile is not notified.
pub trait Notify: Send + Sync + 'static {
    /// Sends the notification. It is given up after 30 seconds.
    fn notify<'a>(&'a self, notice: &'a Notice) -> BoxFuture<'a, Result<(), NotifyError>>;
}

/// What a notification says. It may be read by more people than the question is for, such as those in a chat, so it has
/// neither the arguments of the call nor its caller, and the text of the question only if the author
/// [says so](crate::elsewhere::Elsewhere::notify_with_text).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Notice {
    /// By this a receiver knows a notification that it has got before: the same for every attempt.
    pub id: String,
    /// The id of the flow in the register.
    #[serde(serialize_with = "as_text")]
    pub flow: FlowId,
    /// The key of the question.
    pub key: String,
    /// What it asks for.
    pub kind: ElsewhereKind,
    /// The name of the tool or prompt, or the URI of the resource.
    pub target: String,
    /// Where the question is shown. The address admits no one: the page authenticates its visitors. None if the questions
    /// are shown [nowhere](crate::elsewhere::Elsewhere::at), and for a page of the author's own, because its name completes
    /// the question.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// Until when it can be decided.
    pub until: Timestamp,
    /// The text of the question, cut to 2000 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl Notice {
    fn new(document: &NoticeDocument, question: QuestionElsewhere, core: &Core, has_text: bool) -> Self {
        let asking = core.elsewhere.as_ref().filter(|_| question.kind != ElsewhereKind::Page);
        Self {
            id: format!("{:?}", document.digest()),
            link: asking.and_then(|asking| asking.address(question.flow, &question.key)),
            flow: question.flow,
            key: question.key,
            kind: question.kind,
            target: question.target,
            until: question.until,
            message: has_text.then(|| cut(question.message)),
        }
    }

    /// The body of a webhook: an object with `type`, which is `question.asked`, and with the notification as `data`. It is
    /// the same for every attempt.
    pub fn to_json(&self) -> Value {
        json!({ "type": "question.asked", "data": self })
    }
}

/// Why a notification was not sent. It is tried again.
#[derive(Debug, thiserror::Error)]
#[error("the notification was not sent: {0}")]
pub struct NotifyError(#[source] Box<dyn Error + Send + Sync>);

impl NotifyError {
    /// A failure with this cause.
    pub fn new(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(cause.into())
    }
}

/// How notifications are sent.
pub(super) struct Notifying {
    pub(super) notify: Box<dyn Notify>,
    pub(super) has_text: bool,
}

impl fmt::Debug for Notifying {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notifying").field("has_text", &self.has_text).finish_non_exhaustive()
    }
}

/// An attempt that is about to be made.
pub(super) struct Attempt {
    document: NoticeDocument,
    version: Version,
    number: u32,
    notice: Notice,
}

impl Attempt {
    /// Takes the next attempt at a notification that is due, if there is one to be made here. Another instance makes it if
    /// this one is lost.
    pub(super) async fn take(
        id: DocumentId,
        core: &Core,
        flows: &Flows,
        has_text: bool,
    ) -> Result<Option<Self>, FlowsError> {
        let Some((version, mut document)) = flows.notice(id.key).await? else { return Ok(None) };
        let Some((record, question)) = flows.question_of_notice(&document).await? else {
            return flows.remove_document(id).await.map(|()| None);
        };
        let (Some(question), Some(made)) = (question, document.attempts()) else {
            if document.attempts().is_some() {
                document.notified = Notified::Withdrawn;
            }
            return flows.write_notice(&record, Some(version), &document, None).await.map(|_| None);
        };
        let number = made + 1;
        document.notified = Notified::Pending { attempts: number };
        let due = core.now() + PATIENCE + pause_after(number);
        let taken = flows.write_notice(&record, Some(version), &document, Some(due)).await?;
        let notice = Notice::new(&document, question, core, has_text);
        Ok(taken.map(|version| Self { document, version, number, notice }))
    }

    /// Makes it, and records what came of it. Returns after which time the next one is due, if there is one.
    pub(super) async fn make(mut self, settings: &ElsewhereService, core: &Core, flows: &Flows) -> Option<Duration> {
        let notifying = settings.notifying.as_ref()?;
        let sent = tokio::select! {
            biased;
            sent = notifying.notify.notify(&self.notice) => sent,
            () = core.clock.sleep(PATIENCE) => Err(NotifyError::new("it took longer than 30 seconds")),
        };
        let (at, attempts, flow) = (core.now(), self.number, self.document.flow);
        let pause = match sent {
            Ok(()) => {
                self.document.notified = Notified::Sent { at, attempts };
                None
            }
            Err(error) if attempts >= ATTEMPTS => {
                tracing::error!(target: "rounds", %flow, %error, attempts, "people are not notified of a question: no attempt succeeded");
                self.document.notified = Notified::GivenUp { at, attempts };
                None
            }
            Err(error) => {
                tracing::warn!(target: "rounds", %flow, %error, attempts, "a notification is sent later");
                Some(pause_after(attempts))
            }
        };
        if let Err(error) = self.record(flows, pause.map(|pause| at + pause)).await {
            tracing::warn!(target: "rounds", %flow, %error, "what came of a notification could not be recorded; it may be sent again");
        }
        pause
    }

    async fn record(&self, flows: &Flows, due: Option<Timestamp>) -> Result<(), FlowsError> {
        let Some(record) = flows.get(self.document.flow).await? else { return Ok(()) };
        flows.write_notice(&record, Some(self.version), &self.document, due).await.map(drop)
    }
}

impl Worked {
    /// Makes an attempt at each notification that is due.
    pub(super) async fn send_notices(&self, due: Vec<DocumentId>) -> Result<(), FlowsError> {
        let Some(notifying) = &self.settings.notifying else { return Ok(()) };
        for id in due {
            let Some(place) = self.settings.places.for_notice() else { return Ok(()) };
            let Some(attempt) = Attempt::take(id, &self.core, &self.flows, notifying.has_text).await? else { continue };
            let Self { settings, core, flows, .. } = self.clone();
            tokio::spawn(async move {
                let pause = attempt.make(&settings, &core, &flows).await;
                drop(place);
                // A longer pause ends with the sweep after it.
                let (clock, lease) = (core.clock.clone(), core.limits.lease);
                let wake = core.elsewhere.as_ref().map(|elsewhere| elsewhere.wake.clone());
                drop((settings, core, flows));
                if let (Some(pause), Some(wake)) = (pause.filter(|pause| *pause <= lease), wake) {
                    clock.sleep(pause).await;
                    wake.notify_one();
                }
            });
        }
        Ok(())
    }
}

fn pause_after(attempts: u32) -> Duration {
    PAUSE.saturating_mul(2_u32.saturating_pow(attempts.saturating_sub(1))).min(LONGEST_PAUSE)
}

fn cut(mut text: String) -> String {
    let end = (0..=TEXT_BYTES.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    text.truncate(end);
    text
}

fn as_text<S: serde::Serializer>(flow: &FlowId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(flow)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pauses_double_up_to_an_hour_and_all_attempts_take_about_ten_hours() {
        let pauses: Vec<_> = (1..ATTEMPTS).map(|attempts| pause_after(attempts).as_secs()).collect();
        assert_eq!(pauses[..4], [1, 2, 4, 8]);
        assert_eq!(pauses.last(), Some(&3600));
        assert!((8..11).contains(&(pauses.iter().sum::<u64>() / 3600)), "{pauses:?}");
        assert_eq!(pause_after(u32::MAX), LONGEST_PAUSE);
    }

    #[test]
    fn a_text_is_cut_between_letters() {
        assert_eq!(cut("ä".repeat(1500)).len(), TEXT_BYTES);
        assert_eq!(cut(format!("x{}", "ä".repeat(1500))).len(), TEXT_BYTES - 1);
        assert_eq!(cut("short".to_owned()), "short");
    }
}
