//! A client of tasks that books a flight: it polls, answers what is asked, and sends everything again that fails.

use std::time::Duration;

use serde_json::{Value, json};

use crate::call::{Call, text};

/// How often it polls.
const POLL: Duration = Duration::from_millis(60);

/// Where flights are booked.
pub(crate) trait Airline: Sync {
    /// Sends a request until it is answered, to any instance.
    fn send(&self, call: Call) -> impl Future<Output = Value> + Send;
}

/// Books a flight. A client that is told of a booking has been charged for it once.
pub(crate) async fn book(number: usize, airline: &impl Airline) {
    let created = airline.send(Call::booking(number).with_tasks()).await;
    let id = created["result"]["taskId"].as_str().unwrap_or_else(|| panic!("{created}")).to_owned();
    loop {
        let got = airline.send(Call::of_task("tasks/get", &id)).await;
        match got["result"]["status"].as_str() {
            Some("working") => tokio::time::sleep(POLL).await,
            Some("input_required") => {
                let answers = answers(&got["result"]["inputRequests"]);
                airline.send(Call::of_task("tasks/update", &id).answering(answers)).await;
            }
            Some("completed") => {
                let booked = format!("Booked LHR to FCO on day {number}, seat 12A: charged 140.");
                assert_eq!(text(&got["result"]), booked);
                return;
            }
            _ => panic!("flight {number}: {got}"),
        }
    }
}

fn answers(requests: &Value) -> Value {
    let answer = |key: &String| {
        let name = key.split('.').next().unwrap();
        let value = if name == "seat" { json!("12A") } else { json!(true) };
        (key.clone(), json!({"action": "accept", "content": {name: value}}))
    };
    requests.as_object().unwrap().keys().map(answer).collect()
}
