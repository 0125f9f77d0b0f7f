//! Approvals on a fleet: decided from another process, while instances are killed. Each refund happens once, also if its client
//! never comes back.

use std::{collections::HashMap, time::Duration};

use serde_json::{Value, json};

use crate::{
    Fleet, PAUSE,
    call::{Call, text},
    in_time,
    instance::rounds,
};

/// How many refunds wait at the same time.
const REFUNDS: usize = 24;
const BETWEEN_KILLS: Duration = Duration::from_millis(500);

on_every_store!(
    approved_refunds_with_kills_happen_once_each_without_their_clients,
    a_task_that_waits_for_an_approval_goes_on_at_another_instance,
    of_two_people_who_decide_in_two_processes_one_does
);

impl Fleet {
    /// The output of `rounds flows`, a process of its own.
    async fn flows(&self, args: &[&str]) -> String {
        let url = self.store.url();
        let args = [&["flows"], args, &["--store", &url, "--key-file", self.keys.path()]].concat();
        let mut command = rounds(&args);
        let output = in_time("the command", command.stdout(std::process::Stdio::piped()).output()).await.unwrap();
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    }

    /// The ids of the flows with this status.
    async fn ids(&self, status: &str) -> Vec<String> {
        let listed = self.flows(&["--status", status, "--json"]).await;
        let listed: Vec<Value> = serde_json::from_str(&listed).unwrap_or_else(|error| panic!("{error}: {listed}"));
        listed.iter().map(|flow| flow["id"].as_str().unwrap().to_owned()).collect()
    }

    async fn shown(&self, id: &str) -> Value {
        serde_json::from_str(&self.flows(&["show", id, "--json"]).await).unwrap()
    }
}

fn refund(number: usize) -> Call {
    Call::tool("refund_large", &json!({"order_id": format!("ORD-{number}"), "amount": 900}))
}

fn refunded(number: usize) -> String {
    format!("Refunded 900 of ORD-{number}, approved by grace.")
}

async fn approved_refunds_with_kills_happen_once_each_without_their_clients(fleet: Fleet) {
    let mut references = HashMap::new();
    for number in 0..REFUNDS {
        let ended = fleet.send(&refund(number)).await;
        let (_, reference) = text(&ended).split_once("The reference of this call is ").unwrap();
        references.insert(number, reference.split('.').next().unwrap().to_owned());
    }
    let waiting = fleet.ids("waiting").await;
    assert_eq!(waiting.len(), REFUNDS);
    let deciding = async {
        for id in &waiting {
            let said = fleet.flows(&["decide", id, "--approve", "--as", "grace"]).await;
            assert!(said.starts_with("approved by grace: Refund 900 of ORD-"), "{said}");
        }
        in_time("the refunds", async { while fleet.ids("completed").await.len() < REFUNDS {} }).await;
    };
    let killing = async {
        for kill in 0.. {
            tokio::time::sleep(BETWEEN_KILLS).await;
            fleet.kill(kill % 3).await;
            fleet.replace(kill % 3).await;
        }
    };
    tokio::select! {
        () = deciding => {}
        () = killing => {}
    }
    for id in &waiting {
        let shown = fleet.shown(id).await;
        // A leg that took over from a killed one does not list the effect that it found.
        assert!(shown["details"]["rounds"][0]["effects"].as_array().unwrap().len() <= 1, "{shown}");
        assert_eq!(shown["details"]["rounds"][0]["answers"]["approval"]["way"], "command-line", "{shown}");
    }
    // What came of them is kept outside of all instances.
    for at in 0..3 {
        fleet.replace(at).await;
    }
    for (number, reference) in references {
        let outcome = fleet.send(&Call::tool("flow_result", &json!({"reference": reference}))).await;
        assert_eq!(text(&outcome), refunded(number));
    }
}

async fn a_task_that_waits_for_an_approval_goes_on_at_another_instance(fleet: Fleet) {
    let created = fleet.send_to(0, &refund(1).with_tasks()).await.unwrap();
    let task = created["result"]["taskId"].as_str().unwrap_or_else(|| panic!("{created}")).to_owned();
    let get = async |at| fleet.send_to(at, &Call::of_task("tasks/get", &task)).await.unwrap()["result"].clone();
    let waits = "Another person has to decide: Refund 900 of ORD-1?";
    in_time("the question", async { while get(0).await["statusMessage"] != waits {} }).await;
    fleet.kill(0).await;
    let id = fleet.ids("waiting").await.remove(0);
    fleet.flows(&["decide", &id, "--approve", "--as", "grace"]).await;
    let ended = in_time("the end", async {
        loop {
            let got = get(1).await;
            match got["status"].as_str() {
                Some("working") => tokio::time::sleep(PAUSE).await,
                _ => return got,
            }
        }
    });
    assert_eq!(text(&ended.await), refunded(1));
    let effects = fleet.shown(&id).await["details"]["rounds"][0]["effects"].clone();
    assert_eq!(effects.as_array().unwrap().len(), 1, "{effects}");
}

async fn of_two_people_who_decide_in_two_processes_one_does(fleet: Fleet) {
    fleet.send(&refund(1)).await;
    let id = fleet.ids("waiting").await.remove(0);
    let approve = ["decide", &id, "--approve", "--as", "grace"];
    let deny = ["decide", &id, "--deny", "--as", "alan"];
    let (grace, alan) = tokio::join!(fleet.flows(&approve), fleet.flows(&deny));
    let first = [("grace", grace.starts_with("approved by grace")), ("alan", alan.starts_with("denied by alan"))];
    let firsts: Vec<_> = first.iter().filter(|(_, is_first)| *is_first).map(|(who, _)| *who).collect();
    assert_eq!(firsts.len(), 1, "{grace} {alan}");
    let second = if firsts == ["grace"] { alan } else { grace };
    assert!(second.contains(&format!("was decided before, by {}", firsts[0])), "{second}");
}
