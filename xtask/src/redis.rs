//! Redis, which the tests of the ledger start.

use std::process::Command;

use crate::install;

const OLDEST: u32 = 7;

/// Installs `redis-server` if it is missing, and checks its version.
pub(crate) fn install() -> Result<(), String> {
    let missing = format!(
        "redis-server is missing: install Redis {OLDEST} or later, so that `redis-server` is in the path (on Debian, \
         `apt-get install redis-server`)"
    );
    if version().is_none() {
        install::install(&["redis-server"], &missing)?;
    }
    match version() {
        None => Err(missing),
        Some(version) => check(&version),
    }
}

/// The output of `redis-server --version`.
fn version() -> Option<String> {
    let output = Command::new("redis-server").arg("--version").output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn check(version: &str) -> Result<(), String> {
    // "Redis server v=7.0.15 sha=…"; the first field with a version, because derivatives of Redis print another name.
    let number = version.split(' ').find_map(|word| word.strip_prefix("v="));
    let major = number.and_then(|number| number.split('.').next()?.parse::<u32>().ok());
    match (number, major) {
        (Some(number), Some(major)) if major >= OLDEST => {
            println!("redis-server {number}");
            Ok(())
        }
        (Some(number), Some(_)) => Err(format!("redis-server is version {number}: install Redis {OLDEST} or later")),
        _ => Err(format!("redis-server does not print its version, but `{version}`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_redis_is_not_enough() {
        assert_eq!(check("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64"), Ok(()));
        assert_eq!(check("Valkey server v=8.1.0 sha=00000000:0"), Ok(()));
        let old = check("Redis server v=6.2.7 sha=00000000:0").unwrap_err();
        assert_eq!(old, "redis-server is version 6.2.7: install Redis 7 or later");
        assert!(check("no version").unwrap_err().contains("no version"));
    }
}
