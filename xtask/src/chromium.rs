//! Chromium with its driver, and axe-core, which the tests of the desk use.

use std::{path::Path, process::Command};

use crate::{
    install::{self, starts},
    interop::install::Npm,
};

/// Installs `chromium` and `chromedriver` if one is missing, and axe-core from npm.
pub(crate) fn install(root: &Path) -> Result<(), String> {
    let missing = "Chromium or its driver is missing: install both, so that `chromium` and `chromedriver` are in the path \
                   (on Debian, `apt-get install chromium chromium-driver`)";
    if !are_there() {
        install::install(&["chromium", "chromium-driver"], missing)?;
    }
    if !are_there() {
        return Err(missing.to_owned());
    }
    Npm::of(&root.join("crates/rounds-desk/tests/browser")).install()
}

fn are_there() -> bool {
    ["chromium", "chromedriver"].iter().all(|program| starts(Command::new(program).arg("--version")))
}
