//! The contents of a token, for holders of its keys: what `rounds open` prints.

use std::fmt;

use super::{
    Digest, FlowId, KeyRing,
    envelope::{Envelope, Method, QuestionKind, Resume, Settled},
    journal::{Entries, Pages, PagesWithoutTexts},
    refusal::Refusal,
    ring::{DerivedRing, Purpose},
    token,
};
use crate::shared::{clock::Timestamp, escape::Escaped};

/// The contents of a token, for inspection. What a handler gets has passed further checks.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OpenedToken {
    /// The flow.
    pub flow: FlowId,
    /// The round whose questions the token carries.
    pub round: u32,
    /// When the token was sealed.
    pub issued_at: Timestamp,
    /// When the round expires.
    pub expires_at: Timestamp,
    /// When the flow ends.
    pub deadline: Timestamp,
    /// A digest of the principal that the flow belongs to, if it has one.
    pub principal: Option<Digest>,
    /// The method that was requested.
    pub method: Method,
    /// The name of the tool or prompt, or the URI of the resource.
    pub target: String,
    /// A digest of the arguments.
    pub arguments: Digest,
    /// The questions of this round.
    pub asked: Vec<(String, QuestionKind)>,
    /// Whether the handler waits in memory for the answers and is not called again with them.
    pub waits: bool,
    /// The instance on which it waits, if the server has a relay.
    pub instance: Option<String>,
    /// The answers of earlier rounds: the content as JSON, or how the question was refused.
    pub settled: Vec<(String, Result<String, &'static str>)>,
    /// The effects that have run, by name, with their values as JSON; a failed attempt as `!` and its failure as JSON.
    pub onces: Vec<(String, String)>,
    /// The journal of a durable handler, one text for each entry.
    pub journal: Vec<String>,
    /// The state that the handler kept.
    pub state: Option<String>,
    /// Whether the state was too large for the token. The ledger has the rest then.
    pub spilled: bool,
    saved: Option<String>,
}

impl OpenedToken {
    /// Opens a token with the ring and the audience it was sealed with. It does not check whether the token has
    /// expired.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if the text is not a token, if no key of the ring sealed it for this audience, if it was changed, or
    /// if its version is not known.
    pub fn open(keys: &KeyRing, audience: &str, token: &str) -> Result<Self, Refusal> {
        Self::open_with(&keys.derive(Purpose::State, audience), token)
    }

    pub(crate) fn open_with(ring: &DerivedRing, token: &str) -> Result<Self, Refusal> {
        let plaintext = token::open(ring, token.len(), token)?;
        let envelope = Envelope::from_bytes(&plaintext)?;
        let spilled = matches!(envelope.resume, Resume::Spilled(_));
        let saved = envelope.resume.journal_json();
        let instance = match &envelope.resume {
            Resume::FrameAt(instance) => Some(instance.clone()),
            _ => None,
        };
        let (waits, settled, onces, state, entries) = match envelope.resume {
            Resume::Handler(kept) | Resume::Posed(kept, _) => (false, kept.settled, kept.onces, kept.state, None),
            Resume::Frame | Resume::FrameAt(_) => (true, vec![], vec![], None, None),
            Resume::Spilled(_) => (false, vec![], vec![], None, None),
            Resume::Journal(Pages { entries, .. }) | Resume::JournalWithoutTexts(PagesWithoutTexts { entries, .. }) => {
                (false, vec![], vec![], None, Some(entries))
            }
        };
        let settled = settled.into_iter().map(|(key, settled)| {
            let settled = match settled {
                Settled::Accepted { json, .. } => Ok(json),
                Settled::Declined => Err("declined"),
                Settled::Cancelled => Err("cancelled"),
                Settled::Late => Err("late"),
            };
            (key, settled)
        });
        Ok(Self {
            flow: envelope.flow,
            round: envelope.round,
            issued_at: envelope.span.issued_at,
            expires_at: envelope.span.expires_at,
            deadline: envelope.span.deadline,
            principal: envelope.binding.principal,
            method: envelope.binding.method,
            target: envelope.binding.target,
            arguments: envelope.binding.arguments,
            asked: envelope.asked.into_iter().map(|asked| (asked.key, asked.kind)).collect(),
            waits,
            instance,
            settled: settled.collect(),
            onces,
            journal: entries.iter().flat_map(Entries::iter).map(|entry| format!("{entry:?}")).collect(),
            state,
            spilled,
            saved,
        })
    }

    /// The journal of a durable handler as JSON, to be saved for a test that replays it:
    /// `{"version": 2, "entries": [...], "texts": [...], "open": [...]}`, or version 1, without texts, if the token has
    /// the [previous](super::Format::Previous) format. None for a token of another shape. It contains the user's
    /// answers, as the token does.
    pub fn journal_json(&self) -> Option<String> {
        self.saved.clone()
    }
}

/// Prints a line for each part. Names and values come from a client or a handler: characters that could harm a terminal
/// are escaped, including line breaks.
impl fmt::Display for OpenedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let after = |moment: Timestamp| moment.since(self.issued_at).as_secs();
        writeln!(f, "flow       {}, round {}", self.flow, self.round)?;
        writeln!(f, "request    {} {}", self.method, Escaped(&self.target))?;
        writeln!(f, "arguments  sha256 {:?}", self.arguments)?;
        match &self.principal {
            Some(principal) => writeln!(f, "principal  sha256 {principal:?}")?,
            None => writeln!(f, "principal  none")?,
        }
        writeln!(f, "issued     {} ms since 1970", self.issued_at.as_millis())?;
        writeln!(
            f,
            "expires    {} s after that; the flow {} s after that",
            after(self.expires_at),
            after(self.deadline)
        )?;
        for (key, kind) in &self.asked {
            writeln!(f, "asked      {} ({kind:?})", Escaped(key))?;
        }
        for (key, settled) in &self.settled {
            let (Ok(settled) | Err(settled)) = settled.as_deref().map_err(|how| *how);
            writeln!(f, "settled    {}: {}", Escaped(key), Escaped(settled))?;
        }
        for (name, value) in &self.onces {
            writeln!(f, "once       {}: {}", Escaped(name), Escaped(value))?;
        }
        for (place, entry) in self.journal.iter().enumerate() {
            writeln!(f, "journal {place:>2} {}", Escaped(entry))?;
        }
        match &self.instance {
            Some(instance) => writeln!(f, "handler    waits in memory of the instance {}", Escaped(instance))?,
            None if self.waits => writeln!(f, "handler    waits in memory")?,
            None => {}
        }
        let state = if self.spilled { "in the ledger" } else { self.state.as_deref().unwrap_or("none") };
        write!(f, "state      {}", Escaped(state))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_shown_moves_a_cursor_begins_a_line_or_hides() {
        let bad = "a\u{1b}[2J\nprincipal  none\u{202e}\u{9b}".to_owned();
        let digest = Digest::from_bytes([7; 32]);
        let inspected = OpenedToken {
            flow: FlowId::from_bytes([7; 16]),
            round: 1,
            issued_at: Timestamp::from_millis(0),
            expires_at: Timestamp::from_millis(1),
            deadline: Timestamp::from_millis(2),
            principal: Some(digest),
            method: Method::Tool,
            target: bad.clone(),
            arguments: digest,
            asked: vec![(bad.clone(), QuestionKind::Form)],
            waits: false,
            instance: Some(bad.clone()),
            settled: vec![(bad.clone(), Ok(bad.clone()))],
            onces: vec![(bad.clone(), bad.clone())],
            journal: vec![bad.clone()],
            state: Some(bad),
            spilled: false,
            saved: None,
        };
        let shown = inspected.to_string();
        assert!(!shown.contains(|c: char| c != '\n' && !crate::shared::escape::is_harmless(c)), "{shown:?}");
        assert_eq!(shown.lines().filter(|line| line.starts_with("principal")).count(), 1, "{shown}");
        assert_eq!(shown.matches(r"a\u{1b}[2J\u{a}principal  none\u{202e}\u{9b}").count(), 9, "{shown}");
    }
}
