//! `cargo xtask package`: checks that the published packages build, and pass their unit tests, outside of this
//! repository.
//!
//! The packages are packed as for a release and unpacked into a separate folder. There they form a workspace in which
//! each finds the others instead of the registry, with the versions of this repository's lock file. The target
//! directory is shared, so that dependencies are not built again.

use std::{fs, path::Path, process::Command};

use crate::{
    install::run,
    step::{Step, cargo},
};

/// The published packages, each after the packages that it needs.
const PACKAGES: &[&str] =
    &["rounds", "rounds-http", "rounds-desk", "rounds-redis", "rounds-sql", "rounds-gallery", "rounds-cli"];

/// Files that a package must have although they are not in its folder.
const REQUIRED: &[&str] = &["README.md"];

pub(crate) fn steps(root: &Path, target: &Path) -> Vec<Step> {
    let (root, target) = (root.to_owned(), target.to_owned());
    vec![Step::cargo("test the packages by themselves", "xtask package").by(move || check(&root, &target))]
}

fn check(root: &Path, target: &Path) -> Result<(), String> {
    let packed = target.join("package");
    let place = packed.join("alone");
    for package in PACKAGES {
        remove(&packed.join(archive(package)))?;
    }
    pack(root, target)?;
    remove(&place)?;
    fs::create_dir_all(&place).map_err(|error| format!("cannot make {}: {error}", place.display()))?;
    for package in PACKAGES {
        run(Command::new("tar").arg("-xzf").arg(packed.join(archive(package))).arg("-C").arg(&place))?;
        for file in REQUIRED {
            if !place.join(folder(package)).join(file).exists() {
                return Err(format!("{file} is missing in the package {package}"));
            }
        }
    }
    write(&place.join("Cargo.toml"), &workspace())?;
    let lock = root.join("Cargo.lock");
    let lock = fs::read_to_string(&lock).map_err(|error| format!("cannot read {}: {error}", lock.display()))?;
    write(&place.join("Cargo.lock"), &lock)?;
    let mut test = Command::new(cargo());
    test.args(["test", "--quiet", "--workspace", "--all-features", "--lib", "--bins"]).arg("--target-dir").arg(target);
    run(test.current_dir(&place))
}

/// Packs all of them, with changes that are not committed: this is a test, and not a release.
fn pack(root: &Path, target: &Path) -> Result<(), String> {
    let mut pack = Command::new(cargo());
    pack.args(["package", "--quiet", "--no-verify", "--allow-dirty"]).arg("--target-dir").arg(target);
    pack.args(PACKAGES.iter().flat_map(|package| ["-p", package]));
    run(pack.current_dir(root))
}

/// All packages have the version of this one, which is that of the workspace.
fn folder(package: &str) -> String {
    format!("{package}-{}", env!("CARGO_PKG_VERSION"))
}

fn archive(package: &str) -> String {
    format!("{}.crate", folder(package))
}

/// The manifest of a workspace of the unpacked packages, in which they find each other.
fn workspace() -> String {
    let members = PACKAGES.iter().map(|package| format!("{:?}", folder(package)));
    let patches = PACKAGES.iter().map(|package| format!("{package} = {{ path = {:?} }}\n", folder(package)));
    format!(
        "[workspace]\nresolver = \"3\"\nmembers = [{}]\n\n[patch.crates-io]\n{}\n[profile.dev]\ndebug = \"line-tables-only\"\n",
        members.collect::<Vec<_>>().join(", "),
        patches.collect::<String>(),
    )
}

fn remove(path: &Path) -> Result<(), String> {
    let removed = match path {
        path if path.is_dir() => fs::remove_dir_all(path),
        path if path.exists() => fs::remove_file(path),
        _ => Ok(()),
    };
    removed.map_err(|error| format!("cannot remove {}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}
