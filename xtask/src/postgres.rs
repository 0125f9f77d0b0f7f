//! Postgres, which the tests of the stores start.

use std::{fs, path::Path, process::Command};

use crate::install::{self, starts};

/// Installs `postgresql` if it is missing.
pub(crate) fn install() -> Result<(), String> {
    let missing = "Postgres is missing: install Postgres 15 or later, so that `postgres` and `initdb` are in the path or \
                   below /usr/lib/postgresql (on Debian, `apt-get install postgresql`)";
    if !is_there() {
        install::install(&["postgresql"], missing)?;
    }
    match is_there() {
        true => Ok(()),
        false => Err(missing.to_owned()),
    }
}

/// Debian keeps its programs out of the path, in a folder for each version.
fn is_there() -> bool {
    let has_initdb = |version: &Path| version.join("bin").join("initdb").exists();
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    versions.into_iter().any(|version| has_initdb(&version.path())) || starts(Command::new("initdb").arg("--version"))
}
