//! nginx, which the test of the documented deployment starts.

use std::process::Command;

use crate::install::{self, starts};

/// Installs `nginx` if it is missing.
pub(crate) fn install() -> Result<(), String> {
    let missing =
        "nginx is missing: install it, so that `nginx` is in the path (on Debian, `apt-get install nginx-light`)";
    if !starts(Command::new("nginx").arg("-v")) {
        install::install(&["nginx-light"], missing)?;
    }
    match starts(Command::new("nginx").arg("-v")) {
        true => Ok(()),
        false => Err(missing.to_owned()),
    }
}
