//! The tour: one call with rmcp's own client, the same call by hand with a forgery, and every shape. Everything it
//! prints happened during this run.

use std::{collections::BTreeSet, fmt::Write as _, pin::pin, time::Instant};

use gallery::Gallery;
use rmcp::{
    ClientLifecycleMode, ClientServiceExt, ServiceExt,
    model::{CallToolRequestParams, JsonObject, ProtocolVersion},
};
use rounds::{
    Era, Rounds,
    tasks::Tasks,
    test::{AskedRound, Client, Events, InFlight, Leg, Retry},
};
use serde_json::{Value, json};
use tokio::io::duplex;

use crate::{Failure, colour::Paint, person::Person};

/// The tools to compare, and how each is written. Each is a file of the gallery.
const SHAPES: &[(&str, &str)] = &[
    ("weather_a", "guard, pushed"),
    ("weather_b", "thrown"),
    ("weather_c", "one branch"),
    ("weather_d", "two handlers"),
    ("weather_e", "guard"),
    ("weather_f", "guard, once"),
    ("weather_g", "steps"),
    ("weather_h", "linear"),
    ("weather_i", "durable"),
    ("weather_asked", "declared"),
    ("weather_naive", "guard, naive"),
];

/// Plays all scenes and returns the story.
pub(crate) async fn tell(paint: Paint) -> Result<String, Failure> {
    let began = Instant::now();
    let mut story = Story { paint, text: String::new() };
    automatic_loop(&mut story).await?;
    manual_loop(&mut story).await?;
    every_shape(&mut story).await?;
    as_a_task(&mut story).await?;
    next_command(&mut story, began);
    Ok(story.text)
}

async fn automatic_loop(story: &mut Story) -> Result<(), Failure> {
    story.heading("1  One call: rmcp's own client, and the rounds happen inside its call_tool");
    let (server, events) = watched()?;
    let (ours, theirs) = duplex(1 << 16);
    // `serve` returns after the handshake, and `waiting` when the client has disconnected.
    tokio::spawn(async move {
        if let Ok(running) = server.serve(theirs).await {
            let _ = running.waiting().await;
        }
    });
    let (person, said) = Person::who_answers(yes());
    let modern = ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
    let client = person.serve_with_lifecycle(ours, modern).await.map_err(Failure::tour)?;

    story.client(&format!("call_tool deploy {}", Value::Object(env())));
    let result = client.call_tool(CallToolRequestParams::new("deploy").with_arguments(env())).await;
    let result = result.map_err(Failure::tour)?;
    let said = said.all();
    for (question, answer) in &said {
        story.say("person", &format!("is asked {question:?}"));
        story.say("", &format!("and answers {answer}"));
    }
    story.server(&json!(result.content).to_string());
    let (legs, questions, runs) = (events.outcomes().len(), said.len(), events.runs("deploy"));
    story.aside(&format!("legs: {legs}, questions: {questions}, handler runs: {runs}; the loop did the rest"));
    Ok(())
}

async fn manual_loop(story: &mut Story) -> Result<(), Failure> {
    story.heading("2  The same call by hand, with one character of the state changed on the way");
    let stage = Stage::new(Era::Modern).await?;
    let call = json!({"name": "deploy", "arguments": env()});
    story.client(&format!("tools/call {call}"));

    let asked = stage.client.request("tools/call", call).await.asked();
    story.server(&format!("{}, and this leg is over", plain(&asked.result()["resultType"])));
    for key in asked.keys() {
        story.detail("question", &format!("{key}: {:?}", asked.message(key)));
        story.detail("form", &asked.schema(key)["properties"].to_string());
    }
    let state = asked.state();
    let length = story.paint.dim(&format!("({} characters in all)", state.len()));
    story.detail("state", &format!("{}... {length}", state.chars().take(24).collect::<String>()));
    story.aside("sealed: the client carries it, but can neither read nor change it");

    let (forged, change) = forge(state);
    story.client("the same call as a new request, with");
    for key in asked.keys() {
        story.detail("answer", &format!("{key}: {}", yes()));
    }
    story.detail("state", &change);
    let refused = answered(&asked, &yes()).tamper(|_| forged).send(&stage.client).await;
    story.server("an error, the same for every invalid state");
    for name in ["code", "message", "data"] {
        story.detail(name, &refused.error()[name].to_string());
    }
    for refusal in stage.events.refusals() {
        story.say("log", &story.paint.red(&format!("{refusal:?}: {refusal}")));
    }
    story.aside("only the server's events have the reason, for its operator");

    story.client("the same answer, with the state as it came");
    let done = answered(&asked, &yes()).send(&stage.client).await;
    story.server(&done.result()["content"].to_string());
    let (legs, runs) = (stage.events.outcomes().len(), stage.events.runs("deploy"));
    story.aside(&format!("legs: {legs}, handler runs: {runs}; it continued from where it had asked"));
    Ok(())
}

async fn every_shape(story: &mut Story) -> Result<(), Failure> {
    story.heading("3  Every shape: the same tool, written differently, called once in either era");
    let mut rows = Vec::new();
    for (shape, written) in SHAPES {
        let (modern, legacy) = (play(shape, Era::Modern).await?, play(shape, Era::Legacy).await?);
        rows.push(Row { shape, written, modern, legacy });
    }
    story.table(&rows);
    story.note("runs: of the handler, from the top. state: bytes that the client carries.");
    story.line("");
    let results: BTreeSet<_> = rows.iter().flat_map(|row| [&row.modern.result, &row.legacy.result]).collect();
    for result in results {
        story.line(&format!("The result: {result}"));
    }
    let shapes = |wanted: fn(&Row) -> bool| {
        let shapes = rows.iter().filter(|row| wanted(row)).map(|row| row.shape.trim_start_matches("weather_"));
        shapes.collect::<Vec<_>>().join(", ")
    };
    story.line(&format!("Asked in both eras: {}.", shapes(|row| row.legacy.asked > 0)));
    story.line(&format!("A default for the legacy client: {}.", shapes(|row| row.legacy.asked == 0)));
    let footguns: Vec<_> = rows.iter().flat_map(Row::footguns).collect();
    for (shape, client, Counted { audited, runs, .. }) in &footguns {
        story.warn(&format!("! {shape} is the footgun: one call of a {client} client, audited {audited} times."));
        story.warn(&format!("  Its effect stands above the question, and the handler ran {runs} times."));
    }
    if !footguns.is_empty() {
        story.warn("  The results are right, and nothing warned.");
    }
    Ok(())
}

async fn as_a_task(story: &mut Story) -> Result<(), Failure> {
    story.heading("4  The same handler as a task: the client has a handle, and polls it");
    let events = Events::new();
    let server = gallery::rounds().tasks(Tasks::at_once()).observe(events.clone()).build()?;
    let declared = json!({"elicitation": {"form": {}}, "extensions": {"io.modelcontextprotocol/tasks": {}}});
    let client = Client::modern(server).await.declaring(declared);
    let created = client.request("tools/call", json!({"name": "deploy", "arguments": env()})).await;
    let id = plain(&created.result()["taskId"]).to_owned();
    story.client("tools/call deploy, from a client that can poll");
    story.server(&format!("task {}...", id.chars().take(16).collect::<String>()));
    let asks = polled(&client, &id, "input_required").await;
    for (key, request) in asks["inputRequests"].as_object().into_iter().flatten() {
        story.say("", &format!("input_required: {key} asks {}", request["params"]["message"]));
        let answer = json!({"taskId": id, "inputResponses": {key: yes()}});
        let updated = client.request("tasks/update", answer).await;
        story.client(&format!("tasks/update, with the answer to {key}"));
        story.server(plain(&updated.result()["resultType"]));
    }
    let done = polled(&client, &id, "completed").await;
    story.server(&format!("completed: {}", done["result"]["content"]));
    story.aside(&format!("handler runs: {}; no request was open while a person thought", events.runs("deploy")));
    Ok(())
}

/// The task, once it has this status or has ended.
async fn polled(client: &Client, id: &str, status: &str) -> Value {
    loop {
        let task = client.request("tasks/get", json!({"taskId": id})).await.result().clone();
        if task["status"] != "working" && (task["status"] == status || task["status"] != "input_required") {
            return task;
        }
        tokio::task::yield_now().await;
    }
}

fn next_command(story: &mut Story, began: Instant) {
    story.heading("5  Next: talk to it yourself");
    let program = std::env::args().next().unwrap_or_else(|| "rounds".to_owned());
    story.line(&story.paint.bold(&format!("{program} serve --http 127.0.0.1:8000")));
    story.line(&story.paint.dim("and from another terminal, to answer its question:"));
    story.line(&story.paint.bold(&format!("{program} call http://127.0.0.1:8000/mcp weather_h location=Tokyo")));
    if cfg!(feature = "desk") {
        story.line(&story.paint.dim("or open it in a browser, to see what waits and to try every tool:"));
        story.line(&story.paint.bold("http://127.0.0.1:8000/"));
    } else {
        story.line(&story.paint.dim("or serve it with its desk, and open http://127.0.0.1:8000/ in a browser:"));
        story.line(&story.paint.bold("cargo run --release --features desk -- serve --http 127.0.0.1:8000"));
    }
    story.line("");
    story.line(&story.paint.dim(&format!("All of this happened in the last {} ms.", began.elapsed().as_millis())));
}

/// Calls a tool once, answers all its questions, and counts.
async fn play(shape: &str, era: Era) -> Result<Counted, Failure> {
    let stage = Stage::new(era).await?;
    let call = stage.client.start("tools/call", json!({"name": shape, "arguments": place()})).await;
    let (mut leg, mut pushed) = stage.finish(call).await;
    let (mut asked, mut bytes) = (0, 0);
    while leg.response()["result"]["resultType"] == "input_required" {
        let questions = leg.asked();
        asked += questions.keys().len();
        bytes = bytes.max(questions.state().len());
        let (next, more) = stage.finish(answered(&questions, &metric()).start(&stage.client).await).await;
        pushed += more;
        leg = next;
    }
    Ok(Counted {
        asked: asked + pushed,
        runs: stage.events.runs(shape),
        audited: stage.server.handler().audited().get(shape).copied().unwrap_or(0),
        bytes,
        result: leg.text(),
    })
}

/// A new server for each scene, so that every count belongs to that scene.
struct Stage {
    client: Client,
    server: Rounds<Gallery>,
    events: Events,
}

impl Stage {
    async fn new(era: Era) -> Result<Self, Failure> {
        let (server, events) = watched()?;
        let client = match era {
            Era::Legacy => Client::legacy(server.clone()).await,
            _ => Client::modern(server.clone()).await,
        };
        Ok(Self { client, server, events })
    }

    /// Waits for a response. Answers and counts the questions that a legacy server pushes meanwhile.
    async fn finish(&self, call: InFlight) -> (Leg, usize) {
        let mut leg = pin!(call.finish());
        let mut pushed = 0;
        loop {
            tokio::select! {
                leg = &mut leg => return (leg, pushed),
                Some(push) = self.client.pushed() => {
                    pushed += 1;
                    push.answer(metric()).await;
                }
            }
        }
    }
}

fn watched() -> Result<(Rounds<Gallery>, Events), Failure> {
    let events = Events::new();
    let server = gallery::rounds().observe(events.clone()).build()?;
    Ok((server, events))
}

fn place() -> Value {
    json!({"location": "Tokyo"})
}

fn metric() -> Value {
    json!({"action": "accept", "content": {"units": "metric"}})
}

fn env() -> JsonObject {
    JsonObject::from_iter([("env".to_owned(), json!("prod"))])
}

fn yes() -> Value {
    json!({"action": "accept", "content": {"confirm": true}})
}

fn answered(asked: &AskedRound, answer: &Value) -> Retry {
    asked.keys().iter().fold(asked.retry(), |retry, key| retry.respond(key, answer.clone()))
}

/// Changes one character of the state, and describes the change. The middle of a state is inside the ciphertext.
fn forge(state: &str) -> (String, String) {
    let place = state.len() / 2;
    let (before, rest) = state.split_at(place);
    let (old, after) = rest.split_at(1);
    let new = if old == "A" { "B" } else { "A" };
    let change = format!("character {} of {} is {new} and was {old}", place + 1, state.len());
    (format!("{before}{new}{after}"), change)
}

fn plain(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The counts of one call.
struct Counted {
    asked: usize,
    runs: usize,
    audited: u64,
    bytes: usize,
    result: String,
}

/// A shape, called once by a client of each era.
struct Row {
    shape: &'static str,
    written: &'static str,
    modern: Counted,
    legacy: Counted,
}

impl Row {
    /// The clients for which the effect ran more than once. A call is one entry in the audit, however many rounds it
    /// takes.
    fn footguns(&self) -> impl Iterator<Item = (&'static str, &'static str, &Counted)> {
        let clients = [(self.shape, "modern", &self.modern), (self.shape, "legacy", &self.legacy)];
        clients.into_iter().filter(|(_, _, counted)| counted.audited > 1)
    }

    fn cells(&self) -> [String; COLUMNS] {
        let Self { shape, written, modern, legacy } = self;
        [
            (*shape).to_owned(),
            (*written).to_owned(),
            modern.asked.to_string(),
            modern.runs.to_string(),
            modern.audited.to_string(),
            modern.bytes.to_string(),
            legacy.asked.to_string(),
            legacy.runs.to_string(),
            legacy.audited.to_string(),
        ]
    }
}

const COLUMNS: usize = 9;

const HEADER: [[&str; COLUMNS]; 2] = [
    ["", "", "modern", "", "", "", "legacy", "", ""],
    ["shape", "written as", "asked", "runs", "audited", "state", "asked", "runs", "audited"],
];

/// The text of the tour. Writing to a string cannot fail.
struct Story {
    paint: Paint,
    text: String,
}

impl Story {
    fn heading(&mut self, heading: &str) {
        let gap = if self.text.is_empty() { "" } else { "\n" };
        let _ = writeln!(self.text, "{gap}{}\n", self.paint.bold(heading));
    }

    fn line(&mut self, line: &str) {
        let indent = if line.is_empty() { "" } else { "   " };
        let _ = writeln!(self.text, "{indent}{line}");
    }

    fn warn(&mut self, words: &str) {
        self.line(&self.paint.red(words));
    }

    fn client(&mut self, said: &str) {
        self.say("client", said);
    }

    fn server(&mut self, said: &str) {
        self.say("server", said);
    }

    fn say(&mut self, who: &str, said: &str) {
        let who = self.paint.green(&format!("{who:<8}"));
        self.line(&format!("{who}{said}"));
    }

    fn detail(&mut self, name: &str, value: &str) {
        let name = self.paint.dim(&format!("{name:<10}"));
        self.line(&format!("          {name}{value}"));
    }

    fn aside(&mut self, words: &str) {
        let words = self.paint.dim(words);
        self.line(&format!("        {words}"));
    }

    fn note(&mut self, words: &str) {
        self.line(&self.paint.dim(words));
    }

    fn table(&mut self, rows: &[Row]) {
        let cells: Vec<_> = rows.iter().map(Row::cells).collect();
        let header = HEADER.map(|line| line.map(str::to_owned));
        let width = |column: usize| {
            header.iter().chain(&cells).map(|line| line[column].chars().count()).max().unwrap_or_default()
        };
        let widths: [usize; COLUMNS] = std::array::from_fn(width);
        for line in &header {
            self.line(&self.paint.dim(align(line, widths).trim_end()));
        }
        for (row, cells) in rows.iter().zip(&cells) {
            let line = align(cells, widths);
            if row.footguns().next().is_some() {
                let _ = writeln!(self.text, " {}", self.paint.red(&format!("! {line}")));
            } else {
                self.line(&line);
            }
        }
    }
}

/// Aligns text to the left and numbers to the right.
fn align(cells: &[String; COLUMNS], widths: [usize; COLUMNS]) -> String {
    let mut line = String::new();
    for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
        let _ = match column {
            0 | 1 => write!(line, "{cell:<width$}  "),
            _ => write!(line, " {cell:>width$}"),
        };
    }
    line
}
