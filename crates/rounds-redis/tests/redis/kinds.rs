//! Kinds of Redis: with TLS, with users and their rights, behind sentinels; and those that are refused at the start.

use std::{
    error::Error,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rounds::{
    ledger::{Ledger as _, suite},
    relay::Relay as _,
};
use rounds_redis::{ConnectError, RedisLedger, RedisRelay, RedisTls};

use crate::{Redis, bid, fresh, in_time, round};

/// The rights of a user, as the guide has them.
const RIGHTS: &str = "resetkeys ~rounds:* resetchannels &rounds:* -@all +evalsha +eval +script|load +hget +hmget +hset \
                      +hsetnx +hincrby +hdel +hgetall +zadd +zrem +zcard +zcount +zrange +zremrangebyscore +del +pexpire \
                      +pexpireat +pexpiretime +time +publish +subscribe +unsubscribe +pubsub|numsub +info +ping +scan";

fn sentence(error: &(dyn Error + 'static)) -> String {
    let sources = std::iter::successors(Some(error), |error: &&(dyn Error + 'static)| (*error).source());
    sources.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn free_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string()
}

async fn user(redis: &Redis, rights: &str) -> String {
    let command = format!("ACL SETUSER ann on >secret {rights}");
    let words: Vec<_> = command.split_whitespace().collect();
    let _: String = redis.ask(&words.join(" "), &[]).await;
    format!("{}?user=ann&pass=secret", redis.url())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_with_the_rights_of_the_guide_can_do_all_that_is_done() {
    let guide = include_str!("../../../rounds/src/guide/deploying.md");
    let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat(guide).contains(&flat(RIGHTS)), "the guide has other rights");
    let redis = Redis::start();
    let url = user(&redis, RIGHTS).await;
    in_time(suite::run(|| async { RedisLedger::connect(&url).await.unwrap() })).await;
    in_time(rounds::ledger::register::suite::run(|| async { RedisLedger::connect(&url).await.unwrap() })).await;
    let relays = [RedisRelay::connect(&url, "a").await.unwrap(), RedisRelay::connect(&url, "b").await.unwrap()];
    assert!(relays[0].post(relays[1].here(), vec![1]).await.unwrap());
}

#[tokio::test]
async fn a_right_that_is_missing_is_named_at_the_start() {
    for right in ["evalsha", "hset", "zadd", "hincrby", "pexpireat", "publish", "del"] {
        let redis = Redis::start();
        let url = user(&redis, &RIGHTS.replace(&format!("+{right} "), " ")).await;
        let error = in_time(RedisLedger::connect(&url)).await.unwrap_err();
        assert!(matches!(error, ConnectError::Refused { .. }), "{right}: {error:?}");
        let said = sentence(&error).to_lowercase();
        // Redis 7.0 does not name a command that a script may not run.
        assert!(said.contains(right) || said.contains("user executing the script"), "{right} is not named: {said}");
    }
    let redis = Redis::start();
    let url = user(&redis, &RIGHTS.replace("+subscribe ", " ")).await;
    let error = in_time(RedisRelay::connect(&url, "a")).await.unwrap_err();
    assert!(sentence(&error).contains("subscribe"), "{error:?}");
}

#[tokio::test]
async fn a_node_of_a_cluster_is_refused() {
    let port = free_port();
    let redis = Redis::with(&["--cluster-enabled", "yes", "--cluster-port", &port, "--bind", "127.0.0.1"]);
    let error = in_time(RedisLedger::connect(&redis.url())).await.unwrap_err();
    assert!(matches!(error, ConnectError::Cluster), "{error:?}");
    let error = in_time(RedisRelay::connect(&redis.url(), "a")).await.unwrap_err();
    assert!(matches!(error, ConnectError::Cluster), "{error:?}");
}

#[tokio::test]
async fn a_redis_that_is_not_there_yet_is_waited_for() {
    let mut redis = Redis::start();
    redis.stop();
    let error = in_time(RedisLedger::connect(&redis.url())).await.unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable(_)), "{error:?}");
    let connecting = tokio::spawn(redis.builder().wait(Duration::from_secs(60)).connect());
    tokio::time::sleep(Duration::from_millis(700)).await;
    redis.start_again();
    in_time(connecting).await.unwrap().unwrap();
}

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("rounds-kinds-{}-{}", std::process::id(), free_port()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, file: &str) -> String {
        self.0.join(file).display().to_string()
    }

    fn openssl(&self, arguments: &str) {
        let mut openssl = Command::new("openssl");
        let output = openssl.args(arguments.split_whitespace()).current_dir(&self.0).output().unwrap();
        assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// A certificate that `ca.pem` vouches for.
    fn certificate(&self, name: &str) {
        let new = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        self.openssl(&format!("req {new} -keyout {name}.key -out {name}.csr -subj /CN={name}"));
        std::fs::write(self.0.join("names"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n").unwrap();
        let sign = "-CA ca.pem -CAkey ca.key -CAcreateserial -days 1 -extfile names";
        self.openssl(&format!("x509 -req -in {name}.csr {sign} -out {name}.pem"));
    }

    fn authority(&self, name: &str) {
        let new = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1";
        self.openssl(&format!("req -x509 {new} -keyout {name}.key -out {name}.pem -subj /CN={name}"));
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_tls_certificates_are_checked_on_both_sides() {
    let folder = Folder::new();
    folder.authority("ca");
    folder.authority("other");
    folder.certificate("server");
    folder.certificate("client");
    let (port, path) = (free_port(), |file: &str| folder.path(file));
    let _redis = Redis::with(&[
        "--tls-port",
        &port,
        "--tls-cert-file",
        &path("server.pem"),
        "--tls-key-file",
        &path("server.key"),
        "--tls-ca-cert-file",
        &path("ca.pem"),
        "--tls-auth-clients",
        "yes",
    ]);
    let url = format!("rediss://localhost:{port}/");
    let trusting = |ca: &str| RedisTls::new().ca_file(path(ca)).unwrap();
    let tls = trusting("ca.pem").client_files(path("client.pem"), path("client.key")).unwrap();
    in_time(suite::run(|| async { RedisLedger::builder(&url).tls(tls.clone()).connect().await.unwrap() })).await;
    let relay = |name| RedisRelay::builder(&url, name).tls(tls.clone()).connect();
    let (a, b) = (relay("a").await.unwrap(), relay("b").await.unwrap());
    assert!(a.post(b.here(), vec![1]).await.unwrap());

    let stranger = trusting("other.pem").client_files(path("client.pem"), path("client.key")).unwrap();
    for refused in [stranger, trusting("ca.pem"), RedisTls::new()] {
        let shown = format!("{refused:?}");
        assert!(in_time(RedisLedger::builder(&url).tls(refused).connect()).await.is_err(), "{shown}");
    }
    let missing = RedisTls::new().ca_file(path("missing.pem")).unwrap_err();
    assert!(matches!(missing, ConnectError::Certificate { .. }), "{missing:?}");
}

/// A sentinel, which is stopped at the end.
struct Sentinel {
    process: Child,
    port: String,
    _folder: Folder,
}

impl Sentinel {
    fn of(primary: &str) -> Self {
        let (folder, port) = (Folder::new(), free_port());
        let config = format!(
            "port {port}\nbind 127.0.0.1\nsentinel monitor mymaster 127.0.0.1 {primary} 1\n\
             sentinel down-after-milliseconds mymaster 500\nsentinel failover-timeout mymaster 3000\n"
        );
        let file = folder.path("sentinel.conf");
        std::fs::write(Path::new(&file), config).unwrap();
        let mut command = Command::new("redis-server");
        command.args([&file, "--sentinel"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self { process: command.spawn().unwrap(), port, _folder: folder }
    }

    fn url(&self) -> String {
        format!("redis+sentinel://127.0.0.1:{}/mymaster", self.port)
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_sentinels_the_new_primary_is_found_when_the_old_one_is_gone() {
    let (first, second) = (free_port(), free_port());
    let mut old = Redis::with(&["--port", &first, "--bind", "127.0.0.1", "--repl-diskless-sync-delay", "0"]);
    let new = Redis::with(&["--port", &second, "--bind", "127.0.0.1", "--replicaof", "127.0.0.1", &first]);
    let sentinel = Sentinel::of(&first);
    let url = sentinel.url();
    let ledger = RedisLedger::builder(&url).wait(Duration::from_secs(30)).connect().await.unwrap();
    let relay = |name| RedisRelay::builder(&url, name).connect();
    let (a, b) = (relay("a").await.unwrap(), relay("b").await.unwrap());
    assert!(a.post(b.here(), vec![1]).await.unwrap());
    fresh(&ledger, round(1, 1), bid(0)).await;
    in_time(async {
        // The sentinel has to know the replica before it can promote it.
        while !new.ask::<String>("INFO replication", &[]).await.contains("master_link_status:up") {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        tokio::time::sleep(Duration::from_secs(11)).await;
    })
    .await;

    old.stop();
    let began = Instant::now();
    in_time(async {
        while ledger.claim(round(2, 1), bid(0)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    assert!(new.ask::<String>("INFO replication", &[]).await.contains("role:master"));
}

#[tokio::test]
async fn the_address_of_a_sentinel_is_not_taken_for_that_of_a_redis() {
    let port = free_port();
    let _redis = Redis::with(&["--port", &port, "--bind", "127.0.0.1"]);
    let sentinel = Sentinel::of(&port);
    let builder = RedisLedger::builder(format!("redis://127.0.0.1:{}/", sentinel.port));
    let error = in_time(builder.wait(Duration::from_secs(20)).connect()).await.unwrap_err();
    assert!(matches!(error, ConnectError::Sentinel), "{error:?}");
    let unknown = sentinel.url().replace("mymaster", "another");
    let error = in_time(RedisLedger::connect(&unknown)).await.unwrap_err();
    assert!(sentence(&error).contains("does not know a primary of this name"), "{error:?}");
}
