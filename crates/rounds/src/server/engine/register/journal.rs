//! The journal of a durable handler, put together from what each leg has recorded of it.

use crate::server::seal::journal::{Entry, Pages};

/// The journal of a recorded flow: the operations of its durable handler, for a replay before a deploy.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowJournal(Pages);

impl FlowJournal {
    /// The journal as JSON, in the format that `rounds::test::replay` reads. It contains the answers and the values of
    /// the effects.
    pub fn to_json(&self) -> String {
        self.0.to_json()
    }

    /// Its entries, one description each, without their values.
    pub fn entries(&self) -> impl Iterator<Item = String> + '_ {
        self.0.entries.iter().map(Entry::to_string)
    }

    /// The journal with what one more leg has added. `in_order` says that no part is missing before it.
    pub(super) fn with(before: Result<Self, Missing>, added: Option<Pages>, in_order: bool) -> Result<Self, Missing> {
        match (before, added) {
            (before, None) => {
                let any = before.is_ok() || before.is_err_and(|missing| missing.any);
                Err(Missing { any, legs: true })
            }
            (Ok(Self(mut pages)), Some(Pages { entries, texts, open })) if in_order => {
                pages.entries.since.extend(entries.iter().cloned());
                (pages.texts, pages.open) = (texts, open);
                Ok(Self(pages))
            }
            (Err(Missing { legs: false, .. }), Some(first)) if in_order => Ok(Self(first)),
            (_, Some(_)) => Err(Missing { any: true, legs: true }),
        }
    }
}

/// What is missing of a journal so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Missing {
    /// Whether a leg has recorded anything of it.
    any: bool,
    /// Whether a leg before has recorded nothing.
    legs: bool,
}

impl Missing {
    pub(super) fn why(self) -> NoJournal {
        if self.any { NoJournal::Incomplete } else { NoJournal::NotDurable }
    }
}

/// Why a record has no journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoJournal {
    /// The handler is not durable.
    #[error("this flow has no journal: its handler is not durable")]
    NotDurable,
    /// A leg did not record its part of the journal.
    #[error(
        "the record does not have the whole journal: a part of it exceeded `Limits::record_bytes`, or the flow began before \
         its server recorded journals"
    )]
    Incomplete,
}
