//! The server a team would deploy, as its users and its operator see it.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::{convert::Infallible, env, fs, future::pending, path::PathBuf, process::Stdio, sync::Arc, time::Duration};

use rmcp::{
    RoleClient, object,
    service::RunningService,
    transport::{StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig},
};
use rounds::client::{
    AskedQuestion, Call, DefaultsOnly, Host, Pending, Responder, SendError, Sent, UserAnswer, defaults_only,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines},
    net::TcpStream,
    process::{Child, ChildStderr, Command},
    sync::Notify,
    time::timeout,
};

type Client = RunningService<RoleClient, Host<DefaultsOnly>>;

/// Far longer than anything here takes.
const LONG: Duration = Duration::from_secs(30);

/// The example, as `cargo test` has built it.
struct Server {
    process: Child,
    log: Lines<BufReader<ChildStderr>>,
    url: String,
    keys: PathBuf,
}

impl Server {
    /// A server on a free port, with the keys of the test with this name.
    async fn start(test: &str) -> Self {
        let keys = env::temp_dir().join(format!("http-axum-{test}-{}", std::process::id()));
        fs::write(&keys, "07".repeat(32)).unwrap();
        let program = env::current_exe().unwrap().ancestors().nth(2).unwrap().join("examples/http_axum");
        let mut process = Command::new(program)
            .envs([
                ("KEYS", keys.to_str().unwrap()),
                ("USERS", "secret-1=alice,secret-2=bob"),
                ("LISTEN", "127.0.0.1:0"),
            ])
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap()).lines();
        let said = timeout(LONG, log.next_line()).await.unwrap().unwrap().unwrap();
        let url = said.strip_prefix("listening on ").unwrap().to_owned();
        Self { process, log, url, keys }
    }

    async fn client(&self, token: &str) -> Client {
        self.client_of(Host::new(defaults_only()), token).await
    }

    async fn client_of<R: Responder + 'static>(
        &self,
        host: Host<R>,
        token: &str,
    ) -> RunningService<RoleClient, Host<R>> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = StreamableHttpClientTransportConfig::with_uri(self.url.as_str()).auth_header(token);
        let transport = StreamableHttpClientTransport::from_config(config);
        timeout(LONG, host.connect(transport)).await.unwrap().unwrap()
    }

    /// The status of a request, and its body.
    async fn get(&self, path: &str) -> String {
        let host = self.url.trim_start_matches("http://").trim_end_matches("/mcp");
        let mut stream = TcpStream::connect(host).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        timeout(LONG, stream.read_to_string(&mut response)).await.unwrap().unwrap();
        response
    }

    async fn terminate(&mut self) {
        let id = self.process.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().await.unwrap().success());
        assert!(timeout(LONG, self.process.wait()).await.unwrap().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.keys);
    }
}

async fn deploy(client: &Client) -> Pending {
    match Call::tool("deploy", object!({"env": "prod"})).send(client).await.unwrap() {
        Sent::Asks(mut pending) => {
            pending.accept("confirm", object!({"confirm": true})).unwrap();
            pending
        }
        other => panic!("expected a question, got {other:?}"),
    }
}

async fn text(sent: Result<Sent, SendError>) -> String {
    match sent.unwrap() {
        Sent::Done(done) => done.text(),
        other => panic!("expected a result, got {other:?}"),
    }
}

#[tokio::test]
async fn a_flow_belongs_to_the_user_who_began_it() {
    let mut server = Server::start("users").await;
    let (alice, bob) = (server.client("secret-1").await, server.client("secret-2").await);
    let asked = deploy(&alice).await;
    assert!(matches!(asked.send(&bob).await, Err(SendError::StateRefused(_))));
    for _ in ["the answer", "its retry"] {
        assert_eq!(text(asked.send(&alice).await).await, "deployed to prod, as alice said");
    }
    let effect = timeout(LONG, server.log.next_line()).await.unwrap().unwrap().unwrap();
    assert!(effect.starts_with("deploying to prod, idempotency key "), "{effect}");
    server.terminate().await;
    assert_eq!(server.log.next_line().await.unwrap(), None, "the effect ran once");
}

#[tokio::test]
async fn a_caller_who_has_not_signed_in_reaches_the_probes_only() {
    let server = Server::start("unknown").await;
    assert!(server.get("/mcp").await.starts_with("HTTP/1.1 401 "));
    for probe in ["/livez", "/readyz"] {
        assert!(server.get(probe).await.starts_with("HTTP/1.1 200 "), "{probe}");
    }
}

#[tokio::test]
async fn the_server_ends_while_a_legacy_client_is_asked() {
    let mut server = Server::start("legacy").await;
    let thinking = Arc::new(Notify::new());
    let thinks = {
        let thinking = thinking.clone();
        move |_question: AskedQuestion| {
            thinking.notify_one();
            pending::<Result<UserAnswer, Infallible>>()
        }
    };
    let client = server.client_of(Host::new(thinks).legacy_only(), "secret-1").await;
    let call = tokio::spawn(async move { Call::tool("deploy", object!({"env": "prod"})).send(&client).await });
    timeout(LONG, thinking.notified()).await.unwrap();
    server.terminate().await;
    // The client tries for long to find the server again.
    call.abort();
}

#[tokio::test]
async fn a_question_is_answered_after_a_deploy_of_the_server() {
    let mut old = Server::start("restart").await;
    let asked = deploy(&old.client("secret-1").await).await;
    old.terminate().await;
    let new = Server::start("restart").await;
    assert_eq!(text(asked.send(&new.client("secret-1").await).await).await, "deployed to prod, as alice said");
}
