//! The weather tool in one shape, with what it costs: `cargo run --example weather -- SHAPE [--era modern | legacy]`.
//!
//! SHAPE is a file of the gallery, `gallery/src/weather_SHAPE.rs`: a to i, asked, naive or lowlevel. Run it with `naive`
//! and with `f`, and compare the last columns: the handler of either runs twice, and the effect of `f` once. The tour,
//! `cargo run --release`, has a row like this for every shape.

use std::pin::pin;

use rounds::{
    Era,
    test::{Client, Events, InFlight, Leg},
};
use serde_json::{Value, json};

const SHAPES: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "asked", "naive", "lowlevel"];
const USAGE: &str = "usage: weather SHAPE [--era modern | legacy], where SHAPE is a to i, asked, naive or lowlevel";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let era = match args.get(1..).unwrap_or_default() {
        [] => Era::Modern,
        [flag, era] if flag == "--era" && era == "modern" => Era::Modern,
        [flag, era] if flag == "--era" && era == "legacy" => Era::Legacy,
        _ => return Err(USAGE.into()),
    };
    let shape = args.first().filter(|shape| SHAPES.contains(&shape.as_str())).ok_or(USAGE)?;
    let tool = format!("weather_{shape}");
    let events = Events::new();
    let server = gallery::rounds().observe(events.clone()).build()?;
    let client = Client::connect(server.clone(), era, json!({"elicitation": {}})).await;

    let mut asked = 0;
    let call = json!({"name": tool, "arguments": {"location": "Tokyo"}});
    let mut leg = finish(&client, client.start("tools/call", call).await, &mut asked).await;
    while leg.response()["result"]["resultType"] == "input_required" {
        // A modern client gets the question as a result, and sends the answer with its next request.
        let questions = leg.asked();
        asked += 1;
        println!("asked in a result: {}", questions.message("units"));
        let retry = questions.retry().respond("units", metric());
        leg = finish(&client, retry.start(&client).await, &mut asked).await;
    }
    println!("result:            {}", leg.text());
    let audited = server.handler().audited().get(&tool).copied().unwrap_or(0);
    println!("{:<10}{:>8}{:>8}{:>10}", "shape", "asked", "runs", "audited");
    println!("{shape:<10}{asked:>8}{:>8}{audited:>10}", events.runs(&tool));
    Ok(())
}

/// Waits for the response of a leg. A legacy client is asked meanwhile, over the live connection.
async fn finish(client: &Client, call: InFlight, asked: &mut usize) -> Leg {
    let mut leg = pin!(call.finish());
    loop {
        tokio::select! {
            leg = &mut leg => return leg,
            Some(pushed) = client.pushed() => {
                *asked += 1;
                println!("asked by a push:   {}", pushed.params()["message"].as_str().unwrap_or_default());
                pushed.answer(metric()).await;
            }
        }
    }
}

fn metric() -> Value {
    json!({"action": "accept", "content": {"units": "metric"}})
}
