//! `cargo xtask rooms`: checks that there is no cycle between the folders of the library.
//!
//! A room is a folder of `crates/rounds/src`: `shared`, `client` and `test` are one each, and so is every folder of
//! `server`. The files directly in `server` are a separate room, and so are those directly in `src`. Both may use all
//! others, so no other may use them.
//!
//! A room uses another if one of its modules names an item of it, by `use` or by a path in the code. Names are resolved
//! through re-exports, so `use crate::Ask` counts for the folder that defines `Ask`. Tests are left out.

mod modules;

use std::{
    collections::{BTreeMap, VecDeque},
    path::Path,
};

use modules::Modules;

/// The rooms that each room uses, with one place where it does.
type Uses = BTreeMap<String, BTreeMap<String, String>>;

/// Reads the library. The failure lists the shortest cycle, with a place in the source for each part.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let source = root.join("crates/rounds/src");
    let modules = Modules::read(&source)?;
    match cycle(&uses(&modules)) {
        None => Ok(()),
        Some(cycle) => Err(format!(
            "folders of crates/rounds/src form a cycle; move an item so that one of these uses \
                                    goes away:\n{}",
            cycle.join("\n")
        )),
    }
}

fn uses(modules: &Modules) -> Uses {
    let mut uses = Uses::new();
    for reference in modules.references() {
        let (from, to) = (room(reference.file), room(modules.file_of(reference.path)));
        if from != to {
            let place = format!("{}:{} names {}", reference.file, reference.line, reference.path.join("::"));
            uses.entry(from).or_default().entry(to).or_insert(place);
        }
    }
    uses
}

/// The room of a file, given its path below `src`.
fn room(file: &str) -> String {
    let folders: Vec<&str> = file.rsplit_once('/').map_or(Vec::new(), |(folders, _)| folders.split('/').collect());
    match folders[..] {
        [] => "src".to_owned(),
        ["server", room, ..] => format!("server/{room}"),
        [room, ..] => room.to_owned(),
    }
}

/// A line for each part of the shortest cycle.
fn cycle(uses: &Uses) -> Option<Vec<String>> {
    let cycles = uses.keys().filter_map(|room| way_back(uses, room));
    let shortest = cycles.min_by_key(Vec::len)?;
    let parts = shortest.iter().zip(shortest.iter().cycle().skip(1));
    Some(parts.map(|(from, to)| format!("  {from} uses {to}: {}", uses[*from][*to])).collect())
}

/// The rooms of the shortest path from a room to itself.
fn way_back<'a>(uses: &'a Uses, room: &'a str) -> Option<Vec<&'a str>> {
    let mut seen = BTreeMap::new();
    let mut next = VecDeque::from([room]);
    while let Some(from) = next.pop_front() {
        for to in uses.get(from).into_iter().flat_map(BTreeMap::keys).map(String::as_str) {
            if to == room {
                let mut way: Vec<_> = std::iter::successors(Some(from), |at| seen.get(at).copied()).collect();
                way.reverse();
                return Some(way);
            }
            if !seen.contains_key(to) {
                seen.insert(to, from);
                next.push_back(to);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[(&str, &str)]) -> Option<Vec<String>> {
        cycle(&uses(
            &Modules::of(|file| files.iter().find(|(name, _)| *name == file).map(|(_, text)| (*text).to_owned()))
                .unwrap(),
        ))
    }

    #[test]
    fn a_file_belongs_to_the_room_of_its_folder() {
        let rooms = [
            "lib.rs",
            "shared/mod.rs",
            "client/form/x.rs",
            "server/builder.rs",
            "server/mod.rs",
            "server/engine/leg/run.rs",
        ];
        assert_eq!(rooms.map(room), ["src", "shared", "client", "server", "server", "server/engine"]);
    }

    #[test]
    fn a_cycle_is_told_with_a_place_for_each_part_of_it() {
        let files = [
            ("lib.rs", "mod server;"),
            ("server/mod.rs", "mod engine; mod seal; mod builder;"),
            ("server/builder.rs", "use super::engine::Core;"),
            ("server/engine/mod.rs", "use crate::server::seal::Ring;\npub struct Core;"),
            ("server/seal/mod.rs", "mod ring; pub use ring::Ring;"),
            ("server/seal/ring.rs", "pub struct Ring;\nfn f() { 1 as u8; super::super::engine::Core }"),
        ];
        let wanted = [
            "  server/engine uses server/seal: server/engine/mod.rs:1 names server::seal::Ring",
            "  server/seal uses server/engine: server/seal/ring.rs:2 names server::engine::Core",
        ];
        assert_eq!(check(&files), Some(wanted.map(str::to_owned).to_vec()));
    }

    #[test]
    fn a_room_that_all_others_use_and_that_uses_none_is_in_no_cycle() {
        let files = [
            ("lib.rs", "mod client; mod shared; pub use client::Call; pub use shared::{Clock, kind::Kind};"),
            ("client/mod.rs", "use crate::{Clock, Kind as Sort};\nuse crate::Call as Own; pub struct Call;"),
            ("shared/mod.rs", "pub mod kind; pub struct Clock;"),
            ("shared/kind.rs", "pub enum Kind {}\n#[cfg(test)] mod tests { use crate::client::Call; }"),
        ];
        assert_eq!(check(&files), None);
    }

    #[test]
    fn one_that_uses_the_files_of_the_room_above_is_in_a_circle_with_them() {
        let files = [
            ("lib.rs", "mod server;"),
            ("server/mod.rs", "mod engine; mod builder; fn f() { engine::run() }"),
            ("server/builder.rs", "pub struct Builder;"),
            ("server/engine/mod.rs", "use crate::server::builder::*; pub fn run() {}"),
        ];
        assert_eq!(check(&files).map(|cycle| cycle.len()), Some(2));
    }
}
