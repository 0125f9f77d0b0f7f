//! Interoperability with the programs of other projects: the conformance suite, and the clients and servers of other
//! SDKs.
//!
//! What they need is pinned in `interop/` and installed there if it is missing. Nothing is skipped: if an installation
//! fails, the step fails and names what is missing. Each pairing becomes a row of the table in the guide `interop`, and
//! the last step compares the two.

pub(crate) mod install;
mod peer;
pub(crate) mod process;
mod suite;
mod table;

use std::{
    cell::RefCell,
    path::{Path, PathBuf},
    process::Command,
    rc::Rc,
    time::Duration,
};

use self::{
    install::{Npm, Venv},
    peer::{Era, Peer, Side, Transport},
    process::{Log, Server, in_time},
    table::{Document, Row},
};
use crate::step::Step;

/// Each walk through the gallery: the client, the era, the transport and the script. A further pairing is a further
/// entry.
const WALKS: [(Peer, Era, Transport, &str); 20] = [
    (Peer::TypeScript, Era::Modern, Transport::Http, "typescript/modern.mjs"),
    (Peer::TypeScript, Era::Modern, Transport::Stdio, "typescript/modern.mjs"),
    (Peer::TypeScript, Era::Modern, Transport::Http, "typescript/byhand.mjs"),
    (Peer::TypeScript, Era::Modern, Transport::Stdio, "typescript/byhand.mjs"),
    (Peer::TypeScript, Era::Legacy, Transport::Http, "typescript/modern.mjs"),
    (Peer::TypeScript, Era::Legacy, Transport::Stdio, "typescript/modern.mjs"),
    (Peer::ExtTasks, Era::Modern, Transport::Http, "typescript/tasks.mjs"),
    (Peer::TypeScriptLegacy, Era::Legacy, Transport::Http, "typescript/legacy.mjs"),
    (Peer::TypeScriptLegacy, Era::Legacy, Transport::Stdio, "typescript/legacy.mjs"),
    (Peer::Python, Era::Modern, Transport::Http, "python/modern.py"),
    (Peer::Python, Era::Modern, Transport::Stdio, "python/modern.py"),
    (Peer::Python, Era::Modern, Transport::Http, "python/byhand.py"),
    (Peer::Python, Era::Modern, Transport::Stdio, "python/byhand.py"),
    (Peer::Python, Era::Legacy, Transport::Http, "python/modern.py"),
    (Peer::Python, Era::Legacy, Transport::Stdio, "python/modern.py"),
    (Peer::PythonLegacy, Era::Legacy, Transport::Http, "python/legacy.py"),
    (Peer::PythonLegacy, Era::Legacy, Transport::Stdio, "python/legacy.py"),
    (Peer::FastMcp, Era::Modern, Transport::Http, "python/fastmcp_client.py"),
    (Peer::FastMcp, Era::Modern, Transport::Stdio, "python/fastmcp_client.py"),
    (Peer::Mcpdo, Era::Modern, Transport::Http, "mcpdo/walk.mjs"),
];

/// Servers that are written with an SDK.
const THEIRS: [(Peer, Era, &str); 5] = [
    (Peer::TypeScript, Era::Modern, "typescript/server.mjs"),
    (Peer::Python, Era::Modern, "python/server.py"),
    (Peer::FastMcp, Era::Modern, "python/fastmcp_server.py"),
    (Peer::TypeScriptLegacy, Era::Legacy, "typescript/server_legacy.mjs"),
    (Peer::PythonLegacy, Era::Legacy, "python/server_legacy.py"),
];

/// The servers that the SDK's own client walks through too, with the script.
const WARRANTS: [(Peer, &str, &str); 2] = [
    (Peer::TypeScript, "typescript/server.mjs", "typescript/theirs.mjs"),
    (Peer::Python, "python/server.py", "python/theirs.py"),
];

/// The clients that walk through `examples/deploy_lowlevel.rs`, a server that is written by hand and sealed by `Rounds`, with
/// the script.
const LOWLEVEL: [(Peer, &str); 3] =
    [(Peer::TypeScript, "typescript/theirs.mjs"), (Peer::Python, "python/theirs.py"), (Peer::Rmcp, "walk")];

/// Far longer than a peer takes, which is a few seconds, or a minute if it polls.
const LIMIT: Duration = Duration::from_secs(240);

type Work = Box<dyn Fn(&Interop) -> Result<(), String>>;

/// The command that repeats all steps, and the one that also records the table.
const AGAIN: &str = "xtask interop";
pub(crate) const WRITE: &str = "xtask interop --write";

/// All pairings, with the programs that an earlier step has built. With `write`, the table is recorded instead of
/// compared.
pub(crate) fn steps(root: &Path, built: &Path, write: bool) -> Vec<Step> {
    let interop = Rc::new(Interop::new(root, built));
    let mut steps = Vec::new();
    let mut step = |doing: String, work: Work| {
        let interop = interop.clone();
        steps.push(Step::cargo(doing, AGAIN).by(move || work(&interop)));
    };
    step("install the peers from npm".to_owned(), Box::new(|interop| interop.npm.install()));
    for venv in interop.venvs() {
        step(format!("install the peer of {}", venv.requirements()), Box::new(move |_| venv.install()));
    }
    for args in suite::SERVER_RUNS {
        let doing = format!("run the conformance suite against the server, {args}");
        step(doing, Box::new(move |interop| interop.conform(args)));
    }
    for args in suite::CLIENT_RUNS {
        let doing = format!("run the conformance suite with the client, {args}");
        step(doing, Box::new(move |interop| interop.conform_client(args)));
    }
    for (peer, era, transport, script) in WALKS {
        let (name, revision) = (peer.name(Side::Client), era.revision());
        let doing = format!("let {name} walk through the gallery over {transport} in {revision} ({script})");
        step(doing, Box::new(move |interop| interop.walk(peer, era, transport, script)));
    }
    for (peer, script) in LOWLEVEL {
        for transport in [Transport::Http, Transport::Stdio] {
            let doing =
                format!("let {} walk through a server written by hand over {transport}", peer.name(Side::Client));
            step(doing, Box::new(move |interop| interop.walk_lowlevel(peer, transport, script)));
        }
    }
    for (peer, server, script) in WARRANTS {
        for transport in [Transport::Http, Transport::Stdio] {
            let doing = format!("let {} walk through a server of its own over {transport}", peer.name(Side::Client));
            step(doing, Box::new(move |interop| interop.warrant(peer, transport, server, script)));
        }
    }
    for (peer, era, server) in THEIRS {
        for transport in [Transport::Http, Transport::Stdio] {
            let (name, revision) = (peer.name(Side::Server), era.revision());
            let doing = format!("let our client walk through {name} over {transport} in {revision}");
            step(doing, Box::new(move |interop| interop.visit(peer, era, transport, server)));
        }
    }
    let doing = if write { "record the table" } else { "compare the table with the recorded one" };
    step(doing.to_owned(), Box::new(move |interop| interop.tabulate(write)));
    steps
}

struct Interop {
    npm: Npm,
    folder: PathBuf,
    document: Document,
    built: PathBuf,
    rows: RefCell<Vec<Row>>,
}

impl Interop {
    fn new(root: &Path, built: &Path) -> Self {
        let folder = root.join("interop");
        Self {
            npm: Npm::of(&folder),
            document: Document(root.join("crates/rounds/src/guide/interop.md")),
            built: built.to_owned(),
            rows: RefCell::default(),
            folder,
        }
    }

    fn venvs(&self) -> [Venv; 3] {
        ["requirements.txt", "requirements-legacy.txt", "requirements-fastmcp-tasks.txt"]
            .map(|requirements| Venv::of(&self.folder, requirements))
    }

    /// Runs the conformance suite against the server that was written for it.
    fn conform(&self, args: &'static str) -> Result<(), String> {
        let server = Server::start(&mut Command::new(self.built.join("conformance-server")))?;
        let log = self.log()?;
        let results = log.path().with_extension("results");
        let ran = in_time(suite::against(&self.npm, &server.url, args, &results), LIMIT, &log);
        let checks = suite::read(&results);
        let result = ran.and_then(|()| checks?.passed()).map_err(|problem| log.with(&problem, server))?;
        let exercised = format!("the server scenarios of `{args}`");
        self.row((Peer::Suite, Side::Client), suite::era(args), "HTTP", exercised, result)
    }

    /// Lets the conformance suite run the client that was written for it.
    fn conform_client(&self, args: &'static str) -> Result<(), String> {
        let log = self.log()?;
        let results = log.path().with_extension("results");
        let client = self.built.join("conformance-client");
        let ran = in_time(suite::with(&self.npm, &client, args, &results), LIMIT, &log);
        let checks = suite::read(&results);
        let result = ran.and_then(|()| checks?.passed()).map_err(|problem| log.alone(&problem))?;
        let exercised = format!("the client scenarios of `{args}`, those of authorization included");
        self.row((Peer::Suite, Side::Server), suite::era(args), "HTTP", exercised, result)
    }

    /// Lets a client walk through the gallery, at a new server, so that the counters start at zero.
    fn walk(&self, peer: Peer, era: Era, transport: Transport, script: &str) -> Result<(), String> {
        let mut server = Command::new(self.built.join("rounds"));
        // Only clients that declare the extension get tasks.
        server.args(["serve", "--tasks-after", "0s"]).args(match transport {
            Transport::Http => &["--http", "127.0.0.1:0"][..],
            Transport::Stdio => &["--stdio"],
        });
        let exercised = self.pair(peer.command(self, script), era, transport, server)?;
        self.row((peer, Side::Client), era.revision(), transport.name(), exercised, "pass".to_owned())
    }

    /// Lets a client walk through the server that is written by hand.
    fn walk_lowlevel(&self, peer: Peer, transport: Transport, script: &str) -> Result<(), String> {
        let mut server = Command::new(self.built.join("examples/deploy_lowlevel"));
        if transport == Transport::Http {
            server.arg("--http");
        }
        let mut client = peer.command(self, script);
        if peer == Peer::Rmcp {
            client.arg("lowlevel");
        }
        client.env("SERVER", "lowlevel");
        let exercised = self.pair(client, Era::Modern, transport, server)?;
        self.row((peer, Side::Client), Era::Modern.revision(), transport.name(), exercised, "pass".to_owned())
    }

    /// Lets our client walk through a server that is written with an SDK. It has to detect the server's era itself.
    fn visit(&self, peer: Peer, era: Era, transport: Transport, server: &str) -> Result<(), String> {
        let mut client = Command::new(self.built.join("walk"));
        client.arg(peer.language());
        let exercised = self.pair(client, era, transport, self.theirs(peer, transport, server))?;
        self.row((peer, Side::Server), era.revision(), transport.name(), exercised, "pass".to_owned())
    }

    /// Lets a client walk through a server that is written with the same SDK. This is not a pairing of ours. It shows
    /// that a failure of our client is our client's fault.
    fn warrant(&self, peer: Peer, transport: Transport, server: &str, script: &str) -> Result<(), String> {
        let server = self.theirs(peer, transport, server);
        let mut client = peer.command(self, script);
        client.env("SERVER", peer.language());
        println!("{}", self.pair(client, Era::Modern, transport, server)?);
        Ok(())
    }

    /// A server that is written with an SDK.
    fn theirs(&self, peer: Peer, transport: Transport, script: &str) -> Command {
        let mut server = peer.command(self, script);
        if transport == Transport::Stdio {
            server.arg("stdio");
        }
        server
    }

    /// Runs a client, and returns its report. Over stdio, the client starts the server.
    fn pair(&self, mut client: Command, era: Era, transport: Transport, mut server: Command) -> Result<String, String> {
        let log = self.log()?;
        client.arg(era.name());
        match transport {
            Transport::Http => {
                let server = Server::start(&mut server)?;
                client.args(["http", &server.url]);
                in_time(client, LIMIT, &log).map_err(|problem| log.with(&problem, server))?;
            }
            Transport::Stdio => {
                client.arg("stdio").arg(server.get_program()).args(server.get_args());
                in_time(client, LIMIT, &log).map_err(|problem| log.alone(&problem))?;
            }
        }
        log.exercised()
    }

    /// The log file of the next peer.
    fn log(&self) -> Result<Log, String> {
        Log::new(&self.built.join("interop"), self.rows.borrow().len())
    }

    fn row(
        &self,
        (peer, side): (Peer, Side),
        era: &'static str,
        transport: &'static str,
        exercised: String,
        result: String,
    ) -> Result<(), String> {
        println!("{result}: {exercised}");
        let (peer, version) = (peer.name(side), peer.version(side, self)?);
        let row = Row { peer, version, era, transport, exercised, result };
        self.rows.borrow_mut().push(row);
        Ok(())
    }

    fn tabulate(&self, write: bool) -> Result<(), String> {
        let table = table::of(&self.rows.borrow());
        println!("\n{table}");
        if write { self.document.write(&table) } else { self.document.compare(&table) }
    }
}
