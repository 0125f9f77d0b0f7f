//! The client feature alone: which dependencies it has.

use std::{env, process::Command};

#[test]
fn the_client_alone_brings_no_cryptography_and_nothing_of_the_servers() {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let tree = Command::new(cargo)
        .args(["tree", "--frozen", "-p", "rounds", "-e", "normal", "--prefix", "none", "--format", "{p} {f}"])
        .args(["--no-default-features", "--features", "client"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let tree = String::from_utf8(tree.stdout).unwrap();
    let packages: Vec<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(packages.contains(&"rmcp"), "{tree}");
    // `getrandom` is wanted: the idempotency key of a call may be its only secret.
    for unwanted in ["chacha20", "ring", "hkdf", "sha2", "hmac", "postcard", "zeroize", "schemars"] {
        assert!(!packages.contains(&unwanted), "{unwanted} is a dependency:\n{tree}");
    }
    // The ledger is a module of this package, and belongs to the feature that is disabled.
    let own = tree.lines().find(|line| line.starts_with("rounds ")).unwrap();
    assert!(own.ends_with(" client"), "{own}");
}
