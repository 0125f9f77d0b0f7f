//! Settings for single tools, prompts and resources, and a warning for a name that the server does not have.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use rmcp::ServerHandler;

use super::{legacy::Legacy, observe::Observe};
use crate::shared::kind::Method;

/// How to serve clients of the legacy era, and whose requests become questions, by target.
pub(crate) struct Targets {
    set: HashMap<String, Legacy>,
    pushes: Pushes,
    /// Whether there are names that were not found yet, and lists that were not searched yet, or observers that want names.
    looks: AtomicBool,
    unknown: Mutex<Unknown>,
    names: Names,
}

/// The names of tools and prompts that the server has, for observers that measure.
struct Names {
    measuring: Vec<Arc<dyn Observe>>,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    tools: HashSet<String>,
    prompts: HashSet<String>,
}

impl Told {
    fn names(&mut self, method: Method) -> &mut HashSet<String> {
        if method == Method::Tool { &mut self.tools } else { &mut self.prompts }
    }

    fn count(&self) -> usize {
        self.tools.len() + self.prompts.len()
    }
}

impl Names {
    /// A server whose `get_tool` finds any name would let clients choose as many as they like.
    const MOST: usize = 1000;

    /// Tells the observers of a name, if the server has it and they do not know it.
    fn learn(&self, method: Method, name: &str, is_target: impl FnOnce() -> bool) {
        // The handler's own code must not run under the lock.
        if self.measuring.is_empty() || self.told().names(method).contains(name) || !is_target() {
            return;
        }
        let mut told = self.told();
        if told.count() < Self::MOST && told.names(method).insert(name.to_owned()) {
            drop(told);
            self.measuring.iter().for_each(|observer| observer.has_target(method, name));
        }
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
    is_over: bool,
}

impl Targets {
    pub(crate) fn new(set: HashMap<String, Legacy>, pushes: Pushes, measuring: Vec<Arc<dyn Observe>>) -> Self {
        // A name with a colon is the URI of a resource, and a server need not list its resources.
        let named = set.keys().chain(&pushes.names);
        let names: BTreeSet<_> = named.filter(|name| !name.contains(':')).cloned().collect();
        let looks = AtomicBool::new(!names.is_empty() || !measuring.is_empty());
        let unknown = Unknown { is_over: names.is_empty(), names, ..Unknown::default() };
        let names = Names { measuring, told: Mutex::default() };
        Self { set, pushes, looks, unknown: Mutex::new(unknown), names }
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
        if self.looks() {
            self.called_while_looking(handler, tool);
        }
    }

    #[inline(never)]
    fn called_while_looking(&self, handler: &impl ServerHandler, tool: &str) {
        self.names.learn(Method::Tool, tool, || handler.get_tool(tool).is_some());
        if self.warns() && handler.get_tool(tool).is_some() {
            self.found(handler, |unknown| unknown.in_tools = true);
        }
    }

    /// Notes that tools were listed, all of them or a part.
    pub(crate) fn tools<'a>(&self, handler: &impl ServerHandler, names: impl Iterator<Item = &'a str>, are_all: bool) {
        self.listed(handler, Method::Tool, names, |unknown| unknown.in_tools |= are_all);
    }

    /// Notes that prompts were listed, all of them or a part.
    pub(crate) fn prompts<'a>(
        &self,
        handler: &impl ServerHandler,
        names: impl Iterator<Item = &'a str>,
        are_all: bool,
    ) {
        self.listed(handler, Method::Prompt, names, |unknown| unknown.in_prompts |= are_all);
    }

    fn listed<'a>(
        &self,
        handler: &impl ServerHandler,
        method: Method,
        names: impl Iterator<Item = &'a str>,
        note: impl FnOnce(&mut Unknown),
    ) {
        if !self.looks() {
            return;
        }
        let names: Vec<_> = names.collect();
        names.iter().for_each(|name| self.names.learn(method, name, || true));
        if self.warns() {
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

    /// Whether there are names left to warn of.
    fn warns(&self) -> bool {
        let unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        !unknown.is_over
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
            unknown.is_over = true;
            self.looks.store(!self.names.measuring.is_empty(), Ordering::Relaxed);
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
