//! A call that is played to its end, in either era.

use rmcp::ServerHandler;
use serde_json::{Value, json};

use super::{
    client::{Client, Leg},
    question::AskedQuestion,
};

impl Client {
    /// Calls a tool and answers its questions with these answers, one after the other, until the call ends. The same
    /// test runs in both eras: a modern client is asked in results, a legacy client by requests of the server.
    ///
    /// ```
    /// # use rmcp::{ServerHandler, handler::server::router::tool::ToolRouter, tool, tool_handler, tool_router};
    /// # use rounds::{Ask, FlowError, Rounds, test::{Client, accept}};
    /// # use serde_json::json;
    /// # struct Files { tool_router: ToolRouter<Self> }
    /// # #[tool_router]
    /// # impl Files {
    /// #     #[tool] async fn empty(&self, ask: Ask) -> Result<String, FlowError> {
    /// #         Ok(if ask.confirm("Delete all?").await? { "Emptied." } else { "Kept." }.to_owned())
    /// #     }
    /// # }
    /// # #[tool_handler(router = self.tool_router)] impl ServerHandler for Files {}
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let server = Rounds::new(Files { tool_router: Files::tool_router() });
    /// for client in [Client::modern(server.clone()).await, Client::legacy(server).await] {
    ///     let played = client.play("empty", json!({}), [accept(json!({"confirm": true}))]).await;
    ///     assert_eq!(played.messages(), ["Delete all?"]);
    ///     assert_eq!(played.text(), "Emptied.");
    /// }
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If more is asked than there are answers, if answers are left when the call ends, or if the server closes the
    /// connection without an answer.
    pub async fn play(&self, tool: &str, arguments: Value, answers: impl IntoIterator<Item = Value>) -> Played {
        let mut script = Script { answers: answers.into_iter().collect(), asked: Vec::new() };
        let mut leg = self.call(tool, arguments).await;
        while leg.is_asked() {
            let asked = leg.asked();
            let keys: Vec<_> = asked.keys().into_iter().map(str::to_owned).collect();
            let answer = |script: &mut Script, key: &str| script.answer(asked.question(key).raw());
            let retry = keys.iter().fold(asked.retry(), |retry, key| retry.respond(key, answer(&mut script, key)));
            leg = retry.send(self).await;
        }
        assert!(script.answers.is_empty(), "not asked: the call ended before {:?}", script.answers);
        Played { asked: script.asked, end: leg }
    }
}

/// [Plays](Client::play) a call twice, with a client of each era, and expects that both are asked the same questions and
/// get the same result. Returns what the modern client saw.
///
/// ```
/// # use rmcp::{ServerHandler, handler::server::router::tool::ToolRouter, tool, tool_handler, tool_router};
/// # use rounds::{Ask, FlowError, Rounds, test::{accept, play_in_both_eras}};
/// # use serde_json::json;
/// # struct Files { tool_router: ToolRouter<Self> }
/// # #[tool_router]
/// # impl Files {
/// #     #[tool] async fn empty(&self, ask: Ask) -> Result<String, FlowError> {
/// #         Ok(if ask.confirm("Delete all?").await? { "Emptied." } else { "Kept." }.to_owned())
/// #     }
/// # }
/// # #[tool_handler(router = self.tool_router)] impl ServerHandler for Files {}
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let server = Rounds::new(Files { tool_router: Files::tool_router() });
/// let played = play_in_both_eras(&server, "empty", json!({}), [accept(json!({"confirm": true}))]).await;
/// assert_eq!(played.text(), "Emptied.");
/// # }
/// ```
///
/// # Panics
///
/// If the two clients are asked different questions or get different results, and as [`Client::play`] does.
pub async fn play_in_both_eras<H: ServerHandler + Clone>(
    server: &H,
    tool: &str,
    arguments: Value,
    answers: impl IntoIterator<Item = Value>,
) -> Played {
    let answers: Vec<_> = answers.into_iter().collect();
    let modern = Client::modern(server.clone()).await.play(tool, arguments.clone(), answers.clone()).await;
    let legacy = Client::legacy(server.clone()).await.play(tool, arguments, answers).await;
    let seen = |played: &Played| {
        let forms = |asked: &Value| {
            (asked["method"].clone(), asked["params"]["message"].clone(), asked["params"]["requestedSchema"].clone())
        };
        let end = played.end.response();
        let result = ["content", "structuredContent", "isError"].map(|part| end["result"][part].clone());
        (played.asked.iter().map(forms).collect::<Vec<_>>(), result, end["error"].clone())
    };
    assert_eq!(seen(&modern), seen(&legacy), "the modern client (left) and the legacy client (right) differ");
    modern
}

/// The answers that are left, and what was asked.
struct Script {
    answers: std::collections::VecDeque<Value>,
    asked: Vec<Value>,
}

impl Script {
    fn answer(&mut self, question: &Value) -> Value {
        self.asked.push(question.clone());
        self.answers.pop_front().unwrap_or_else(|| panic!("there is no answer for {question}"))
    }
}

/// A call that was [played](Client::play) to its end.
#[derive(Debug, Clone)]
pub struct Played {
    asked: Vec<Value>,
    end: Leg,
}

impl Played {
    /// The messages of the questions, in the order of asking.
    pub fn messages(&self) -> Vec<&str> {
        self.asked.iter().map(|question| AskedQuestion::new(question).message()).collect()
    }

    /// The question at this place, counted from zero.
    ///
    /// # Panics
    ///
    /// If fewer were asked.
    pub fn question(&self, place: usize) -> AskedQuestion<'_> {
        AskedQuestion::new(&self.asked[place])
    }

    /// The last leg.
    pub fn end(&self) -> &Leg {
        &self.end
    }

    /// The text that the call ended with, whether the tool succeeded or not.
    ///
    /// # Panics
    ///
    /// If it ended with a protocol error.
    #[track_caller]
    pub fn text(&self) -> String {
        self.end.text()
    }

    /// Whether it ended with a tool error.
    ///
    /// # Panics
    ///
    /// If it ended with a protocol error.
    #[track_caller]
    pub fn is_tool_error(&self) -> bool {
        self.end.is_tool_error()
    }
}

/// The answer that accepts a form with this content, for [`Client::play`].
pub fn accept(content: Value) -> Value {
    json!({"action": "accept", "content": content})
}

/// The answer that declines a question, for [`Client::play`].
pub fn decline() -> Value {
    json!({"action": "decline"})
}

/// The answer that dismisses a question, for [`Client::play`].
pub fn cancel() -> Value {
    json!({"action": "cancel"})
}
