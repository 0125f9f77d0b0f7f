//! A Postgres for tests: a real server in a folder of its own, which is stopped when the test program ends, however it
//! ends.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::SocketAddr,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    thread::sleep,
    time::{Duration, Instant},
};

/// The only user, who may do anything.
const USER: &str = "rounds";

/// How long starting or stopping may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the server until stdin is closed, which happens when the test program ends. The folder is removed then.
const KEEPER: &str = r#"
trap '' TERM INT
"$1" -D "$2/data" >>"$2/log" 2>&1 </dev/null &
cat >/dev/null
kill -QUIT $! 2>/dev/null
wait
"#;

/// A server that listens on a socket in a folder of its own.
pub struct Postgres {
    folder: PathBuf,
    keeper: Option<Child>,
    /// Processes that were stopped, which do not notice when the server is killed.
    stalled: Vec<String>,
}

impl Postgres {
    /// A server for all tests of this program that neither stop nor configure it. Each test takes a database of its own.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Postgres> = OnceLock::new();
        SHARED.get_or_init(|| Self::with(&["fsync=off"]))
    }

    /// A server of its own, with the default settings.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// A server of its own, with settings such as `fsync=off`.
    pub fn with(settings: &[&str]) -> Self {
        Self::within(&new_path(), settings)
    }

    /// A server of its own in this folder, which is created.
    pub fn within(folder: &Path, settings: &[&str]) -> Self {
        let mut postgres = Self::in_folder(folder);
        let args = ["-A", "trust", "-U", USER, "-E", "UTF8", "--no-locale", "--no-sync", "-D"];
        run(program("initdb").args(args).arg(postgres.data()));
        let defaults = format!(
            "listen_addresses = ''\nunix_socket_directories = '{}'\nmax_connections = 200\nshared_buffers = 16MB\n",
            folder.display()
        );
        let settings: String = settings.iter().map(|setting| format!("{setting}\n")).collect();
        fs::write(postgres.data().join("postgresql.auto.conf"), defaults + &settings).unwrap();
        postgres.start_again();
        postgres
    }

    fn in_folder(folder: &Path) -> Self {
        fs::create_dir_all(folder).unwrap();
        give_to_user(folder);
        Self { folder: folder.to_owned(), keeper: None, stalled: Vec::new() }
    }

    /// A replica of this server, which streams from it under the name `replica`.
    pub fn replica(&self) -> Self {
        let mut replica = Self::in_folder(&new_path());
        let args = ["-R", "-X", "stream", "-c", "fast", "--no-sync", "-D"];
        run(self.client("pg_basebackup").args(args).arg(replica.data()));
        let settings = replica.data().join("postgresql.auto.conf");
        // The last line counts.
        let own = format!(
            "unix_socket_directories = '{}'\nprimary_conninfo = 'host={} user={USER} application_name=replica'\n",
            replica.folder.display(),
            self.folder.display()
        );
        fs::write(&settings, fs::read_to_string(&settings).unwrap() + &own).unwrap();
        replica.start_again();
        self.wait_for_replica();
        replica
    }

    /// Waits until the replica has everything that was committed.
    pub fn wait_for_replica(&self) {
        let has = "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_lsn()";
        self.wait_until(has);
    }

    fn wait_until(&self, counted: &str) {
        let began = Instant::now();
        while self.ask(&self.url("postgres"), counted) == "0" {
            assert!(began.elapsed() < PATIENCE, "{counted}: {}", self.log());
            sleep(Duration::from_millis(20));
        }
    }

    /// Sends nothing more to the replica, as if the network between them was gone.
    pub fn stall_replication(&mut self) {
        let senders = self.ask(&self.url("postgres"), "SELECT pid FROM pg_stat_replication");
        self.stalled.extend(senders.lines().map(str::to_owned));
        run(Command::new("kill").arg("-STOP").args(&self.stalled));
    }

    /// Makes a replica the primary.
    pub fn promote(&mut self) {
        assert_eq!(self.ask(&self.url("postgres"), "SELECT pg_promote()"), "t", "{}", self.log());
    }

    /// The folder of its database.
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Starts it again with what it has on its disk.
    pub fn start_again(&mut self) {
        let began = Instant::now();
        // The processes of a server that was killed may still hold its memory: then it does not start.
        while !self.try_start() {
            assert!(began.elapsed() < PATIENCE, "postgres does not start: {}", self.log());
            sleep(Duration::from_millis(100));
        }
    }

    fn try_start(&mut self) -> bool {
        self.end_keeper();
        let mut keeper = as_user(Command::new("sh"));
        keeper.args(["-c", KEEPER, "keeper"]).arg(path_of("postgres")).arg(&self.folder).stdin(Stdio::piped());
        let keeper = keeper.process_group(0).spawn().unwrap();
        self.keeper = Some(keeper);
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            let ready = self.client("pg_isready").args(["-q", "-d", "postgres"]).status().unwrap();
            if ready.success() {
                return true;
            }
            if began.elapsed() > Duration::from_secs(1) && self.pid().is_none() {
                return false;
            }
            sleep(Duration::from_millis(20));
        }
        false
    }

    /// Kills it with SIGKILL, as a crash would.
    pub fn kill(&mut self) {
        self.signal("-KILL");
        if !self.stalled.is_empty() {
            run(Command::new("kill").arg("-KILL").args(std::mem::take(&mut self.stalled)));
        }
        // A killed server leaves its file behind.
        let _ = fs::remove_file(self.data().join("postmaster.pid"));
        self.end_keeper();
    }

    /// Stops all its processes: it still accepts connections and requests, but does not answer.
    pub fn pause(&self) {
        self.signal("-STOP");
        run(Command::new("pkill").args(["-STOP", "-P"]).arg(self.pid().expect("postgres runs").to_string()));
    }

    /// Lets it work again after [`pause`](Self::pause).
    pub fn go_on(&self) {
        run(Command::new("pkill").args(["-CONT", "-P"]).arg(self.pid().expect("postgres runs").to_string()));
        self.signal("-CONT");
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        self.folder.join(".s.PGSQL.5432")
    }

    /// The URL of a database at the end of a cable, which listens at this address.
    pub fn url_at(address: SocketAddr, database: &str) -> String {
        format!("postgres://{USER}@{address}/{database}?sslmode=disable")
    }

    /// Stops the main process: no new connection is answered.
    pub fn signal(&self, signal: &str) {
        let process = self.pid().expect("postgres runs").to_string();
        run(Command::new("kill").args([signal, &process]));
    }

    fn pid(&self) -> Option<u32> {
        fs::read_to_string(self.data().join("postmaster.pid")).ok()?.lines().next()?.parse().ok()
    }

    fn end_keeper(&mut self) {
        if let Some(mut keeper) = self.keeper.take() {
            drop(keeper.stdin.take());
            let _ = keeper.wait();
        }
    }

    /// A new database, by its URL.
    pub fn database(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        run(self.client("createdb").arg(&name));
        self.url(&name)
    }

    /// The URL of a database.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{USER}@localhost/{database}?host={}", self.folder.display())
    }

    /// Runs statements on a database, as an operator or an attacker would, and returns the rows, a line each.
    pub fn ask(&self, url: &str, statements: &str) -> String {
        let output = self
            .client("psql")
            .args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-d", name_of(url), "-c", statements])
            .output()
            .unwrap();
        assert!(output.status.success(), "{statements}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    /// A session that has run a statement, and lasts until its standard input is closed.
    pub fn hold(&self, url: &str, statement: &str) -> Child {
        let mut psql = self.client("psql");
        psql.args(["-XAtq", "-d", name_of(url)]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut session = psql.spawn().unwrap();
        writeln!(session.stdin.as_mut().unwrap(), "{statement};\n\\echo held").unwrap();
        let said = BufReader::new(session.stdout.as_mut().unwrap());
        assert!(said.lines().any(|line| line.unwrap() == "held"), "{statement}: {}", self.log());
        session
    }

    /// Everything in a database, as text.
    pub fn dump(&self, url: &str) -> Vec<u8> {
        self.client("pg_dump").args(["--inserts", "-d", name_of(url)]).output().unwrap().stdout
    }

    fn client(&self, name: &str) -> Command {
        let mut client = program(name);
        client.arg("-h").arg(&self.folder).args(["-U", USER]);
        client
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.end_keeper();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// An address that can be led to another server, as an operator does after a failover. It is a link to the folder of the
/// socket.
pub struct PostgresAddress(PathBuf);

impl PostgresAddress {
    /// An address that leads to this server.
    pub fn of(postgres: &Postgres) -> Self {
        let address = Self(new_path());
        address.lead_to(postgres);
        address
    }

    /// Leads to another server from now on.
    pub fn lead_to(&self, postgres: &Postgres) {
        let _ = fs::remove_file(&self.0);
        std::os::unix::fs::symlink(&postgres.folder, &self.0).unwrap();
    }

    /// The URL of a database at this address, from its URL at a server.
    pub fn url(&self, url: &str) -> String {
        format!("postgres://{USER}@localhost/{}?host={}", name_of(url), self.0.display())
    }
}

impl Drop for PostgresAddress {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A path that is not in use yet.
fn new_path() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("rounds-pg-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    std::env::temp_dir().join(name)
}

fn name_of(url: &str) -> &str {
    url.rsplit_once('/').map_or(url, |_| url.split("localhost/").nth(1).unwrap()).split('?').next().unwrap()
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A program of Postgres, which refuses to run as root.
fn program(name: &str) -> Command {
    as_user(Command::new(path_of(name)))
}

/// Debian keeps them out of the path, in a folder for each version.
fn path_of(name: &str) -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = versions.map(|version| version.path().join("bin").join(name)).filter(|path| path.exists()).max();
    newest.unwrap_or_else(|| name.into())
}

/// Runs a program as the user `postgres` if this one runs as root.
fn as_user(mut command: Command) -> Command {
    if id(&["-u"]) == Some(0) {
        let user = |which| {
            id(&[which, "postgres"])
                .expect("there is no user `postgres`: install Postgres 15 or later, or let `cargo xtask test` do it")
        };
        command.uid(user("-u")).gid(user("-g"));
    }
    command.current_dir("/");
    command
}

fn give_to_user(folder: &Path) {
    if id(&["-u"]) == Some(0) {
        run(Command::new("chown").arg("postgres:").arg(folder));
    }
}

fn id(args: &[&str]) -> Option<u32> {
    let output = Command::new("id").args(args).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}
