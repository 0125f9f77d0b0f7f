//! What is set for single tools, prompts and resources, and a warning for a name that nothing has.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use rmcp::ServerHandler;

use super::legacy::Legacy;

/// What to do with clients of the legacy era, by target.
pub(crate) struct Targets {
    set: HashMap<String, Legacy>,
    /// Whether there are names that nothing was found for, and places that were not looked into.
    looks: AtomicBool,
    unknown: Mutex<Unknown>,
}

/// The names that nothing was found for so far, and where they were looked for.
#[derive(Default)]
struct Unknown {
    names: BTreeSet<String>,
    in_tools: bool,
    in_prompts: bool,
}

impl Targets {
    pub(crate) fn new(set: HashMap<String, Legacy>) -> Self {
        // A name with a colon is the URI of a resource, and resources need not be listed.
        let names: BTreeSet<_> = set.keys().filter(|name| !name.contains(':')).cloned().collect();
        let looks = AtomicBool::new(!names.is_empty());
        Self { set, looks, unknown: Mutex::new(Unknown { names, ..Unknown::default() }) }
    }

    /// What is set for this target.
    pub(crate) fn get(&self, target: &str) -> Option<Legacy> {
        self.set.get(target).copied()
    }

    /// A tool is called. Where the handler knows its tools by name, all of them are known.
    pub(crate) fn called(&self, handler: &impl ServerHandler, tool: &str) {
        if self.looks() && handler.get_tool(tool).is_some() {
            self.found(handler, |unknown| unknown.in_tools = true);
        }
    }

    /// Tools were listed, all of them or a part.
    pub(crate) fn tools<'a>(&self, handler: &impl ServerHandler, names: impl Iterator<Item = &'a str>, are_all: bool) {
        self.listed(handler, names, |unknown| unknown.in_tools |= are_all);
    }

    /// Prompts were listed, all of them or a part.
    pub(crate) fn prompts<'a>(
        &self,
        handler: &impl ServerHandler,
        names: impl Iterator<Item = &'a str>,
        are_all: bool,
    ) {
        self.listed(handler, names, |unknown| unknown.in_prompts |= are_all);
    }

    fn listed<'a>(
        &self,
        handler: &impl ServerHandler,
        names: impl Iterator<Item = &'a str>,
        note: impl FnOnce(&mut Unknown),
    ) {
        if self.looks() {
            self.found(handler, |unknown| {
                for name in names {
                    unknown.names.remove(name);
                }
                note(unknown);
            });
        }
    }

    fn looks(&self) -> bool {
        self.looks.load(Ordering::Relaxed)
    }

    /// Something was learned. When there is no other place to look into, what is left is warned of.
    #[cold]
    fn found(&self, handler: &impl ServerHandler, learn: impl FnOnce(&mut Unknown)) {
        // Author code does not run under the lock.
        let has_prompts = handler.get_info().capabilities.prompts.is_some();
        let is_tool = |name: &String| handler.get_tool(name).is_some();
        let tools: Vec<_> = self.set.keys().filter(|name| is_tool(name)).collect();
        let unknown = {
            let mut unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
            learn(&mut unknown);
            for name in tools {
                unknown.names.remove(name);
            }
            let is_over = unknown.names.is_empty() || (unknown.in_tools && (unknown.in_prompts || !has_prompts));
            if !is_over {
                return;
            }
            self.looks.store(false, Ordering::Relaxed);
            std::mem::take(&mut unknown.names)
        };
        for name in unknown {
            tracing::warn!(
                target: "rounds",
                name,
                "`legacy_for` names a target that is neither a tool nor a prompt of this server: the setting has no effect. \
                 Compare the name with those that the server lists"
            );
        }
    }
}
