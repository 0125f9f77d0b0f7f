//! Settings for single tools, prompts and resources, and a warning for a name that the server does not have.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use rmcp::ServerHandler;

use super::legacy::Legacy;

/// How to serve clients of the legacy era, and whose requests become questions, by target.
pub(crate) struct Targets {
    set: HashMap<String, Legacy>,
    pushes: Pushes,
    /// Whether there are names that were not found yet, and lists that were not searched yet.
    looks: AtomicBool,
    unknown: Mutex<Unknown>,
}

/// The targets whose handlers send requests through their peer that are to be asked as rounds.
#[derive(Default)]
pub(crate) struct Pushes {
    pub(crate) all: bool,
    pub(crate) names: BTreeSet<String>,
}

/// The names that were not found so far, and the lists that were searched.
#[derive(Default)]
struct Unknown {
    names: BTreeSet<String>,
    in_tools: bool,
    in_prompts: bool,
}

impl Targets {
    pub(crate) fn new(set: HashMap<String, Legacy>, pushes: Pushes) -> Self {
        // A name with a colon is the URI of a resource, and a server need not list its resources.
        let named = set.keys().chain(&pushes.names);
        let names: BTreeSet<_> = named.filter(|name| !name.contains(':')).cloned().collect();
        let looks = AtomicBool::new(!names.is_empty());
        Self { set, pushes, looks, unknown: Mutex::new(Unknown { names, ..Unknown::default() }) }
    }

    /// The setting for this target.
    pub(crate) fn get(&self, target: &str) -> Option<Legacy> {
        self.set.get(target).copied()
    }

    /// Whether requests that this target's handler sends to a modern client become questions.
    pub(crate) fn pushes(&self, target: &str) -> bool {
        self.pushes.all || (!self.pushes.names.is_empty() && self.pushes.names.contains(target))
    }

    /// Notes that a tool is called. If the handler finds tools by name, every tool can be found by name.
    pub(crate) fn called(&self, handler: &impl ServerHandler, tool: &str) {
        if self.looks() && handler.get_tool(tool).is_some() {
            self.found(handler, |unknown| unknown.in_tools = true);
        }
    }

    /// Notes that tools were listed, all of them or a part.
    pub(crate) fn tools<'a>(&self, handler: &impl ServerHandler, names: impl Iterator<Item = &'a str>, are_all: bool) {
        self.listed(handler, names, |unknown| unknown.in_tools |= are_all);
    }

    /// Notes that prompts were listed, all of them or a part.
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

    /// Updates the unknown names. Once every list was searched, it warns of the names that are left.
    #[cold]
    fn found(&self, handler: &impl ServerHandler, learn: impl FnOnce(&mut Unknown)) {
        // The handler's own code must not run under the lock.
        let has_prompts = handler.get_info().capabilities.prompts.is_some();
        let is_tool = |name: &String| handler.get_tool(name).is_some();
        let tools: Vec<_> = self.set.keys().chain(&self.pushes.names).filter(|name| is_tool(name)).collect();
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
            let setting = if self.set.contains_key(&name) { "legacy_for" } else { "pushes_for" };
            tracing::warn!(
                target: "rounds",
                name,
                "`{setting}` names a target that is neither a tool nor a prompt of this server: the setting has no effect. \
                 Compare the name with those that the server lists"
            );
        }
    }
}
