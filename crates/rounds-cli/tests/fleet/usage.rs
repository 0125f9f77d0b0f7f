//! Mistakes that an operator can make.

use crate::{in_time, instance::rounds};

async fn fails(args: &[&str]) -> String {
    let output = in_time("the command", rounds(&[&["serve", "--stdio", "--store-wait", "0s"], args].concat()).output())
        .await
        .unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[tokio::test]
async fn a_fleet_needs_keys_and_a_redis_and_says_so() {
    let said = fails(&["--redis", "redis://127.0.0.1/"]).await;
    assert!(said.contains("--key-file <FILE>"), "{said}");
    let said = fails(&["--instance", "a"]).await;
    assert!(said.contains("--store <URL>"), "{said}");
    let keys = crate::Keys::new(&[1]);
    let said = fails(&["--key-file", keys.path(), "--redis", "redis://user:secret@127.0.0.1:1/"]).await;
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("rounds: cannot use the Redis at 127.0.0.1:1/: Redis cannot be reached"), "{said}");
    assert!(!said.contains("secret"), "{said}");
    let said = fails(&["--key-file", keys.path(), "--store", "postgres://user:secret@127.0.0.1:1/db"]).await;
    assert!(said.starts_with("rounds: cannot use the Postgres at 127.0.0.1:1/db: "), "{said}");
    assert!(!said.contains("secret"), "{said}");
    let said = fails(&["--key-file", keys.path(), "--store", "sqlite:/nowhere/rounds.db"]).await;
    assert!(said.contains("cannot create /nowhere/rounds.db: check that its folder exists"), "{said}");
    let said = fails(&["--key-file", keys.path(), "--store", "rounds.db"]).await;
    assert!(said.contains("sqlite:FILE"), "{said}");
    let said = fails(&["--key-file", keys.path(), "--redis", "http://127.0.0.1/"]).await;
    assert!(said.contains("this is not the address of a Redis"), "{said}");
}
