//! The tour: one call by a client's own loop, the same by hand with a forgery in the middle, and every shape. What it
//! prints, it has just seen happen.

use std::{fmt::Write as _, pin::pin, time::Instant};

use gallery::Gallery;
use rmcp::{
    ClientLifecycleMode, ClientServiceExt, ServiceExt,
    model::{CallToolRequestParams, JsonObject, ProtocolVersion},
};
use rounds::{
    Era, Rounds,
    test::{Asked, Client, Events, InFlight, Leg, Retry},
};
use serde_json::{Value, json};
use tokio::io::duplex;

use crate::{Failure, colour::Paint, person::Person};

/// The tools to compare, a line each. Each is a file of the gallery.
const SHAPES: &[&str] = &["weather_e", "weather_f", "weather_h", "weather_i", "weather_naive"];

/// Plays it all and tells about it.
pub(crate) async fn tell(paint: Paint) -> Result<String, Failure> {
    let began = Instant::now();
    let mut story = Story { paint, text: String::new() };
    automatic_loop(&mut story).await?;
    manual_loop(&mut story).await?;
    every_shape(&mut story).await?;
    next_command(&mut story, began);
    Ok(story.text)
}

async fn automatic_loop(story: &mut Story) -> Result<(), Failure> {
    story.heading("1  One call: rmcp's own client, and the rounds happen inside its call_tool");
    let (server, events) = watched()?;
    let (ours, theirs) = duplex(1 << 16);
    // It returns once it has heard from the client, and stops when the client is gone.
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
        story.say("person", &format!("is asked {question:?} and answers {answer}"));
    }
    story.server(&json!(result.content).to_string());
    let (legs, questions, runs) = (events.outcomes().len(), said.len(), events.runs("deploy"));
    story.aside(&format!("legs: {legs}, questions: {questions}, handler runs: {runs}; the loop did the rest"));
    Ok(())
}

async fn manual_loop(story: &mut Story) -> Result<(), Failure> {
    story.heading("2  The same call by hand, leg by leg, with one character of the state changed on the way");
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
    story.aside("sealed: it travels with the client, who can neither read nor change it");

    let (forged, change) = forge(state);
    story.client("the same call as a new request, with");
    for key in asked.keys() {
        story.detail("answer", &format!("{key}: {}", yes()));
    }
    story.detail("state", &change);
    let refused = answered(&asked, &yes()).tamper(|_| forged).send(&stage.client).await;
    story.server("an error, the same for whatever is wrong with a state");
    for name in ["code", "message", "data"] {
        story.detail(name, &refused.error()[name].to_string());
    }
    for refusal in stage.events.refusals() {
        story.say("log", &story.paint.red(&format!("{refusal:?}: {refusal}")));
    }
    story.aside("the reason is in the event only, where the server's operator reads it");

    story.client("the same answer, with the state as it came");
    let done = answered(&asked, &yes()).send(&stage.client).await;
    story.server(&done.result()["content"].to_string());
    let (legs, runs) = (stage.events.outcomes().len(), stage.events.runs("deploy"));
    story.aside(&format!("legs: {legs}, handler runs: {runs}; it waited where it asked, and went on from there"));
    Ok(())
}

async fn every_shape(story: &mut Story) -> Result<(), Failure> {
    story.heading("3  Every shape: the same tool, written differently, called once");
    let mut rows = Vec::new();
    for shape in SHAPES {
        for era in [Era::Modern, Era::Legacy] {
            rows.push(play(shape, era).await?);
        }
    }
    story.table(&rows);
    story.line("");
    for Row { shape, client, .. } in rows.iter().filter(|row| row.pushed > 0) {
        let words =
            format!("{shape} asks the {client} client as well: its question is pushed over the live connection.");
        story.line(&story.paint.dim(&words));
    }
    for row in rows.iter().filter(|row| row.is_footgun()) {
        let (shape, audited, runs) = (row.shape, row.audited, row.runs);
        story
            .warn(&format!("! {shape} is the footgun: one call, audited {audited} times. Its effect stands above the"));
        story.warn(&format!("  question, and the handler ran {runs} times. The result is right, and nothing warned."));
    }
    Ok(())
}

fn next_command(story: &mut Story, began: Instant) {
    story.heading("4  Next: talk to it yourself");
    let program = std::env::args().next().unwrap_or_else(|| "rounds".to_owned());
    story.line(&story.paint.bold(&format!("{program} serve --http 127.0.0.1:8000")));
    story.line(&story.paint.dim("and from another terminal, to be asked:"));
    story.line(&story.paint.bold(&format!("{program} call http://127.0.0.1:8000/mcp weather_h location=Tokyo")));
    story.line("");
    story.line(&story.paint.dim(&format!("All of this happened in the last {} ms.", began.elapsed().as_millis())));
}

/// Calls a tool once, answers all that it asks, and counts.
async fn play(shape: &'static str, era: Era) -> Result<Row, Failure> {
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
    Ok(Row {
        shape,
        client: if era == Era::Legacy { "legacy" } else { "modern" },
        asked: asked + pushed,
        pushed,
        runs: stage.events.runs(shape),
        audited: stage.server.handler().audited().get(shape).copied().unwrap_or(0),
        bytes,
        result: leg.text(),
    })
}

/// A server of its own for each scene, so that what is counted belongs to it.
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

    /// Waits for a response. What the server pushes meanwhile, as the legacy era has it, is answered and counted.
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
    let server = Rounds::builder(Gallery::new()).observe(events.clone()).build()?;
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

fn answered(asked: &Asked, answer: &Value) -> Retry {
    asked.keys().iter().fold(asked.retry(), |retry, key| retry.respond(key, answer.clone()))
}

/// The state with one character changed, and which. The middle is well inside of what is encrypted.
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

/// What was counted in one call.
struct Row {
    shape: &'static str,
    client: &'static str,
    asked: usize,
    /// How many of these by a request of the server's own.
    pushed: usize,
    runs: usize,
    audited: u64,
    bytes: usize,
    result: String,
}

impl Row {
    /// One call is one entry in the audit, however many rounds it takes.
    fn is_footgun(&self) -> bool {
        self.audited > 1
    }

    fn cells(&self) -> [String; 7] {
        [
            self.shape.to_owned(),
            self.client.to_owned(),
            self.asked.to_string(),
            self.runs.to_string(),
            self.audited.to_string(),
            self.bytes.to_string(),
            self.result.clone(),
        ]
    }
}

/// In two lines, so that a row fits into 100 columns.
const HEADER: [[&str; 7]; 2] =
    [["", "", "", "handler", "", "bytes of", ""], ["shape", "client", "asked", "runs", "audited", "state", "result"]];

/// Text in the making. Writing to a string cannot fail, so nothing here does.
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

    fn table(&mut self, rows: &[Row]) {
        let cells: Vec<_> = rows.iter().map(Row::cells).collect();
        let header = HEADER.map(|line| line.map(str::to_owned));
        let width = |column: usize| {
            header.iter().chain(&cells).map(|line| line[column].chars().count()).max().unwrap_or_default()
        };
        let widths: [usize; 7] = std::array::from_fn(width);
        for line in &header {
            self.line(&self.paint.dim(align(line, widths).trim_end()));
        }
        for (row, cells) in rows.iter().zip(&cells) {
            let line = align(cells, widths);
            if row.is_footgun() {
                let _ = writeln!(self.text, " {}", self.paint.red(&format!("! {line}")));
            } else {
                self.line(&line);
            }
        }
    }
}

/// Words to the left, numbers to the right.
fn align(cells: &[String; 7], widths: [usize; 7]) -> String {
    let [shape, client, asked, runs, audited, bytes, result] = cells;
    let [w0, w1, w2, w3, w4, w5, _] = widths;
    format!("{shape:<w0$}  {client:<w1$}  {asked:>w2$}  {runs:>w3$}  {audited:>w4$}  {bytes:>w5$}  {result}")
}
