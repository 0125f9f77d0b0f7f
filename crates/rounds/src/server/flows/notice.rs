//! Whether people were notified of a question: a document for each question, which every instance can read.

use serde::{Deserialize, Serialize};

use super::{Flows, FlowsError, QuestionElsewhere};
use crate::{
    server::{
        engine::register::details::FlowDetails,
        ledger::{
            documents::{DocumentChange, DocumentId, DocumentKind, Version},
            register::FlowRecord,
        },
        seal::{Digest, FlowId},
    },
    shared::clock::Timestamp,
};

/// What came of the notification of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "notified", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Notified {
    /// It was not sent yet. So many attempts were made.
    Pending {
        /// The number of attempts so far.
        attempts: u32,
    },
    /// It was sent.
    Sent {
        /// When that was recorded.
        at: Timestamp,
        /// The number of attempts, the last one included.
        attempts: u32,
    },
    /// Every attempt failed, and no more are made.
    GivenUp {
        /// When that was recorded.
        at: Timestamp,
        /// The number of attempts.
        attempts: u32,
    },
    /// The question was decided or withdrawn before a notification was sent.
    Withdrawn,
}

/// The document of a notification.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct NoticeDocument {
    pub(crate) flow: FlowId,
    pub(crate) round: u32,
    pub(crate) key: String,
    pub(crate) notified: Notified,
}

impl NoticeDocument {
    /// The key of the document. A receiver knows a notification again by it.
    pub(crate) fn digest(&self) -> Digest {
        notice_digest(self.flow, self.round, &self.key)
    }

    /// How many attempts were made, if it is still to be sent.
    pub(crate) fn attempts(&self) -> Option<u32> {
        match self.notified {
            Notified::Pending { attempts } => Some(attempts),
            _ => None,
        }
    }
}

impl Flows {
    /// What came of the notification of this question. None if there is none, because the server [does not
    /// notify](crate::elsewhere::Elsewhere::notify).
    ///
    /// # Errors
    ///
    /// [`FlowsError`] if the store is unavailable or the document does not open.
    pub async fn notified(&self, question: &QuestionElsewhere) -> Result<Option<Notified>, FlowsError> {
        let key = notice_digest(question.flow, question.round, &question.key);
        Ok(self.notice(key).await?.map(|(_, notice)| notice.notified))
    }

    /// The notification with this key.
    pub(crate) async fn notice(&self, key: Digest) -> Result<Option<(Version, NoticeDocument)>, FlowsError> {
        let Some((version, content)) = self.read_document(document(key)).await? else { return Ok(None) };
        let notice = serde_json::from_slice(&content).map_err(|_| FlowsError::UnreadableDocument)?;
        Ok(Some((version, notice)))
    }

    /// Prepares the notifications of the questions that a flow waits for, once for each question.
    pub(crate) async fn prepare_notices(&self, flow: FlowId) -> Result<(), FlowsError> {
        let Some(record) = self.get(flow).await? else { return Ok(()) };
        let mut is_new = false;
        for question in open_questions(&record, &self.details(&record)?) {
            let QuestionElsewhere { flow, round, key, .. } = question;
            let notice = NoticeDocument { flow, round, key, notified: Notified::Pending { attempts: 0 } };
            is_new |= self.write_notice(&record, None, &notice, Some(self.now())).await?.is_some();
        }
        if is_new {
            self.wake();
        }
        Ok(())
    }

    /// Writes a notification if this is its newest version.
    pub(crate) async fn write_notice(
        &self,
        record: &FlowRecord,
        before: Option<Version>,
        notice: &NoticeDocument,
        due: Option<Timestamp>,
    ) -> Result<Option<Version>, FlowsError> {
        let sealed = serde_json::to_vec(notice).expect("a notification has no type that JSON cannot write");
        let change = DocumentChange { sealed, due, keep: self.keep_with(record), tell: None };
        self.write_document(document(notice.digest()), before, change).await
    }

    /// The question that a notification is about, with the record of its flow. The question is none if it is no longer
    /// open; both are, if the record is gone.
    pub(crate) async fn question_of_notice(
        &self,
        notice: &NoticeDocument,
    ) -> Result<Option<(FlowRecord, Option<QuestionElsewhere>)>, FlowsError> {
        let Some(record) = self.get(notice.flow).await? else { return Ok(None) };
        let mut open = open_questions(&record, &self.details(&record)?);
        let question = open.find(|question| question.round == notice.round && question.key == notice.key);
        let question = match question {
            Some(question) if question.until > self.now() && self.decision(&question).await?.is_none() => {
                Some(question)
            }
            _ => None,
        };
        Ok(Some((record, question)))
    }
}

fn open_questions(record: &FlowRecord, details: &FlowDetails) -> impl Iterator<Item = QuestionElsewhere> + use<> {
    QuestionElsewhere::of(record, details).into_iter().filter(|question| question.is_open)
}

fn notice_digest(flow: FlowId, round: u32, key: &str) -> Digest {
    Digest::of_document("notice", flow, &format!("{round}/{key}"))
}

fn document(key: Digest) -> DocumentId {
    DocumentId { kind: DocumentKind::Notice, key }
}
