//! Installs programs that are missing on this machine.

use std::process::{Command, Stdio};

/// Installs Debian packages if this process may do so. Otherwise fails with `missing`, which tells the user what to do.
pub(crate) fn install(packages: &[&str], missing: &str) -> Result<(), String> {
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0");
    if !is_root || !starts(Command::new("apt-get").arg("--version")) {
        return Err(missing.to_owned());
    }
    for args in [&["update"][..], &[&["install", "-y", "--no-install-recommends"], packages].concat()] {
        let mut apt = Command::new("apt-get");
        run(apt.args(args).env("DEBIAN_FRONTEND", "noninteractive"))
            .map_err(|problem| format!("{problem}: {missing}"))?;
    }
    Ok(())
}

/// Whether a program exists and runs.
pub(crate) fn starts(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().display().to_string();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{name} failed ({status})")),
        Err(error) => Err(format!("cannot start {name}: {error}")),
    }
}
