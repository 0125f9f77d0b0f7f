//! The flows of the servers that are written with the SDKs or by hand, as `interop/servers.json` lists them.

use std::{collections::BTreeMap, fmt};

use rmcp::model::JsonObject;
use serde::Deserialize;

#[derive(Deserialize)]
struct Listed {
    flows: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    tools: Vec<String>,
    era: Option<String>,
    servers: Vec<String>,
    #[serde(flatten)]
    flow: Flow,
}

/// One call with all of its rounds.
#[derive(Clone, Deserialize)]
pub(crate) struct Flow {
    #[serde(skip)]
    pub(crate) tool: String,
    pub(crate) arguments: JsonObject,
    /// The questions of each round, by key.
    pub(crate) rounds: Vec<BTreeMap<String, Asked>>,
    #[serde(default)]
    pub(crate) is_error: bool,
    pub(crate) text: String,
}

/// A question and its answer.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Asked {
    pub(crate) asks: String,
    pub(crate) answer: Said,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Said {
    pub(crate) action: String,
    pub(crate) content: Option<JsonObject>,
}

/// The flows of a server in an era, one for each tool that they name.
pub(crate) fn flows(server: &str, era: &str) -> Result<Vec<Flow>, serde_json::Error> {
    let listed: Listed = serde_json::from_str(include_str!("../../../servers.json"))?;
    let mut flows = Vec::new();
    for Entry { tools, era: of_era, servers, flow } in listed.flows {
        if of_era.is_none_or(|of| of == era) && servers.iter().any(|of| of == server) {
            flows.extend(tools.into_iter().map(|tool| Flow { tool, ..flow.clone() }));
        }
    }
    Ok(flows)
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let answers: Vec<_> = self.rounds.iter().flat_map(BTreeMap::values).map(|asked| &asked.answer.action).collect();
        write!(f, "{}: {answers:?} -> {}", self.tool, self.text)
    }
}
