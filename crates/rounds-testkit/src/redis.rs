//! A Redis for each test: a real server without persistence, which is stopped when the test ends.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    net::TcpListener,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread::sleep,
    time::{Duration, Instant},
};

use redis::{Cmd, FromRedisValue};
use rounds_redis::{RedisLedger, RedisLedgerBuilder};

const SOCKET: &str = "redis.sock";

/// A server that listens on a socket in a folder of its own. Both are gone when this is dropped.
pub struct Redis {
    directory: PathBuf,
    settings: Vec<String>,
    process: Option<Child>,
}

impl Redis {
    /// With the default settings.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// With settings such as `--maxmemory 10mb`.
    pub fn with(settings: &[&str]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("rounds-redis-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let mut redis = Self { directory, settings, process: None };
        redis.start_again();
        redis
    }

    /// A primary and its replica, which has everything that the primary has so far.
    pub async fn with_replica(settings: &[&str]) -> [Self; 2] {
        let ports = [free_port(), free_port()];
        let pair = [0, 1].map(|at: usize| {
            let own = ["--port", &ports[at], "--bind", "127.0.0.1", "--repl-diskless-sync-delay", "0"];
            Self::with(&[&own, settings].concat())
        });
        let _: String = pair[1].ask("REPLICAOF 127.0.0.1", &[ports[0].as_bytes()]).await;
        pair[1].until_replicating().await;
        pair
    }

    /// Waits until this replica is connected to its primary.
    pub async fn until_replicating(&self) {
        self.until("master_link_status:up").await;
    }

    /// Makes a replica of this primary the primary, without the loss of a write. This one becomes its replica.
    pub async fn fail_over(&self, to: &Self) {
        to.until_replicating().await;
        let _: String = self.ask("FAILOVER TIMEOUT 5000", &[]).await;
        to.until("role:master").await;
        self.until("role:slave").await;
    }

    async fn until(&self, replication: &str) {
        let began = Instant::now();
        while !self.ask::<String>("INFO replication", &[]).await.contains(replication) {
            assert!(began.elapsed() < Duration::from_secs(30), "{replication} takes too long");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        self.directory.join(SOCKET)
    }

    /// Starts it again at the same address, with an empty database.
    pub fn start_again(&mut self) {
        let log = self.directory.join("log");
        let process = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--enable-debug-command", "yes"])
            .arg("--unixsocket")
            .arg(self.socket())
            .arg("--dir")
            .arg(&self.directory)
            .args(&self.settings)
            .stdin(Stdio::null())
            .stdout(File::create(&log).unwrap())
            .stderr(Stdio::null())
            .spawn();
        let process = process.unwrap_or_else(|error| {
            panic!("cannot start redis-server: {error}. Install Redis 7 or later, or let `cargo xtask test` do it")
        });
        let process = self.process.insert(process);
        let began = Instant::now();
        let socket = self.directory.join(SOCKET);
        while !answers(&socket) {
            let gone = process.try_wait().unwrap().is_some() || began.elapsed() > Duration::from_secs(20);
            assert!(!gone, "redis-server does not answer: {}", std::fs::read_to_string(log).unwrap());
            sleep(Duration::from_millis(5));
        }
    }

    /// Starts it again at the same address, with other settings and an empty database.
    pub fn start_again_with(&mut self, settings: &[String]) {
        self.settings = settings.to_vec();
        self.start_again();
    }

    /// Kills it. What it held is lost.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // It may have ended already.
            let _ = process.kill();
            let _ = process.wait();
        }
        let _ = std::fs::remove_file(self.socket());
    }

    /// Stops the process: it still accepts connections and requests, but does not answer.
    pub fn pause(&self) {
        self.signal("-STOP");
    }

    /// Lets it work again after [`pause`](Self::pause).
    pub fn go_on(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let process = self.process.as_ref().expect("redis-server runs").id().to_string();
        assert!(Command::new("kill").args([signal, &process]).status().unwrap().success());
    }

    /// The URL for a client.
    pub fn url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    /// A ledger on it, to be configured.
    pub fn builder(&self) -> RedisLedgerBuilder {
        RedisLedger::builder(self.url())
    }

    /// A ledger on it.
    pub async fn ledger(&self) -> RedisLedger {
        self.builder().connect().await.unwrap()
    }

    /// Sends a command directly, as an operator or an attacker would.
    pub async fn ask<T: FromRedisValue>(&self, command: &str, arguments: &[&[u8]]) -> T {
        let client = redis::Client::open(self.url()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let mut ask = Cmd::new();
        ask.arg(command.split(' ').collect::<Vec<_>>()).arg(arguments);
        ask.query_async(&mut connection).await.unwrap()
    }

    /// How many times clients have called a command, such as `evalsha`.
    pub async fn calls_of(&self, command: &str) -> usize {
        let stats: String = self.ask("INFO commandstats", &[]).await;
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
        line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
    }

    /// The names of all keys in it, sorted.
    pub async fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.ask("KEYS", &[b"*"]).await;
        keys.sort();
        keys
    }

    /// The whole database, as Redis would write it to a disk.
    pub async fn dump(&self) -> Vec<u8> {
        let _: String = self.ask("SAVE", &[]).await;
        std::fs::read(self.directory.join("dump.rdb")).unwrap()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.stop();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A port on which nothing listens.
fn free_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string()
}

fn answers(socket: &Path) -> bool {
    let Ok(mut stream) = UnixStream::connect(socket) else { return false };
    let mut answer = [0; 7];
    stream.write_all(b"PING\r\n").is_ok() && stream.read_exact(&mut answer).is_ok() && answer == *b"+PONG\r\n"
}
