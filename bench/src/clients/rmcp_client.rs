//! rmcp's client as a program that calls a tool as often as it can: see [`super::generator`].

use std::{
    io::BufRead,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use rmcp::{ClientServiceExt, model::CallToolRequestParams, transport::StreamableHttpClientTransport};
use tokio::task::JoinSet;

use crate::{
    alone::Failure,
    client::{Person, arguments, modern},
};

/// How many calls are in flight, each of a client of its own.
const CLIENTS: usize = 8;

/// Runs it, with the URL and the tool from the command line.
pub(crate) async fn run() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let (Some(url), Some(tool)) = (args.next(), args.next()) else { return ExitCode::from(2) };
    match drive(&url, &tool).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: rmcp's client: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn drive(url: &str, tool: &str) -> Result<(), Failure> {
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let transport = StreamableHttpClientTransport::from_uri(url.to_owned());
        clients.push(Arc::new(Person.serve_with_lifecycle(transport, modern()).await?));
    }
    // Nothing else is to be done meanwhile.
    for line in std::io::stdin().lock().lines() {
        let (start, time) = (Instant::now(), Duration::from_millis(line?.trim().parse()?));
        let mut calling = JoinSet::new();
        for client in &clients {
            let (client, tool) = (client.clone(), tool.to_owned());
            calling.spawn(async move {
                let mut calls = 0;
                while start.elapsed() < time {
                    let request = CallToolRequestParams::new(tool.clone()).with_arguments(arguments());
                    client.call_tool(request).await?;
                    calls += 1;
                }
                Ok::<usize, Failure>(calls)
            });
        }
        let mut calls = 0;
        while let Some(called) = calling.join_next().await {
            calls += called??;
        }
        println!("{calls}");
    }
    Ok(())
}
