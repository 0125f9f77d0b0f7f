//! Names that both halves use: the eras, the methods that may be answered with a question, and the kinds of questions.

use std::fmt;

use rmcp::model::ProtocolVersion;
use serde::{Deserialize, Serialize};

/// The three methods that may be answered with a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Method {
    /// `tools/call`
    Tool,
    /// `prompts/get`
    Prompt,
    /// `resources/read`
    Resource,
}

impl Method {
    /// The method's name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "tools/call",
            Self::Prompt => "prompts/get",
            Self::Resource => "resources/read",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        [Self::Tool, Self::Prompt, Self::Resource].into_iter().find(|method| method.as_str() == name)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The kind of answer that a question wants. On the wire an answer does not name its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum QuestionKind {
    /// A form to fill in.
    Form,
    /// A page to visit.
    Url,
    /// A model to sample.
    Sample,
    /// The client's roots.
    Roots,
    /// An answer that does not come through the client. On the wire it is a page to visit.
    Elsewhere,
}

/// The era of the protocol that the other side speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Era {
    /// 2026-07-28 and later: questions are results.
    Modern,
    /// 2025-11-25 and before: questions are requests of the server, over a live connection.
    Legacy,
}

impl Era {
    pub(crate) fn of_version(version: &str) -> Self {
        // Versions are ISO dates, so they compare as text.
        let modern = version >= ProtocolVersion::V_2026_07_28.as_str();
        if modern { Self::Modern } else { Self::Legacy }
    }
}
