//! `serve --stdio`: one client, on pipes.

use std::process::Stdio;

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout},
};

use crate::{
    process::{in_time, rounds, run},
    request::{first, is_frozen, is_metric, message, second, state_of},
};

/// A server, and the pipes to it.
pub(crate) struct Conversation {
    pub(crate) child: Child,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl Conversation {
    pub(crate) fn begin() -> Self {
        Self::begin_with(&[])
    }

    pub(crate) fn begin_with(options: &[&str]) -> Self {
        let mut child = rounds(&[&["serve", "--stdio"], options].concat()).stdin(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, stdin, stdout }
    }

    pub(crate) async fn send(&mut self, message: &Value) {
        self.stdin.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    pub(crate) async fn receive(&mut self) -> Value {
        let line = in_time("a message", self.stdout.next_line()).await.unwrap().expect("a message");
        serde_json::from_str(&line).unwrap()
    }

    /// A leg of the modern era.
    pub(crate) async fn leg(&mut self, id: u64, params: Value) -> Value {
        self.send(&message(id, params)).await;
        let response = self.receive().await;
        assert_eq!(response["id"], id);
        response
    }
}

#[tokio::test]
async fn a_flow_on_pipes_and_stdout_is_the_protocol_only() {
    let mut conversation = Conversation::begin();
    let state = state_of(&conversation.leg(1, first()).await);
    is_frozen(&conversation.leg(2, second("nonsense")).await);
    is_metric(&conversation.leg(3, second(&state)).await);

    drop(conversation.stdin);
    assert_eq!(conversation.stdout.next_line().await.unwrap(), None, "only responses were on stdout");
    let output = in_time("the end", conversation.child.wait_with_output()).await.unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{log}");
    assert!(log.contains("reason=NotAToken") && !log.contains('\x1b'), "{log}");
}

#[tokio::test]
async fn a_client_that_says_nothing_is_told_in_a_sentence() {
    let ended = run(&["serve", "--stdio"]).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{ended:?}");
    assert!(ended.stderr.starts_with("rounds: the client on stdio did not initialize the connection: "), "{ended:?}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
}
