//! The loop by hand: a question is saved in a file, and answered later over another connection.
//! `cargo run --example client_manual`
//!
//! A call that waits is a value. The process that asked may end; the one that answers needs only the file. The server
//! is the gallery, in this process.

use std::{env, error::Error, fs, path::Path, process};

use gallery::Gallery;
use rmcp::{RoleClient, ServerHandler, ServiceExt, object, service::RunningService};
use rounds::{
    Rounds,
    client::{Call, DefaultsOnly, FieldKind, Host, Pending, Sent, defaults_only},
};

type Client = RunningService<RoleClient, Host<DefaultsOnly>>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Rounds::new(Gallery::new());
    let file = env::temp_dir().join(format!("weather-{}.json", process::id()));
    today(server.clone(), &file).await?;
    tomorrow(server, &file).await?;
    Ok(fs::remove_file(file)?)
}

/// Calls, and saves the question. The file is a secret: with it, another client can answer in the user's place.
async fn today(server: impl ServerHandler, file: &Path) -> Result<(), Box<dyn Error>> {
    let client = connect(server).await?;
    match Call::tool("weather_e", object!({"location": "Paris"})).send(&client).await? {
        Sent::Asks(pending) => Ok(fs::write(file, pending.to_json())?),
        other => Err(format!("expected a question, got {other:?}").into()),
    }
}

/// Loads the question, shows it, and sends the answer.
async fn tomorrow(server: impl ServerHandler, file: &Path) -> Result<(), Box<dyn Error>> {
    let mut pending = Pending::from_json(&fs::read_to_string(file)?)?;
    for question in pending.questions() {
        println!("{} asks: {}", question.origin(), question.message());
        for field in question.fields() {
            let FieldKind::Choice { choices, .. } = &field.kind else { continue };
            let titles: Vec<_> = choices.iter().map(|choice| choice.title.as_str()).collect();
            println!("  {}: {}", field.label, titles.join(" or "));
        }
    }
    pending.accept("units", object!({"units": "imperial"}))?;
    let client = connect(server).await?;
    // After a lost connection the same answers could be sent again: the reply is the same, and nothing runs twice.
    for _ in ["sent", "sent again"] {
        match pending.send(&client).await? {
            Sent::Done(done) => println!("{}", done.text()),
            other => return Err(format!("expected a result, got {other:?}").into()),
        }
    }
    Ok(())
}

/// A connection to a server that runs in this process. The responder tells the server that forms can be answered; with a
/// modern server, and without `drive`, it is never called.
async fn connect(server: impl ServerHandler) -> Result<Client, Box<dyn Error>> {
    let (ours, theirs) = tokio::io::duplex(4096);
    tokio::spawn(async move { server.serve(theirs).await.map(|server| server.waiting()).ok()?.await.ok() });
    Ok(Host::new(defaults_only()).modern_only().connect(ours).await?)
}
