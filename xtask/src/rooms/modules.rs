//! The modules of a crate: what each defines, imports and names.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use crate::rust::{self, Kind, Token};

/// The absolute path of a module or an item, without `crate`.
type Name = Vec<String>;

/// The modules of a crate by their paths, without those of tests.
pub(super) struct Modules(BTreeMap<Name, Module>);

/// A module, as far as its own source describes it.
#[derive(Default)]
struct Module {
    /// The path of its file below `src`.
    file: String,
    items: BTreeSet<String>,
    /// The names that `use` binds, and the modules whose names it imports with a star.
    imports: BTreeMap<String, Name>,
    globs: Vec<Name>,
    named: Vec<(Name, usize)>,
}

/// A place where one module names an item or a module.
pub(super) struct Reference<'a> {
    pub(super) file: &'a str,
    pub(super) line: usize,
    pub(super) path: &'a [String],
}

impl Modules {
    /// Reads the crate whose root is `lib.rs` in this folder.
    pub(super) fn read(source: &Path) -> Result<Self, String> {
        Self::of(|file| fs::read_to_string(source.join(file)).ok())
    }

    /// The same for files that a function reads.
    pub(super) fn of(read: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let mut modules = Self(BTreeMap::new());
        let mut next = vec![(Name::new(), "lib.rs".to_owned())];
        while let Some((name, file)) = next.pop() {
            let text = read(&file).ok_or_else(|| format!("there is no module {} in {file}", name.join("::")))?;
            let tokens = rust::tokens(&text);
            let code = tokens.into_iter().filter(|token| matches!(token.kind, Kind::Word(_) | Kind::Punctuation(_)));
            let mut reader =
                Reader { code: code.collect(), at: 0, file: &file, modules: &mut modules, files: Vec::new() };
            reader.module(name);
            for (name, folder) in reader.files {
                let last = name.last().map_or("", String::as_str);
                let flat = format!("{folder}{last}.rs");
                let nested = format!("{folder}{last}/mod.rs");
                let file = if read(&flat).is_some() { flat } else { nested };
                next.push((name, file));
            }
        }
        Ok(modules)
    }

    /// Every place where an item or a module of this crate is named.
    pub(super) fn references(&self) -> impl Iterator<Item = Reference<'_>> {
        self.0.values().flat_map(|module| {
            let own = module.named.iter().filter(|(path, _)| path.first().is_some_and(|first| self.knows(first)));
            own.map(|(path, line)| Reference { file: &module.file, line: *line, path })
        })
    }

    /// Whether the root has an item of this name: a path that begins with it is a path of this crate.
    fn knows(&self, first: &str) -> bool {
        self.home(&[first.to_owned()], 0).is_some()
    }

    /// The file that defines the target of a path.
    pub(super) fn file_of(&self, path: &[String]) -> &str {
        self.home(path, 0).map_or("lib.rs", |name| &self.0[&name].file)
    }

    /// The module that a path names, or that defines the item.
    fn home(&self, path: &[String], depth: usize) -> Option<Name> {
        let mut at = Name::new();
        for (nth, segment) in path.iter().enumerate() {
            let child = [&at[..], std::slice::from_ref(segment)].concat();
            if self.0.contains_key(&child) {
                at = child;
                continue;
            }
            let module = self.0.get(&at)?;
            if module.items.contains(segment) {
                break;
            }
            return self.imported(module, path, nth, depth);
        }
        Some(at)
    }

    /// The same for a path whose segment `nth` is imported by the module before it.
    fn imported(&self, module: &Module, path: &[String], nth: usize, depth: usize) -> Option<Name> {
        // Modules may import all names of each other, so the search has to be limited.
        if depth > 16 {
            return None;
        }
        if let Some(import) = module.imports.get(&path[nth]) {
            return self.home(&[import, &path[nth + 1..]].concat(), depth + 1);
        }
        module.globs.iter().find_map(|glob| self.home(&[glob, &path[nth..]].concat(), depth + 1))
    }
}

/// Reads one file.
struct Reader<'a> {
    code: Vec<Token<'a>>,
    at: usize,
    file: &'a str,
    modules: &'a mut Modules,
    /// The modules in separate files, each with the folder of its file and a slash.
    files: Vec<(Name, String)>,
}

impl Reader<'_> {
    /// Reads the rest of a module: of the file, or up to its closing brace.
    fn module(&mut self, name: Name) {
        let mut module = Module { file: self.file.to_owned(), ..Module::default() };
        let mut children = BTreeSet::new();
        let mut depth = 0;
        while self.at < self.code.len() {
            match self.word(0) {
                Some("mod") if self.word(1).is_some() => children.extend(self.child(&name)),
                // Not the `use<'a>` of a type.
                Some("use") if self.mark(1) != Some('<') => {
                    self.at += 1;
                    self.tree(&[], &mut module);
                }
                Some("struct" | "enum" | "union" | "trait" | "type" | "fn" | "const" | "static") => {
                    module.items.extend(self.word(1).map(str::to_owned));
                    self.at += 1;
                }
                Some("macro_rules") => {
                    module.items.extend(self.word(2).map(str::to_owned));
                    self.at += 3;
                }
                Some(_) => module.named.extend(self.path()),
                None if self.is_test() => self.skip_item(),
                None => {
                    depth += match self.mark(0) {
                        Some('{') => 1,
                        Some('}') => -1,
                        _ => 0,
                    };
                    self.at += 1;
                    if depth < 0 {
                        break;
                    }
                }
            }
        }
        module.absolute(&name, &children);
        self.modules.0.insert(name, module);
    }

    /// Reads a nested module here, or registers it if it is a file. Returns its name.
    fn child(&mut self, parent: &[String]) -> Option<String> {
        let child = self.word(1)?.to_owned();
        let name = [parent, std::slice::from_ref(&child)].concat();
        self.at += 3;
        if self.code.get(self.at - 1).is_some_and(|token| token.kind == Kind::Punctuation('{')) {
            self.module(name);
        } else {
            let folder = parent.iter().map(|segment| format!("{segment}/")).collect();
            self.files.push((name, folder));
        }
        Some(child)
    }

    /// One tree of a `use`, after a prefix: a path followed by nothing, an alias, a star, or trees in braces.
    fn tree(&mut self, prefix: &[String], into: &mut Module) {
        let line = self.line();
        let mut path = prefix.to_vec();
        path.extend(self.segments());
        match self.mark(0) {
            Some('{') => {
                self.at += 1;
                while self.at < self.code.len() && self.mark(0) != Some('}') {
                    self.tree(&path, into);
                    // A comma, or a token that cannot begin a tree.
                    self.at += usize::from(self.mark(0) != Some('}'));
                }
                self.at += 1;
            }
            Some('*') => {
                self.at += 1;
                into.globs.push(path.clone());
                into.named.push((path, line));
            }
            _ => {
                if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
                    path.pop();
                }
                let mut alias = path.last().cloned().unwrap_or_default();
                if self.word(0) == Some("as") {
                    alias = self.word(1).unwrap_or("_").to_owned();
                    self.at += 2;
                }
                into.imports.insert(alias, path.clone());
                into.named.push((path, line));
            }
        }
    }

    /// Records a path in the code, if there is one of more than one segment. Otherwise skips one word.
    fn path(&mut self) -> Option<(Name, usize)> {
        let line = self.line();
        let path = self.segments();
        // The `as` of a cast is not a segment.
        self.at += usize::from(path.is_empty());
        (path.len() > 1).then_some((path, line))
    }

    /// Words separated by two colons, and trailing colons.
    fn segments(&mut self) -> Name {
        let mut path = Name::new();
        while let Some(word) = self.word(0).filter(|word| *word != "as") {
            path.push(word.to_owned());
            self.at += 1;
            if (self.mark(0), self.mark(1)) != (Some(':'), Some(':')) {
                break;
            }
            self.at += 2;
        }
        path
    }

    /// Whether an attribute begins here that restricts the next item to tests.
    fn is_test(&self) -> bool {
        let cfg = (self.mark(0), self.mark(1), self.word(2)) == (Some('#'), Some('['), Some("cfg"));
        let first = if self.word(4) == Some("all") { 6 } else { 4 };
        cfg && self.word(first) == Some("test")
    }

    /// Skips to the end of an item: a semicolon, or the brace that closes the first one.
    fn skip_item(&mut self) {
        let mut depth = 0;
        while self.at < self.code.len() {
            let mark = self.mark(0);
            self.at += 1;
            match mark {
                Some('(' | '[' | '{') => depth += 1,
                Some(')' | ']' | '}') => depth -= 1,
                _ => {}
            }
            if depth == 0 && matches!(mark, Some(';' | '}')) {
                return;
            }
        }
    }

    fn word(&self, ahead: usize) -> Option<&str> {
        match self.code.get(self.at + ahead)?.kind {
            Kind::Word(word) => Some(word),
            _ => None,
        }
    }

    fn mark(&self, ahead: usize) -> Option<char> {
        match self.code.get(self.at + ahead)?.kind {
            Kind::Punctuation(mark) => Some(mark),
            _ => None,
        }
    }

    fn line(&self) -> usize {
        self.code.get(self.at).map_or(0, |token| token.line)
    }
}

impl Module {
    /// Makes paths absolute, and removes those that begin outside of this crate.
    fn absolute(&mut self, module: &[String], children: &BTreeSet<String>) {
        let absolute = |path: &Name| absolute(path, module, children);
        self.named = self.named.iter().filter_map(|(path, line)| Some((absolute(path)?, *line))).collect();
        self.globs = self.globs.iter().filter_map(absolute).collect();
        let imports = self.imports.iter();
        self.imports = imports.filter_map(|(alias, path)| Some((alias.clone(), absolute(path)?))).collect();
    }
}

fn absolute(path: &Name, module: &[String], children: &BTreeSet<String>) -> Option<Name> {
    let ups = path.iter().take_while(|segment| *segment == "super").count();
    let own = &module[..module.len().saturating_sub(ups)];
    match path.first()?.as_str() {
        "crate" => Some(path[1..].to_vec()),
        "super" => Some([own, &path[ups..]].concat()),
        "self" => Some([module, &path[1..]].concat()),
        first if children.contains(first) => Some([module, &path[..]].concat()),
        _ => None,
    }
}
